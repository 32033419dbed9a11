"""Logistic regression on standardised features, with a small ridge penalty; numpy and scipy alone."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

PENALTY = 1.0
"""On the squared weights of standardised features, beside the summed loss (scikit-learn's C = 1)."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """Probability = sigmoid(intercept + weights . (features - means) / scales)."""

    means: Floats
    scales: Floats
    """1 for a feature that never changed in training; its weight is 0."""
    weights: Floats
    intercept: float

    def probabilities(self, features: Floats) -> Floats:
        """(n_rows,) from (n_rows, n_features)."""
        standard = (features - self.means) / self.scales
        # Row by row, not as a matrix product: a question gets the same number alone and among others.
        logits = (standard * self.weights).sum(axis=1) + self.intercept
        found: Floats = np.exp(-np.logaddexp(0, -logits))
        return found


def fit_logistic(features: Floats, truth: Mask) -> Logistic:
    """Fit by maximum likelihood with the penalty; the intercept is free.

    Args:
        features: (n_rows, n_features).
        truth: (n_rows,), both values must occur.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    means, deviations = features.mean(axis=0), features.std(axis=0)
    varies = deviations > 1e-9
    scales = np.where(varies, deviations, 1.0)
    standard = np.where(varies, (features - means) / scales, 0.0)
    targets = truth.astype(np.float64)

    def loss(parameters: Floats) -> tuple[float, Floats]:
        weights, intercept = parameters[:-1], parameters[-1]
        logits = standard @ weights + intercept
        value = (np.logaddexp(0, logits) - targets * logits).sum() + PENALTY / 2 * weights @ weights
        errors = expit(logits) - targets
        return float(value), np.append(standard.T @ errors + PENALTY * weights, errors.sum())

    found = minimize(loss, np.zeros(features.shape[1] + 1), jac=True, method="L-BFGS-B").x
    return Logistic(means, scales, found[:-1], float(found[-1]))

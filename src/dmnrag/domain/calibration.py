"""From the scores of a linear model to probabilities.

P(label) = sigmoid(a * its score + b * the best other score + c), a, b and c fitted on held-out folds. Platt's sigmoid
with the rival beside the score: where labels exclude each other b comes out near -a, where several apply near 0, so
one form serves both. Without the rival the calibration error is four times as large (.0185 against .0045 on medical
questions, docs/results.md).

The sigmoid without the rival (b = 0) has its use beside it: a question about something else can leave its rivals far
behind and still have little that speaks for any label.

Source: Platt, "Probabilistic outputs for support vector machines", 1999, section 2 (fit and smoothed targets).
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

NOTHING = -1.0
"""The score of a row that does not have a label; also the rival where there is one label only."""


def with_rival(scores: Floats) -> Floats:
    """(n_rows, n_labels, 3): each score, the best of the row's other scores, and 1."""
    rivals = np.full_like(scores, NOTHING)
    if scores.shape[1] > 1:
        second, first = np.partition(scores, -2, axis=1)[:, -2:].T
        rivals = np.repeat(first[:, None], scores.shape[1], axis=1)
        rivals[np.arange(len(scores)), scores.argmax(axis=1)] = second
    return np.stack([scores, rivals, np.ones_like(scores)], axis=2)


def fit_calibration(features: Floats, truth: npt.NDArray[np.bool_], weights: Floats, *, rivals: bool = True) -> Floats:
    """a, b and c.

    Args:
        features: (n_pairs, 3) of `with_rival`, from held-out scores; a pair is a row and a label.
        truth: (n_pairs,) whether the row has the label.
        weights: (n_pairs,) how many documents the row stands for.
        rivals: False keeps b at 0.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    features = features * (1, rivals, 1)
    n_yes, n_no = int(truth.sum()), int((~truth).sum())
    # Smoothed as if one more had been seen on either side: finite even where the labels are perfectly parted.
    targets = np.where(truth, (n_yes + 1) / (n_yes + 2), 1 / (n_no + 2))
    shares = weights / weights.sum()

    def loss(parameters: Floats) -> tuple[float, Floats]:
        logits = features @ parameters
        value = shares @ (np.logaddexp(0, logits) - targets * logits)
        return float(value), features.T @ (shares * (expit(logits) - targets))

    fitted: Floats = minimize(loss, np.array([1.0, 0.0, 0.0]), jac=True, method="BFGS").x
    return fitted


def probabilities(scores: Floats, parameters: Floats) -> Floats:
    """(n_rows, n_labels)."""
    features = with_rival(scores)
    # Element by element, not as a matrix product: a question gets the same number alone and among others.
    logits = sum(features[:, :, i] * parameters[i] for i in range(3))
    found: Floats = np.exp(-np.logaddexp(0, -logits))
    return found

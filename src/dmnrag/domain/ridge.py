"""Ridge regression on label indicators: one linear model for each label, solved together.

Minimises sum_i w_i (x_i V_j + c_j - t_ij)^2 + penalty |V_j|^2 for each label j, with t = +1 where row i has the label,
else -1; the intercept is not penalised. All labels share the system's matrix, so conjugate gradients on the
normal equations (Hestenes & Stiefel 1952) solve them at once, in a few dozen products with the sparse rows.
As a classifier: Rifkin, Yeo & Poggio, "Regularized least-squares classification", 2003.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_RESIDUAL = 1e-3
"""Of the right-hand side's length; what remains is far below the noise of the labels."""
_MOST_STEPS = 100
"""Real corpora need 20 to 40."""


def fit_ridge(rows: Any, targets: Floats, weights: Floats, penalty: float) -> tuple[Floats, Floats]:
    """Weights (n_terms, n_labels) and intercepts (n_labels,).

    Args:
        rows: scipy CSR matrix (n_rows, n_terms) of float32.
        targets: (n_rows, n_labels), +1 or -1.
        weights: (n_rows,), above 0.
        penalty: above 0.
    """
    weights = weights[:, None] / weights.sum()
    columns = rows.T.tocsr()
    target_means = (weights * targets).sum(axis=0)  # (n_labels,)
    row_mean = columns @ weights  # (n_terms, 1)

    def scaled_back(residuals: Floats) -> Any:
        """X_centred' W residuals, without making the dense centred rows."""
        weighted = weights * residuals
        return columns @ weighted - row_mean * weighted.sum(axis=0)

    def normal_matrix(solution: Floats) -> Any:
        return scaled_back(rows @ solution - row_mean.T @ solution) + (penalty / len(targets)) * solution

    residual = scaled_back(targets - target_means)
    solution = np.zeros_like(residual)
    direction = residual.copy()
    size = first = (residual * residual).sum(axis=0)
    for _ in range(_MOST_STEPS):
        if (size <= _RESIDUAL**2 * first).all():
            break
        image = normal_matrix(direction)
        step = _ratio(size, (direction * image).sum(axis=0))
        solution += step * direction
        residual -= step * image
        former, size = size, (residual * residual).sum(axis=0)
        direction = residual + _ratio(size, former) * direction
    return solution, target_means - (row_mean.T @ solution)[0]


def _ratio(above: Floats, below: Floats) -> Floats:
    """above / below; 0 where a label is solved already."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)

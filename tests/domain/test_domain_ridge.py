"""Ridge regression by conjugate gradients against the normal equations solved directly."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_matrix

from dmnrag.domain.ridge import fit_ridge


def solved_directly(
    rows: npt.NDArray[np.float64], targets: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], penalty: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(X'WX + P) V = X'WT with a column of ones that is not penalised."""
    weights = weights / weights.sum()
    wide = np.hstack([rows, np.ones((len(rows), 1))])
    penalties = np.diag([penalty / len(rows)] * rows.shape[1] + [0.0])
    solution = np.linalg.solve(wide.T @ (weights[:, None] * wide) + penalties, wide.T @ (weights[:, None] * targets))
    return solution[:-1], solution[-1]


@pytest.mark.parametrize("penalty", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("n_labels", [1, 4])
def test_solution_is_that_of_the_normal_equations(penalty: float, n_labels: int) -> None:
    rng = np.random.default_rng(3)
    rows = rng.random((60, 20)) * (rng.random((60, 20)) < 0.3)
    targets = np.where(rng.random((60, n_labels)) < 0.3, 1.0, -1.0)
    weights = rng.random(60) + 0.1
    wanted, wanted_intercepts = solved_directly(rows, targets, weights, penalty)
    found, intercepts = fit_ridge(
        csr_matrix(rows.astype(np.float32)), targets.astype(np.float32), weights.astype(np.float32), penalty
    )
    assert found.shape == (20, n_labels)
    np.testing.assert_allclose(found, wanted, atol=2e-2)
    np.testing.assert_allclose(intercepts, wanted_intercepts, atol=2e-2)


def test_one_term_by_hand() -> None:
    # x = 0, 1; t = -1, +1; equal weights 1/2; penalty 0.5 of 2 rows: 1/4.
    # centred: x = -.5, .5; sum w x^2 = 1/4, sum w x t = 1/2: v = (1/2) / (1/4 + 1/4) = 1; c = 0 - 1/2 * 1.
    rows = csr_matrix(np.array([[0.0], [1.0]], np.float32))
    targets = np.array([[-1.0], [1.0]], np.float32)
    weights, intercepts = fit_ridge(rows, targets, np.ones(2, np.float32), 0.5)
    assert weights[0, 0] == pytest.approx(1.0)
    assert intercepts[0] == pytest.approx(-0.5)


def test_a_label_that_all_rows_have_is_its_intercept() -> None:
    rows = csr_matrix(np.eye(3, dtype=np.float32))
    targets = np.array([[1.0, 1.0], [1.0, -1.0], [1.0, -1.0]], np.float32)
    weights, intercepts = fit_ridge(rows, targets, np.ones(3, np.float32), 1.0)
    assert weights[:, 0] == pytest.approx([0, 0, 0])
    assert intercepts[0] == pytest.approx(1.0)
    assert weights[0, 1] > 0 > weights[1, 1]

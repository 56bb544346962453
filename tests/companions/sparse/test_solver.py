import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, random

from glocal.companions.sparse.solver import Positives, TextProducts, solve_block


def problem(seed=0, *, n_texts=60, n_features=20, n_labels=3):
    rng = np.random.default_rng(seed)
    features = random(n_texts, n_features, 0.2, format="csr", dtype=np.float32, rng=rng)
    gold = rng.random((n_texts, n_labels)) < 0.2
    rows, columns = np.nonzero(gold)
    return features, gold, Positives(rows.astype(np.int32), columns.astype(np.int32), n_labels)


def objective(features, gold, cost, start, step, bias):
    """The loss of one label as the module's docstring writes it; `bias` goes with x − μ."""
    dense = features.toarray().astype(np.float64)
    scores = (dense - dense.mean(axis=0)) @ step + dense @ start + bias
    errors = np.maximum(0, 1 - np.where(gold, 1, -1) * scores)
    return 0.5 * step @ step + 0.5 * bias**2 + cost * (errors**2).sum()


@pytest.mark.parametrize("named", [False, True])
def test_reaches_the_minimum_of_every_label(named):
    features, gold, positives = problem()
    cost = 2.0
    starts = np.random.default_rng(1).random((20, 3)) if named else np.zeros((20, 3))
    coefficients, biases = solve_block(
        TextProducts(features),
        positives,
        cost=cost,
        iterations=150,
        start_scores=(features @ starts).astype(np.float32) if named else None,
    )
    mean = np.asarray(features.mean(axis=0)).ravel()
    steps = features.T @ coefficients
    for label in range(3):
        start, truth = starts[:, label], gold[:, label]
        loss = objective(
            features, truth, cost, start, steps[:, label], biases[label] + mean @ steps[:, label]
        )
        best = minimize(
            lambda v, start=start, truth=truth: objective(
                features, truth, cost, start, v[:-1], v[-1]
            ),
            np.zeros(21),
            method="BFGS",
        )
        assert loss == pytest.approx(best.fun, rel=1e-3)


def test_few_steps_come_close():
    features, _, positives = problem(n_texts=200)
    products = TextProducts(features)
    far, _ = solve_block(products, positives, cost=1.0, iterations=150)
    near, _ = solve_block(products, positives, cost=1.0, iterations=12)
    assert np.linalg.norm(features.T @ (far - near)) < 0.1 * np.linalg.norm(features.T @ far)


def test_many_more_steps_than_needed_stay_finite():
    features, _, positives = problem(n_texts=5, n_features=4)
    coefficients, biases = solve_block(TextProducts(features), positives, cost=1.0, iterations=400)
    assert np.isfinite(coefficients).all()
    assert np.isfinite(biases).all()


def test_products_with_and_without_shared_features():
    features = csr_matrix(np.array([[1, 2, 0, 0], [0, 3, 4, 0], [0, 0, 0, 5]], dtype=np.float32))
    factor = np.arange(6, dtype=np.float32).reshape(3, 2)
    expected = (features @ features.T).toarray() @ factor
    np.testing.assert_allclose(TextProducts(features)(factor), expected, rtol=1e-6)

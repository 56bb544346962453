"""The tuned threshold against a search over all thresholds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from glocal.ranking.decision import Decision
from glocal.ranking.decision_fit import fit_decision
from glocal.ranking.predictions import Predictions


def made(seed, n=30, k=6, labels=9):
    rng = np.random.default_rng(seed)
    indices = np.stack([rng.permutation(labels)[:k] for _ in range(n)])
    scores = np.round(rng.random((n, k)), 2)
    predictions = Predictions.from_unsorted(indices, scores)
    gold = rng.random((n, labels + 2)) < 0.25
    return predictions, sparse.csr_matrix(gold)


def micro_f1(decision, predictions, gold):
    kept = decision(predictions)
    dense = gold.toarray()
    some = dense.any(1)
    given_ = (kept.indices >= 0)[some].sum()
    rows = np.arange(len(dense))[:, None]
    hits = (dense[rows, np.maximum(kept.indices, 0)] & (kept.indices >= 0))[some].sum()
    return 2 * hits / (given_ + dense[some].sum())


@given(st.integers(0, 500), st.integers(0, 2))
def test_no_other_threshold_is_better(seed, at_least):
    predictions, gold = made(seed)
    found = fit_decision(predictions, gold, at_least=at_least)
    best = micro_f1(found, predictions, gold)
    assert best == pytest.approx(found.micro_f1)
    for threshold in np.linspace(0, 1.01, 102):
        assert micro_f1(Decision(threshold, at_least), predictions, gold) <= best + 1e-12


def test_a_text_gets_at_least_one_tag():
    predictions = Predictions.from_unsorted(
        np.array([[3, 1], [2, 0]]), np.array([[0.2, 0.1], [0.9, 0.8]])
    )
    tags = Decision(0.5)(predictions)
    assert tags.indices.tolist() == [[3, -1], [2, 0]]
    assert Decision(0.5, at_least=0)(predictions).indices.tolist() == [[-1, -1], [2, 0]]


def test_without_a_hit_the_default_holds():
    predictions = Predictions.from_unsorted(np.array([[0]]), np.array([[0.4]]))
    assert fit_decision(predictions, sparse.csr_matrix([[0, 1]])) == Decision()


def test_stored_and_read_again():
    for decision in (Decision(), Decision(0.25, 2, 0.6)):
        assert Decision.from_mapping(decision.to_mapping()) == decision


def test_the_threshold_lies_between_the_last_tag_and_the_next_label():
    def fitted(scores, hits, **options):
        labels = np.arange(len(scores))[None]
        gold = sparse.csr_matrix(np.array([[*hits, 0]]))
        return fit_decision(Predictions.from_unsorted(labels, np.array([scores])), gold, **options)

    found = fitted([0.9, 0.8, 0.3], [1, 1, 0])
    assert found.threshold == pytest.approx(0.55)
    assert (found.at_least, found.micro_f1) == (1, pytest.approx(1.0))
    assert fitted([0.9, 0.8, 0.3], [1, 1, 1]).threshold == pytest.approx(0.15)
    assert fitted([0.9, 0.8, 0.3], [1, 0, 0]).threshold == pytest.approx(0.9)
    assert fitted([0.9, 0.8, 0.3], [1, 0, 0], at_least=0).threshold == pytest.approx(0.85)
    assert fitted([0.9, 0.8, 0.3], [1, 0, 0]).micro_f1 == pytest.approx(1.0)
    # Equal scores are tagged together or not at all.
    tied = fitted([0.9, 0.5, 0.5, 0.5], [1, 1, 0, 0])
    assert tied.threshold > 0.5
    assert tied.micro_f1 == pytest.approx(2 / 3)


def test_neighbouring_scores_keep_the_upper_one():
    above = np.float32(0.5)
    below = np.nextafter(above, np.float32(0))
    found = fit_decision(
        Predictions(np.array([[0, 1, 2]]), np.array([[0.9, above, below]], dtype=np.float32)),
        sparse.csr_matrix([[1, 1, 0]]),
    )
    assert below < found.threshold <= above


def test_by_default_half_and_at_least_one_tag():
    assert Decision() == Decision(0.5, 1, None)
    assert "micro_f1" not in Decision().to_mapping()
    empty = Predictions(np.array([[-1, -1]]), np.full((1, 2), -np.inf, dtype=np.float32))
    assert Decision(0.0, at_least=2)(empty).indices.tolist() == [[-1, -1]]

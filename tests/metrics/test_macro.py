"""Macro averages over labels."""

import numpy as np
import pytest
from napkinxc import metrics as napkin
from scipy import sparse

from glocal.metrics.macro import label_counts, macro_scores
from glocal.metrics.ranking import judge

# Gold: label 0 in both documents, 1 in the first, 2 never, 3 (never predicted) in the second.
GOLD = sparse.csr_matrix(np.array([[1, 1, 0, 0, 0], [1, 0, 0, 1, 0], [0, 0, 0, 0, 0]]))
INDICES = np.array([[0, 2], [2, 0], [1, 4]])


def test_counts_leave_documents_without_gold_out():
    counts = label_counts(judge(INDICES, GOLD), 2)
    assert counts.hits.tolist() == [2, 0, 0, 0, 0]
    assert counts.predicted.tolist() == [2, 0, 2, 0, 0]
    assert counts.gold.tolist() == [2, 1, 0, 1, 0]


def test_over_all_labels_and_over_those_with_gold():
    counts = label_counts(judge(INDICES, GOLD), 2)
    everything, with_gold = macro_scores(counts), macro_scores(counts, with_gold=True)
    assert everything.n_labels == 5
    assert everything.precision == everything.recall == everything.f1 == pytest.approx(1 / 5)
    assert with_gold.n_labels == 3
    assert with_gold.recall == pytest.approx(1 / 3)


def test_f1_is_averaged_after_it_is_taken_per_label():
    # Label 0: P 1/2, R 1, F 2/3; label 1: P 1, R 1/2, F 2/3; of the averages F would be 3/4.
    gold = sparse.csr_matrix(np.array([[1, 1], [0, 1]]))
    scores = macro_scores(label_counts(judge(np.array([[0, 1], [0, -1]]), gold), 2))
    assert scores.precision == scores.recall == pytest.approx(3 / 4)
    assert scores.f1 == pytest.approx(2 / 3)


def test_members_choose_the_labels():
    counts = label_counts(judge(INDICES, GOLD), 1)
    scores = macro_scores(counts, np.array([True, False, False, False, False]))
    assert (scores.precision, scores.recall, scores.n_labels) == (1.0, 0.5, 1)


def test_an_empty_group_has_no_scores():
    scores = macro_scores(label_counts(judge(INDICES, GOLD), 1), np.zeros(5, dtype=bool))
    assert scores.n_labels == 0
    assert np.isnan([scores.precision, scores.recall, scores.f1]).all()


def test_agrees_with_napkinxc():
    rng = np.random.default_rng(0)
    indices = np.stack([rng.permutation(9)[:5] for _ in range(60)])
    gold = [sorted(rng.permutation(9)[: rng.integers(1, 6)].tolist()) for _ in range(60)]
    matrix = sparse.lil_matrix((60, 9))
    for row, labels in enumerate(gold):
        matrix[row, labels] = 1
    judged, predicted = judge(indices, matrix), indices.tolist()
    ours = [macro_scores(label_counts(judged, k)) for k in range(1, 6)]
    for attribute, theirs in {
        "precision": napkin.macro_precision_at_k(gold, predicted),
        "recall": napkin.macro_recall_at_k(gold, predicted),
        "f1": napkin.macro_f1_measure_at_k(gold, predicted),
    }.items():
        values = [getattr(scores, attribute) for scores in ours]
        np.testing.assert_allclose(values, theirs, rtol=0, atol=1e-9)

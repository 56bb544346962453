"""Micro averages at a threshold."""

import numpy as np
import pytest
from napkinxc import metrics as napkin
from scipy import sparse

from glocal.metrics.ranking import judge
from glocal.metrics.threshold import micro_scores

GOLD = sparse.csr_matrix(np.array([[1, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0]]))
INDICES = np.array([[0, 1, 2], [3, 1, -1], [0, 1, 2]])
SCORES = np.array([[0.9, 0.5, 0.4], [0.8, 0.3, -np.inf], [1.0, 1.0, 1.0]], dtype=np.float32)


def test_closed_form_with_the_threshold_included():
    # Given: 0 and 1 for the first document, 3 for the second; one of the three is gold.
    micro = micro_scores(judge(INDICES, GOLD), SCORES, 0.5)
    assert micro.precision == pytest.approx(1 / 3)
    assert micro.recall == pytest.approx(1 / 4)
    assert micro.f1.value == pytest.approx(2 / (3 + 4))
    assert micro.saturated == 0


def test_nothing_above_the_threshold():
    micro = micro_scores(judge(INDICES, GOLD), SCORES, 2.0)
    assert (micro.precision, micro.recall, micro.f1.value) == (0, 0, 0)


def test_documents_whose_slots_all_pass_are_counted():
    judged = judge(INDICES, GOLD)
    # The third document has no gold, and the second an empty slot.
    assert micro_scores(judged, SCORES, 0.1).saturated == 1
    assert micro_scores(judged, SCORES, 0.1, n_labels=4).saturated == 1
    assert micro_scores(judged, SCORES, 0.1, n_labels=3).saturated == 0


def test_empty_slots_never_pass():
    micro = micro_scores(judge(INDICES, GOLD), np.nan_to_num(SCORES, neginf=5.0), 0.95)
    assert micro.f1.denominators.tolist() == [2, 2]


def test_agrees_with_napkinxc():
    rng = np.random.default_rng(1)
    indices = np.stack([rng.permutation(8)[:5] for _ in range(50)])
    scores = np.sort(rng.random((50, 5)).astype(np.float32))[:, ::-1]
    gold = (rng.random((50, 8)) < 0.3).astype(float)
    gold[:, 0] = 1
    given = [row[score >= 0.4].tolist() for row, score in zip(indices, scores, strict=True)]
    expected = napkin.micro_f1_measure([np.flatnonzero(row).tolist() for row in gold], given)
    micro = micro_scores(judge(indices, sparse.csr_matrix(gold)), scores, 0.4)
    assert micro.f1.value == pytest.approx(expected, abs=1e-9)


def test_scores_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="shape"):
        micro_scores(judge(INDICES, GOLD), SCORES[:2], 0.5)


def test_an_empty_list_of_predictions_is_complete():
    micro = micro_scores(judge(np.empty((1, 0), dtype=np.int64), GOLD[:1]), SCORES[:1, :0], 0.5)
    assert (micro.precision, micro.recall, micro.saturated) == (0, 0, 0)
    assert micro.threshold == 0.5
    assert micro.f1.denominators.tolist() == [2.0]
    assert micro.f1.numerators.tolist() == [0.0]


def test_one_tag_and_one_gold_label():
    judged = judge(np.array([[1]]), sparse.csr_matrix([[0, 1]]))
    micro = micro_scores(judged, np.array([[0.7]], dtype=np.float32), 0.5)
    assert (micro.precision, micro.recall, micro.f1.value) == (1, 1, 1)

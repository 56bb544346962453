import numpy as np
import pytest
import scipy.sparse as sp

from glocal.errors import ConfigError
from glocal.predict.shared_task import CUT_OFFS, shared_task_scores
from glocal.ranking.predictions import Predictions


def made(n=6, labels=80, width=60, seed=0):
    random = np.random.default_rng(seed)
    indices = np.argsort(random.random((n, labels)), axis=1)[:, :width]
    scores = np.sort(random.random((n, width)).astype(np.float32))[:, ::-1]
    gold = random.random((n, labels)) < 0.1
    gold[0] = False  # a document without gold
    return Predictions(indices, scores.copy()), gold


def by_hand(found, gold, rows):
    recalls, f1s = [], []
    for row in rows:
        wanted = set(np.flatnonzero(gold[row]))
        best = found.indices[row].tolist()
        recalls.append([len(wanted & set(best[:k])) / len(wanted) for k in CUT_OFFS])
        precision, recall = len(wanted & set(best[:5])) / 5, recalls[-1][0]
        both = precision + recall
        f1s.append(2 * precision * recall / both if both else 0.0)
    return np.mean(recalls), np.mean(f1s)


def test_scores_by_hand():
    found, gold = made()
    groups = ["book", "book", "article", "article", "book", "report"]
    rows = shared_task_scores(found, sp.csr_matrix(gold), groups)
    assert [row.group for row in rows] == ["all", "article", "book", "report"]
    assert [row.n_documents for row in rows] == [5, 2, 2, 1]
    for row, places in zip(rows, ([1, 2, 3, 4, 5], [2, 3], [1, 4], [5]), strict=True):
        assert (row.mean_recall, row.f1) == pytest.approx(by_hand(found, gold, places))


def test_ranks_beyond_the_predictions_are_misses():
    found, gold = made(width=8)
    (row,) = shared_task_scores(found, sp.csr_matrix(gold))
    assert row.recall[50] == row.recall[10]


def test_one_group_per_document():
    found, gold = made()
    with pytest.raises(ConfigError, match="2 groups for 6 documents"):
        shared_task_scores(found, sp.csr_matrix(gold), ["a", "b"])

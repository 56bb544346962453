import numpy as np
import pytest

from glocal.data.corpus import Corpus
from glocal.errors import ConfigError, ModelError
from glocal.predict import ensemble
from glocal.predict.ensemble import ensemble_labels, ensemble_predict
from glocal.ranking.predictions import Predictions
from glocal.vocabulary.label_space import LabelSpace

N_LABELS = 40


def label_space(ids):
    n = len(ids)
    return LabelSpace(list(ids), list(ids), [""] * n, [()] * n, np.ones(n, np.int64), n)


class TableModel:
    """Scores from a table (texts, labels); a text is its row number."""

    alive = 0
    most_alive = 0
    loads = 0

    def __init__(self, table):
        self.table = table
        TableModel.alive += 1
        TableModel.loads += 1
        TableModel.most_alive = max(TableModel.most_alive, TableModel.alive)

    def __del__(self):
        TableModel.alive -= 1

    def predict(self, texts, *, k, candidates=None, calibrated=True):
        rows = self.table[[int(text) for text in texts]]
        if candidates is None:
            candidates = np.tile(np.arange(rows.shape[1]), (len(rows), 1))
        scores = np.take_along_axis(rows, candidates.clip(min=0), axis=1)
        return Predictions.from_unsorted(candidates, scores, k)


@pytest.fixture
def tables(monkeypatch, tmp_path):
    """Three models' score tables; loading path i gives model i."""
    random = np.random.default_rng(0)
    # Few distinct values, so that there are exact ties.
    made = {
        f"m{i}": random.integers(0, 50, (30, N_LABELS)).astype(np.float32) / 64 for i in range(3)
    }
    ids = [f"l{i:02d}" for i in range(N_LABELS)]
    monkeypatch.setattr(ensemble, "read_labels", lambda path: label_space(ids))
    monkeypatch.setattr(
        "glocal.predict.predictor.Predictor.load", lambda path, **_: TableModel(made[path])
    )
    TableModel.most_alive = TableModel.loads = 0
    return made


def corpus_of(n):
    return Corpus.from_texts([str(i) for i in range(n)])


def expected_top(tables, pool, k, n=30):
    """The naive way: each text on its own, over dense tables."""
    indices, scores = [], []
    for row in range(n):
        union = set()
        for table in tables.values():
            union.update(np.lexsort((np.arange(N_LABELS), -table[row]))[:pool].tolist())
        mean = {label: np.mean([t[row, label] for t in tables.values()]) for label in union}
        best = sorted(mean, key=lambda label: (-mean[label], label))[:k]
        indices.append(best)
        scores.append([mean[label] for label in best])
    return np.array(indices), np.array(scores)


@pytest.mark.parametrize(("pool", "k"), [(5, 3), (10, 10), (3, 8), (100, 40)])
def test_agrees_with_the_naive_way(tables, pool, k, monkeypatch):
    monkeypatch.setattr(ensemble, "CHUNK", 7)
    found = ensemble_predict(list(tables), corpus_of(30), k=k, pool=pool)
    indices, scores = expected_top(tables, max(pool, k), k)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.scores, scores, atol=1e-6)


def test_label_missing_from_one_list_is_not_zero(tables):
    for table in tables.values():
        table[:] = 0.25
    tables["m0"][:, 7] = 1.0  # only the first model has it among its best
    found = ensemble_predict(list(tables), corpus_of(4), k=1, pool=1)
    assert found.indices[:, 0].tolist() == [7] * 4
    np.testing.assert_allclose(found.scores[:, 0], (1.0 + 0.25 + 0.25) / 3)


def test_one_model_alone_is_itself(tables):
    found = ensemble_predict(["m1"], corpus_of(30), k=5)
    alone = TableModel(tables["m1"]).predict(corpus_of(30).texts(), k=5)
    np.testing.assert_array_equal(found.indices, alone.indices)


def test_one_model_in_memory_at_a_time(tables):
    ensemble_predict(list(tables), corpus_of(10), k=2)
    assert TableModel.loads == 6
    assert TableModel.most_alive == 1


def test_progress_counts_both_passes(tables):
    seen = []
    ensemble_predict(list(tables), corpus_of(10), k=2, progress=lambda *a: seen.append(a))
    assert seen[-1] == (60, 60)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_no_texts(tables):
    found = ensemble_predict(list(tables), corpus_of(0), k=2)
    assert found.indices.shape == (0, 2)


def test_k_out_of_range(tables):
    with pytest.raises(ConfigError, match="40"):
        ensemble_predict(list(tables), corpus_of(3), k=41)


def test_no_models():
    with pytest.raises(ConfigError, match="at least one model"):
        ensemble_labels([])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (["a", "b"], "1 known only to one \\(such as c\\)"),
        (["a", "b", "c", "d"], "1 known only to two \\(such as d\\)"),
        (["b", "a", "c"], "another order"),
    ],
)
def test_difference_of_label_spaces_is_named(monkeypatch, other, words):
    spaces = {"one": label_space("abc"), "two": label_space(other)}
    monkeypatch.setattr(ensemble, "read_labels", spaces.__getitem__)
    with pytest.raises(ModelError, match=words):
        ensemble_labels(["one", "two"])

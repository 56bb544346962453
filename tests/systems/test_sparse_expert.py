"""The sparse model as an expert: its scores, its part in the combination, a model of it alone."""

import numpy as np
import pytest
import torch

from glocal.companions.companion import SPARSE, SPARSE_ODDS
from glocal.companions.sparse.sparse_companion import SparseCompanion
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.encoders.encoder import Features
from glocal.errors import ConfigError
from glocal.experts.scattered import at_labels
from glocal.experts.sparse import SparseExpert
from glocal.predict.predictor import Predictor
from glocal.ranking.combination import Combination
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable
from tests.tiny import build_system, taught, tiny_corpus, tiny_recipe
from tests.train.runs import train

TRAIN, DEV = tiny_corpus(), tiny_corpus(24, seed=1)
SPARSE_TEXTS = ("sparse.min_words=1", "sparse.min_pairs=1")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))


def alone(*overrides):
    return tiny_recipe("fast", "encoder.name=none", *SPARSE_TEXTS, *overrides)


def dense_odds(known, odds, n_labels):
    """Row by row: the log-odds given, and elsewhere the lowest of them."""
    table = np.repeat(odds.min(1, keepdims=True), n_labels, axis=1)
    for row, (labels, values) in enumerate(zip(known, odds, strict=True)):
        for label, value in zip(labels, values, strict=True):
            if label >= 0:
                table[row, label] = value
    return table


def test_log_odds_at_any_labels():
    known = np.array([[4, 1, -1], [0, 5, 3]])
    odds = np.array([[2.0, 0.5, -3.0], [1.0, -1.0, -2.0]], dtype=np.float32)
    expected = dense_odds(known, odds, 6)
    expert = SparseExpert(name="S", n_labels=6)
    extra = {SPARSE: torch.from_numpy(known), SPARSE_ODDS: torch.from_numpy(odds)}
    state = expert.prepare(Features({}, None, companion_features=extra))
    for chunk in (slice(0, 6), slice(2, 5), slice(5, 6)):
        assert np.allclose(expert.logits(state, chunk).numpy(), expected[:, chunk])
    candidates = torch.tensor([[0, 4], [3, 5]])
    found = expert.logits(state, candidates).numpy()
    assert np.allclose(found, np.take_along_axis(expected, candidates.numpy(), axis=1))


def test_labels_without_training_texts_have_a_lowest_of_their_own():
    known = torch.tensor([[5, 3, 4, 1], [-1, 3, 5, 0]])
    odds = torch.tensor([[-6.0, -8.0, 2.0, -3.0], [1.0, -9.0, 1.0, -2.0]])
    unseen = torch.tensor([False, False, True, True, False, True])
    expert = SparseExpert(name="S", n_labels=6, unseen=unseen)
    state = expert.prepare(
        Features({}, None, companion_features={SPARSE: known, SPARSE_ODDS: odds})
    )
    expected = torch.tensor([[-3.0, -3, -8, -8, 2, -6], [-2.0, -2, -9, -9, -2, 1]])
    assert torch.equal(expert.logits(state, slice(0, 6)), expected)
    assert torch.equal(
        expert.logits(state, torch.tensor([[2, 0], [5, 1]])),
        expected.gather(1, torch.tensor([[2, 0], [5, 1]])),
    )


def test_rows_hold_the_best_labels_without_training_texts_too():
    table = LabelTable(["cat", "hat", "zoo"], ["cat", "cats", "zoo"])
    labels = LabelSpace.build(TRAIN, table=table, score_unseen=True)
    model = SparseModel.fit(TRAIN, labels, alone().sparse)
    rows = SparseCompanion(model, labels.counts).features(DEV)
    width = len(labels) + 2
    assert rows[SPARSE].shape == (len(DEV), width)
    assert (rows[SPARSE][:, :2] == -1).all(), "with so few labels all are there already"
    assert (np.sort(rows[SPARSE][:, 2:]) == np.arange(len(labels))).all()


def test_rows_of_some_labels_alone_leave_out_the_others():
    labels = LabelSpace.build(TRAIN)
    companion = SparseCompanion(SparseModel.fit(TRAIN, labels, alone().sparse), labels.counts)
    allowed = np.zeros(len(labels), dtype=bool)
    allowed[[2, 5]] = True
    rows = companion.features_for_texts(["a red cat"], allowed=allowed)
    every = companion.features_for_texts(["a red cat"])
    assert set(rows[SPARSE][0]) == {2, 5, -1}
    for label in (2, 5):
        mine, theirs = (r[SPARSE_ODDS][r[SPARSE] == label] for r in (rows, every))
        assert np.array_equal(mine, theirs)


def test_spread_and_look_up_agree():
    random = np.random.default_rng(0)
    known = torch.from_numpy(np.stack([random.permutation(9)[:4] for _ in range(5)]))
    known[:, 3] = -1
    values = torch.randn(5, 4)
    labels = torch.arange(9)
    inside, found = at_labels(known, values, labels)
    again, looked = at_labels(known, values, labels.expand(5, -1))
    assert torch.equal(inside, again)
    assert torch.allclose(found * inside, looked * again)
    assert not found[~inside].any()


def test_rows_are_the_models_best_labels():
    labels = LabelSpace.build(TRAIN)
    recipe = alone()
    companion = SparseCompanion(SparseModel.fit(TRAIN, labels, recipe.sparse), labels.counts)
    rows = companion.features(DEV)
    best, probabilities = companion.model.topk(DEV.texts(), rows[SPARSE].shape[1])
    assert np.array_equal(rows[SPARSE], best)
    assert np.allclose(1 / (1 + np.exp(-rows[SPARSE_ODDS])), probabilities, atol=1e-6)
    few = companion.features_for_texts(DEV.texts()[:3])
    assert np.array_equal(few[SPARSE], rows[SPARSE][:3])


def test_a_model_of_it_alone_needs_no_encoder(tmp_path):
    train(alone(), tmp_path / "m", corpus=TRAIN, dev=DEV)
    assert not (tmp_path / "m" / "tokenizer.json").exists()
    predictor = Predictor.load(tmp_path / "m", device="cpu")
    found = predictor.predict(DEV.texts(), k=3, per_expert=True).experts["S"]
    (companion,) = predictor.companions
    best, probabilities = companion.model.topk(DEV.texts(), 3)
    assert np.array_equal(found.indices, best)
    assert np.allclose(found.scores, probabilities, atol=1e-6)
    (tag, *_) = predictor.explain(DEV.texts()[0], k=2)
    span = tag.spans_of("S")[0]
    assert DEV.texts()[0][span.start : span.end] == span.text
    assert span.weight > 0


def test_alone_it_ranks_none_but_its_own_best_however_rare_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr("glocal.companions.sparse.sparse_companion._BEST", 4)
    train(alone(), tmp_path / "m", corpus=TRAIN, dev=DEV)
    predictor = Predictor.load(tmp_path / "m", device="cpu")
    predictor.system.combination = Combination({"S": 0.1}, 0.0, -9.0)
    own = predictor.companions.features(DEV)[SPARSE]
    found = predictor.predict_corpus(DEV, k=4).indices
    assert np.array_equal(np.sort(found), np.sort(own))
    assert predictor.predict_corpus(DEV, k=6).indices.shape == (len(DEV), 6)
    every = predictor.predict_corpus(DEV, k=len(predictor.labels))
    assert (every.indices[:, : found.shape[1]] == found).all()
    assert (np.sort(every.indices, axis=1) == np.arange(len(predictor.labels))).all()
    counts = np.asarray(predictor.labels.counts)[every.indices[:, 4:]]
    assert (np.diff(counts, axis=1) <= 0).all()  # the others follow by their frequency


@pytest.mark.parametrize("mode", ["full", "shortlist"])
def test_it_joins_the_other_experts(tmp_path, mode):
    recipe = tiny_recipe(
        "balanced", *SPARSE_TEXTS, f"candidates.mode={mode}", "candidates.predict=4"
    )
    result = train(recipe, tmp_path / "m", corpus=TRAIN, dev=DEV)
    predictor = Predictor.load(tmp_path / "m", device="cpu")
    assert set(predictor.system.combination.weights) == {"D-last", "A-last", "S"}
    assert set(result.metrics["dev_experts"]) == {"D-last", "A-last", "S"}
    found = predictor.predict(DEV.texts(), k=4, per_expert=True)
    for part in (found, *found.experts.values()):
        for row in part.indices:
            assert len(set(row.tolist())) == len(row)
    own = predictor.predict(DEV.texts(), k=4, candidates=found.indices)
    assert np.array_equal(own.indices, found.indices)


def test_shortlists_hold_what_only_another_expert_knows():
    recipe = tiny_recipe("balanced", "candidates.mode=shortlist", "candidates.predict=2")
    labels = LabelSpace.build(TRAIN)
    statistics, vectors, _ = taught(recipe, TRAIN, labels)
    system, _ = build_system(recipe, statistics, vectors=vectors)
    proposed = torch.tensor([[3, 1], [0, 2]])
    states = {"S": (torch.tensor([[1, 4, 5], [6, 0, -1]]), torch.zeros(2, 3))}
    states |= {"D-last": (), "A-last": ()}
    found = system._with_suggestions(proposed, states).tolist()
    assert [sorted(set(row) - {-1}) for row in found] == [[1, 3, 4], [0, 2, 6]]
    assert all(len(set(row) - {-1}) == len([x for x in row if x >= 0]) for row in found)


def test_the_sparse_model_is_fitted_once_for_all_seeds(tmp_path, monkeypatch):
    fitted = []
    original = SparseModel.fit.__func__
    monkeypatch.setattr(
        SparseModel, "fit", classmethod(lambda *a, **k: fitted.append(1) or original(*a, **k))
    )
    train(alone(), tmp_path / "a", corpus=TRAIN)
    train(alone(), tmp_path / "b", corpus=TRAIN)
    assert len(fitted) == 1


def test_other_experts_need_an_encoder(tmp_path):
    with pytest.raises(ConfigError, match="none, but the experts A-1 read an encoder"):
        train(
            tiny_recipe("fast", "encoder.name=none", 'experts=["S", "A-1"]'),
            tmp_path / "m",
            corpus=TRAIN,
        )


def test_a_text_without_a_known_word_gets_the_training_prior(tmp_path):
    train(alone(), tmp_path / "m", corpus=TRAIN, dev=DEV)
    predictor = Predictor.load(tmp_path / "m", device="cpu")
    predictor.system.combination = Combination({"S": 1.0}, 0.0, 0.0)
    counts = np.asarray(predictor.labels.counts)
    found = predictor.predict(["zzzz qqqq", ""], k=5)
    assert (np.diff(counts[found.indices], axis=1) <= 0).all()
    assert counts[found.indices[0, 0]] == counts.max()
    rarest = predictor.labels.ids[int(counts.argmin())]
    assert predictor.predict(["zzzz qqqq"], k=1, only=[rarest]).label_ids(0) == [rarest]

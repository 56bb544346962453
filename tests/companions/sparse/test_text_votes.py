"""Votes of similar training texts, against a plain computation and in whole models."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix, identity

from glocal.companions.sparse import platt, text_votes
from glocal.companions.sparse import sparse_training as training_module
from glocal.companions.sparse.device_scorer import DeviceScorer
from glocal.companions.sparse.new_words import spread_scorer, with_words
from glocal.companions.sparse.platt import LabelEvidence, calibrate
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.companions.sparse.sparse_scoring import LinearScorer
from glocal.companions.sparse.text_votes import TextVotes
from glocal.errors import ModelError
from tests.companions.sparse.made_up import SMALL, corpus, explained, log_odds

N_WORDS, N_FEATURES, N_TEXTS, N_LABELS = 30, 40, 200, 12


def matrix(n_rows, seed):
    rng = np.random.default_rng(seed)
    values = rng.random((n_rows, N_FEATURES)) * (rng.random((n_rows, N_FEATURES)) < 0.2)
    return csr_matrix(values.astype(np.float32))


def made_up_labels(seed=1):
    rng = np.random.default_rng(seed)
    return csr_matrix((rng.random((N_TEXTS, N_LABELS)) < 0.2).astype(np.float32))


def plain_gains(known, labels, text, slope):
    """The gains of all labels, written out."""
    words, own = known.toarray()[:, :N_WORDS], text.toarray()[0, :N_WORDS]
    length = np.linalg.norm(words, axis=1) * np.linalg.norm(own)
    similarity = words @ own / np.maximum(length, 1e-12)
    order = np.argsort(-similarity, kind="stable")[: text_votes.NEIGHBOURS]
    order = order[similarity[order] > 0.1]
    votes = labels.toarray()[order].T @ similarity[order] ** 4
    return slope * np.log((votes + 0.001) / 0.001)


@pytest.mark.parametrize("neighbours", [1, 7, 50, 1000])
def test_gains_are_those_of_the_nearest_texts(monkeypatch, neighbours):
    monkeypatch.setattr(text_votes, "NEIGHBOURS", neighbours)
    known, labels, texts = matrix(N_TEXTS, 0), made_up_labels(), matrix(20, 2)
    votes = replace(TextVotes.of(known, labels, N_WORDS), slope=0.7)
    scores = np.zeros((20, N_LABELS), np.float32)
    for row, (voted, gains) in enumerate(votes.gains(texts)):
        scores[row, voted] += gains
    expected = [plain_gains(known, labels, texts[row], 0.7) for row in range(20)]
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert scores.max() > 1


def test_shares_of_features_sum_to_the_gain():
    known, labels, text = matrix(N_TEXTS, 0), made_up_labels(), matrix(1, 3)
    votes = replace(TextVotes.of(known, labels, N_WORDS), slope=0.7)
    expected = plain_gains(known, labels, text, 0.7)
    for label in range(N_LABELS):
        shares = votes.shares(text, label)
        assert shares.sum() == pytest.approx(expected[label], abs=1e-4)
        assert not shares[text.indices >= N_WORDS].any()
        assert (shares >= 0).all()


def test_a_text_without_words_gains_nothing():
    votes = TextVotes.of(matrix(N_TEXTS, 0), made_up_labels(), N_WORDS)
    nothing = csr_matrix((1, N_FEATURES), dtype=np.float32)
    ((labels, gains),) = votes.gains(nothing)
    assert len(labels) == len(gains) == 0
    assert votes.shares(nothing, 3).shape == (0,)


def repeated_texts():
    """Texts that come in pairs with the same two labels, drawn at random: nothing linear."""
    rng = np.random.default_rng(0)
    once = matrix(400, 5)
    gold = np.zeros((400, N_LABELS), np.float32)
    for row in gold:
        row[rng.choice(N_LABELS, 2, replace=False)] = 1
    return once, csr_matrix(gold)


def test_votes_are_used_where_they_help_and_nowhere_else():
    texts, gold = repeated_texts()
    scorer = LinearScorer(
        csr_matrix((N_FEATURES, N_LABELS), dtype=np.float32), np.zeros(N_LABELS, np.float32)
    )
    counts, profiles = np.full(N_LABELS, 60), csr_matrix((N_FEATURES, N_LABELS), dtype=np.float32)
    known = TextVotes.of(texts, gold, N_WORDS)
    strange = TextVotes.of(matrix(400, 9), gold, N_WORDS)
    found = {}
    for name, votes in {"repeated": known, "strange": strange}.items():
        evidence = LabelEvidence(profiles, counts, votes)
        found[name], _ = calibrate(scorer, texts, gold, evidence=evidence, threads=1)
    assert found["strange"].votes is None
    assert found["repeated"].votes.slope > 0.1
    best = np.argsort(-found["repeated"].scores(texts), axis=1)[:, :2]
    assert np.take_along_axis(gold.toarray(), best, axis=1).mean() > 0.95


@pytest.fixture(scope="module")
def voting(train, labels):
    """A model in which similar texts vote."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_module, "DIRECT_LABELS", 3)
        patch.setattr(platt, "VOTES_HELP", 0.0)
        return SparseModel.fit(train, labels, replace(SMALL, negatives="random", beam=1))


def test_a_saved_model_votes_the_same(voting, tmp_path):
    texts = list(corpus(20, seed=3).texts())
    voting.save(tmp_path / "sparse")
    loaded = SparseModel.load(tmp_path / "sparse")
    assert loaded.scorer.votes is not None
    for one, other in zip(loaded.topk(texts, 5), voting.topk(texts, 5), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_explanation_sums_to_the_log_odds(voting):
    text = "Title Sign4a\nsign4a, sign4b and common5, nothing else"
    for label in range(voting.n_labels):
        assert explained(voting, text, label) == pytest.approx(
            log_odds(voting, text, label), abs=1e-4
        )


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("votes-texts-indices", lambda a: np.where(np.arange(len(a)) == 3, 10**9, a)),
        ("votes-labels-indices", lambda a: np.where(np.arange(len(a)) == 3, -5, a)),
        ("votes-labels-indptr", lambda a: a[:-1]),
        ("votes-texts-data", lambda a: np.full_like(a, np.nan)),
    ],
)
def test_damaged_votes_are_refused(voting, tmp_path, file, damage):
    voting.save(tmp_path / "sparse")
    path = tmp_path / "sparse" / f"{file}.npy"
    array = np.load(path)
    np.save(path, damage(array).astype(array.dtype))
    with pytest.raises(ModelError, match="not a readable sparse model"):
        SparseModel.load(tmp_path / "sparse")


def test_scores_on_a_device_have_the_votes(voting):
    features = voting.vectoriser.transform(list(corpus(20, seed=5).texts()))
    scores = DeviceScorer(voting.scorer, "cpu").scores(features)
    np.testing.assert_allclose(scores.numpy(), voting.scorer.scores(features), atol=1e-4)


def test_more_labels_and_more_words_change_no_votes(voting):
    texts = list(corpus(20, seed=4).texts())
    features = voting.vectoriser.transform(texts)
    before = voting.scorer.scores(features)
    more = LinearScorer(
        csr_matrix((features.shape[1], 2), dtype=np.float32), np.zeros(2, np.float32)
    )
    joined = voting.scorer.joined(more)
    np.testing.assert_array_equal(joined.scores(features)[:, :-2], before)
    wider, places = with_words(voting.vectoriser, ["a zebra", "the zebra"], n_texts=240)
    spread = spread_scorer(voting.scorer, places, wider.n_features, n_words=wider.n_words)
    np.testing.assert_array_equal(spread.scores(wider.transform(texts)), before)


def test_merged_labels_have_the_votes_of_both():
    votes = TextVotes.of(matrix(N_TEXTS, 0), made_up_labels(), N_WORDS)
    columns = identity(N_LABELS, format="csr")[:, 1:].tolil()
    columns[0, 0] = 0.5
    merged = votes.with_labels(columns.tocsr()).labels.toarray()
    own = votes.labels.toarray()
    np.testing.assert_array_equal(merged[:, 0], np.maximum(own[:, 0], own[:, 1]))
    np.testing.assert_array_equal(merged[:, 1:], own[:, 2:])

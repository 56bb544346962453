"""The ranker of words in numpy gives what the torch system with the same expert gives."""

from types import SimpleNamespace

import numpy as np
import pytest

from glocal.companions.companion import SPARSE, SPARSE_ODDS
from glocal.data.batches import Collator
from glocal.data.tokens import TokenStore
from glocal.encoders.word_tokenizer import NoTokenizer
from glocal.ranking import words_ranker
from glocal.ranking.combination import Combination
from glocal.ranking.document_ranker import RankRequest
from glocal.ranking.words_ranker import WordsRanker, log_odds_at
from glocal.systems.system import LabelStatistics
from tests.tiny import build_system, load_recipe

N, L, M = 7, 40, 12


@pytest.fixture(scope="module")
def counts():
    return np.random.default_rng(0).integers(0, 6, L)


@pytest.fixture(scope="module")
def documents(counts):
    """Suggested labels with log-odds; some places are empty."""
    random = np.random.default_rng(1)
    labels = np.stack([random.permutation(L)[:M] for _ in range(N)]).astype(np.int32)
    odds = -np.sort(random.gamma(2.0, 2.0, (N, M)), axis=1).astype(np.float32)
    labels[2, 5:], odds[2, 5:] = -1, odds[2, 4]
    tokenizer = NoTokenizer()
    tokens = TokenStore.in_memory(tokenizer.encode_batch([""] * N, 1))
    features = {SPARSE: labels, SPARSE_ODDS: odds}
    return Collator(tokens, tokenizer.facts, n_labels=L, companion_features=features)


@pytest.fixture(scope="module", params=[Combination(), Combination({"S": 0.7}, -1.5, -0.3)])
def rankers(request, counts):
    system, _ = build_system(load_recipe("fast"), LabelStatistics(counts, 100))
    system.eval()
    words = WordsRanker(counts)
    system.combination = words.combination = request.param
    return system, words


def same(left, right):
    np.testing.assert_array_equal(left.indices, right.indices)
    np.testing.assert_allclose(left.scores, right.scores, atol=1e-6)


def by_label(found):
    order = np.argsort(found.indices, axis=1)
    parts = (np.take_along_axis(part, order, axis=1) for part in (found.indices, found.scores))
    return SimpleNamespace(**dict(zip(("indices", "scores"), parts, strict=True)))


@pytest.mark.parametrize("k", [1, 5, M, M + 3, L])
@pytest.mark.parametrize("restricted", [False, True])
def test_top_labels(rankers, documents, counts, k, restricted):
    allowed = np.random.default_rng(2).random(L) < 0.5 if restricted else None
    options = {"allowed": allowed, "experts": ["S"], "mean": True}
    positions = np.array([3, 0, 2, 6])
    with rankers[0].computing():
        request = RankRequest(k, **options)
        expected, found = (r.rank_documents(documents, positions, request) for r in rankers)
    same(found, expected)
    same(found.experts["S"], expected.experts["S"])
    same(found.mean, expected.mean)


def test_given_candidates(rankers, documents):
    candidates = np.stack([np.random.default_rng(row).permutation(L)[:9] for row in range(N)])
    candidates[1, 4:] = -1
    everyone = np.arange(N)
    with rankers[0].computing():
        expected, found = (
            r.rank_documents(documents, everyone, RankRequest(9, candidates, experts=["S"]))
            for r in rankers
        )
    # In the order of labels: many have the log-odds of the last suggestion, and so nearly tie.
    same(by_label(found), by_label(expected))
    same(by_label(found.experts["S"]), by_label(expected.experts["S"]))


def odds_of(labels, *, best, odds, unseen):
    arrays = np.array(best), np.array(odds, np.float32), np.array(labels), np.array(unseen)
    return log_odds_at(*arrays).tolist()


def test_labels_outside_the_best_get_the_lowest_odds_of_their_kind():
    unseen = [True, False, False, True]
    options = {"best": [[1, 0, -1]], "odds": [[2.0, -3.0, -1.0]], "unseen": unseen}
    # 2 was trained: no lower than the trained ones and empty places; 3 has the lowest of all.
    assert odds_of([[0, 1, 2, 3]], **options) == [[-3.0, 2.0, -1.0, -3.0]]


def test_among_labels_without_training_texts_trained_ones_are_ahead():
    options = {"best": [[0, 3]], "odds": [[-1.0, -3.0]], "unseen": [True, False, False, True]}
    assert odds_of([[1, 3, 0]], **options) == [[-1.0, -3.0, -1.0]]


def test_a_model_without_labels_or_texts():
    assert WordsRanker(np.array([], dtype=np.int64)).n_labels == 0
    share = WordsRanker(np.array([0, 0, 3]))._share
    np.testing.assert_allclose(share, [0.2, 0.2, 0.8])
    np.testing.assert_allclose(WordsRanker(np.array([0, 0]))._share, [0.5, 0.5])


def test_the_first_label_may_lack_training_texts_or_be_added_to_a_list():
    unseen = [True, False, False]
    options = {"best": [[1, -1]], "odds": [[2.0, -1.0]], "unseen": unseen}
    assert odds_of([[0, 1, 2]], **options) == [[-1.0, 2.0, -1.0]]
    options = {"best": [[0, 1]], "odds": [[-3.0, -4.0]], "unseen": unseen}
    assert odds_of([[0, 2]], **options) == [[-3.0, -4.0]]
    options = {"best": [[1, 0]], "odds": [[-1.0, -4.0]], "unseen": unseen}
    assert odds_of([[0, 2]], **options) == [[-4.0, -1.0]]
    nothing = np.zeros((0, 2), np.int64), np.zeros((0, 2), np.float32), np.zeros((0, 3), np.int64)
    assert log_odds_at(*nothing, np.array(unseen)).shape == (0, 3)


@pytest.mark.parametrize(("cells", "rows"), [(2 * L + 1, [2, 2, 2, 1]), (1, [1] * N)])
def test_labels_outside_a_list_are_looked_up_for_a_few_documents_at_a_time(
    documents, counts, monkeypatch, cells, rows
):
    assert words_ranker._CELLS == 2**22
    ranker, request = WordsRanker(counts), RankRequest(L)
    expected = ranker.rank_documents(documents, np.arange(N), request)
    monkeypatch.setattr(words_ranker, "_CELLS", cells)
    seen, outside = [], ranker._outside
    monkeypatch.setattr(
        ranker,
        "_outside",
        lambda listed, allowed: seen.append(len(listed)) or outside(listed, allowed),
    )
    same(ranker.rank_documents(documents, np.arange(N), request), expected)
    assert seen == rows


def test_a_text_without_suggestions_gets_the_most_frequent_labels(counts):
    tokenizer = NoTokenizer()
    tokens = TokenStore.in_memory(tokenizer.encode_batch([""], 1))
    none = np.full((1, M), -1, np.int32), np.full((1, M), -5.0, np.float32)
    features = dict(zip((SPARSE, SPARSE_ODDS), none, strict=True))
    empty = Collator(tokens, tokenizer.facts, n_labels=L, companion_features=features)
    found = WordsRanker(counts).rank_documents(empty, np.arange(1), RankRequest(L))
    order = np.lexsort((np.arange(L), -counts))
    assert found.indices.tolist() == [order.tolist()]
    np.testing.assert_allclose(found.scores[0], (counts[order] + 1) / (counts.max() + 2))

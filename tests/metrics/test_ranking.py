"""Ranking metrics: by hand, against napkinxc, and by their properties."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from napkinxc import metrics as napkin
from scipy import sparse

from glocal.metrics.gold import best_weights, hit_matrix, prepare_gold
from glocal.metrics.propensity import inverse_propensity, psndcg_at_k, psp_at_k, weigh
from glocal.metrics.ranking import (
    discounts,
    f1_at_k,
    ideal_discounts,
    judge,
    ndcg_at_k,
    precision_at_k,
    r_precision_at_k,
    recall_at_k,
)

RANKING = [precision_at_k, recall_at_k, r_precision_at_k, ndcg_at_k]
K = 5


def csr(rows, n_columns):
    """Gold labels, given as one list for each document, as a sparse matrix."""
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.array([label for row in rows for label in row], dtype=np.int64)
    return sparse.csr_matrix((np.ones(len(indices)), indices, indptr), (len(rows), n_columns))


def random_case(seed, *, n=40, n_labels=12, unseen=0, empty_slots=False, min_gold=1):
    """Random rankings of width K and gold labels."""
    rng = np.random.default_rng(seed)
    indices = np.stack([rng.permutation(n_labels)[:K] for _ in range(n)]).astype(np.int64)
    if empty_slots:
        indices[np.arange(K) >= rng.integers(0, K + 1, size=n)[:, None]] = -1
    n_columns = n_labels + unseen
    sizes = rng.integers(min_gold, 9, size=n)
    return indices, [sorted(rng.permutation(n_columns)[:size].tolist()) for size in sizes]


def rankings(indices):
    return [[int(label) for label in row if label >= 0] for row in indices]


# --- by hand ---------------------------------------------------------------------------------


def test_closed_form():
    # Document 0: hits at ranks 1 and 3 of gold {0, 2, 7}; document 1: no hit, one gold label.
    judged = judge(np.array([[0, 1, 2], [3, 4, 5]]), csr([[0, 2, 7], [8]], 9))
    assert judged.hits.tolist() == [[True, False, True], [False, False, False]]
    assert precision_at_k(judged, 1).numerators.tolist() == [1, 0]
    assert precision_at_k(judged, 3).value == pytest.approx((2 / 3 + 0) / 2)
    assert recall_at_k(judged, 3).value == pytest.approx((2 / 3 + 0) / 2)
    assert r_precision_at_k(judged, 2).value == pytest.approx((1 / 2 + 0) / 2)
    assert f1_at_k(judged, 2).numerators.tolist() == pytest.approx([2 / 5, 0])
    assert f1_at_k(judged, 5).value == pytest.approx((4 / 8 + 0) / 2)  # two empty slots
    gain, ideal = 1 + 1 / np.log2(4), 1 + 1 / np.log2(3) + 1 / np.log2(4)
    assert ndcg_at_k(judged, 3).value == pytest.approx(gain / ideal / 2)


def test_r_precision_is_not_bounded_by_the_number_of_gold_labels():
    judged = judge(np.array([[4, 0, 1, 2, 3]]), csr([[4, 0]], 5))
    assert precision_at_k(judged, 5).value == pytest.approx(2 / 5)
    assert r_precision_at_k(judged, 5).value == 1.0


def test_documents_without_gold_are_left_out_and_counted():
    judged = judge(np.array([[0], [1], [2]]), csr([[0], [], [1]], 3))
    assert judged.gold.left_out == 1
    assert judged.gold.kept.tolist() == [0, 2]
    assert precision_at_k(judged, 1).numerators.tolist() == [1, 0]


def test_gold_outside_the_label_space_counts_as_a_miss():
    indices = np.array([[0, 1]])
    inside, outside = judge(indices, csr([[0]], 2)), judge(indices, csr([[0, 2, 3]], 4))
    assert recall_at_k(inside, 2).value == 1.0
    assert recall_at_k(outside, 2).value == pytest.approx(1 / 3)
    assert ndcg_at_k(outside, 2).value < ndcg_at_k(inside, 2).value == 1.0
    weights = inverse_propensity([5, 5], 100, n_columns=4)
    assert psp_at_k(weigh(outside, weights, depth=2), 2).value < 0.5


def test_unseen_gold_weighs_as_a_label_without_training_texts():
    weights = inverse_propensity([5, 0], 100, n_columns=3)
    assert weights[2] == weights[1] > weights[0]


def test_empty_slots_and_places_beyond_the_width_are_misses():
    gold = csr([[0, 1, 2]], 3)
    narrow, padded = judge(np.array([[0]]), gold), judge(np.array([[0, -1, -1]]), gold)
    for metric in RANKING:
        assert metric(narrow, 3).value == metric(padded, 3).value < 1
    assert precision_at_k(narrow, 3).value == pytest.approx(1 / 3)


def test_psp_is_a_ratio_of_sums():
    # Per-document ratios would be 1 and 0, whose mean 1/2 is not the ratio of the sums 2/(2 + 6).
    judged = judge(np.array([[0], [0]]), csr([[0], [1]], 2))
    weighted = weigh(judged, np.array([2.0, 6.0]), depth=1)
    assert psp_at_k(weighted, 1).value == pytest.approx(2 / 8)


def test_best_weights_are_the_largest_of_each_document():
    gold = prepare_gold(csr([[0, 1, 2], [1]], 3))
    best = best_weights(gold, np.array([1.0, 3.0, 2.0]), 2)
    assert best.tolist() == [[3, 2], [3, 0]]


def test_gold_is_brought_into_canonical_form():
    # Unsorted, a label twice, a stored zero, and two values that cancel out.
    data, columns = np.array([1.0, 1.0, 0.0, 1.0, -1.0]), np.array([2, 2, 0, 1, 1])
    gold = prepare_gold(sparse.csr_matrix((data, columns, np.array([0, 3, 5, 5])), (3, 3)))
    assert gold.sizes.tolist() == [1, 1]
    assert gold.left_out == 1
    assert hit_matrix(np.array([[0, 2], [1, 0]]), gold.matrix).tolist() == [
        [False, True],
        [True, False],
    ]


def test_gold_in_canonical_form_is_not_copied():
    matrix = csr([[0, 2], [1]], 3)
    matrix.sum_duplicates()
    gold = prepare_gold(matrix)
    assert np.shares_memory(gold.matrix.indices, matrix.indices)
    assert prepare_gold(gold) is gold
    assert gold.sizes.dtype == gold.kept.dtype == np.int64
    assert hit_matrix(np.array([[0]]), csr([[]], 1)).dtype == bool


def test_the_callers_matrix_is_left_alone():
    messy = sparse.csr_matrix((np.array([1.0, 0.0]), np.array([1, 0]), np.array([0, 2])), (1, 2))
    prepare_gold(messy)
    assert messy.nnz == 2


def test_no_overflow_with_many_documents_and_labels():
    # Row × column keys exceed 32 bits here.
    gold = csr([[]] * 49_999 + [[2_999_999]], 3_000_000)
    indices = np.full((50_000, 1), 2_999_999)
    assert precision_at_k(judge(indices, gold), 1).value == 1.0
    assert hit_matrix(indices, gold).sum() == 1


@pytest.mark.parametrize(
    ("indices", "gold"),
    [
        (np.array([[0], [1]]), csr([[0]], 2)),
        (np.array([[7]]), csr([[0]], 2)),
        (np.array([[2]]), csr([[0]], 2)),
        (np.array([[-2]]), csr([[0]], 2)),
        (np.array([0]), csr([[0]], 2)),
    ],
)
def test_predictions_that_do_not_fit_are_refused(indices, gold):
    with pytest.raises(ValueError, match=r"documents|between -1"):
        judge(indices, gold)


def test_dense_gold_is_refused():
    with pytest.raises(ValueError, match="sparse"):
        prepare_gold(np.eye(2))


def test_k_must_be_positive_and_within_the_depth():
    judged = judge(np.array([[0]]), csr([[0]], 1))
    with pytest.raises(ValueError, match="at least 1"):
        precision_at_k(judged, 0)
    with pytest.raises(ValueError, match="depth"):
        psp_at_k(weigh(judged, np.ones(1), depth=1), 2)
    with pytest.raises(ValueError, match="depth"):
        psndcg_at_k(weigh(judged, np.ones(1), depth=1), 2)
    with pytest.raises(ValueError, match="n_columns"):
        weigh(judged, np.ones(0), depth=1)


def test_discounts_are_inverse_logarithms_of_the_rank():
    np.testing.assert_allclose(discounts(3), [1, 1 / np.log2(3), 1 / 2])
    ideal = ideal_discounts(np.array([1, 2, 9]), 3)
    np.testing.assert_allclose(ideal, [1, 1 + 1 / np.log2(3), 1.5 + 1 / np.log2(3)])


def test_weights_by_the_formula_of_jain_et_al():
    # One training text is enough, and without n_columns there is a weight for each count.
    assert inverse_propensity([0, 1], 1).tolist() == [1, 1]
    assert inverse_propensity([], 10).shape == (0,)
    assert inverse_propensity([0], 10, b=0.5)[0] > 1
    found = inverse_propensity([0, 9], 100)
    expected = [1 + (np.log(100) - 1) * 2.5**0.55 * (n + 1.5) ** -0.55 for n in (0, 9)]
    np.testing.assert_allclose(found, expected)


def test_gains_are_the_weights_of_hits_alone():
    judged = judge(np.array([[1, 0, -1], [0, 1, 2]]), csr([[0, 2], [1, 2]], 3))
    weighted = weigh(judged, np.array([1.0, 2.0, 4.0]), depth=2)
    assert weighted.gains.tolist() == [[0, 1], [0, 2]]
    assert weighted.best.tolist() == [[4, 1], [4, 2]]
    assert weighted.sizes.tolist() == [2, 2]
    given = weigh(judged, np.ones(3), depth=2, best=weighted.best)
    assert given.best is weighted.best
    psp = psp_at_k(weighted, 2)
    assert psp.numerators.tolist() == [0.5, 1.0]
    assert psp.denominators.tolist() == [2.5, 3.0]
    psndcg = psndcg_at_k(weighted, 2)
    ideal, second = 1 + 1 / np.log2(3), 1 / np.log2(3)
    np.testing.assert_allclose(psndcg.numerators, [second / ideal, 2 * second / ideal])
    np.testing.assert_allclose(psndcg.denominators, np.array([4 + second, 4 + 2 * second]) / ideal)


def test_the_smallest_and_the_largest_label_may_be_predicted():
    judged = judge(np.array([[0, 1], [-1, 1]]), csr([[0], [1]], 2))
    assert judged.hits.tolist() == [[True, False], [False, True]]
    assert hit_matrix(np.array([[0], [1]]), csr([[], []], 2)).tolist() == [[False], [False]]
    assert judged.gold.n_columns == 2
    with pytest.raises(ValueError, match="depth"):
        psp_at_k(weigh(judged, np.ones(2), depth=1), 0)


def test_scores_of_documents_with_gold_are_selected():
    judged = judge(np.array([[0], [1], [0]]), csr([[0], [], [1]], 2))
    scores = np.array([[0.1], [0.2], [0.3]])
    assert judged.kept_scores(scores).tolist() == [[0.1], [0.3]]
    whole = judge(np.array([[0]]), csr([[0]], 2))
    assert whole.kept_scores(scores[:1]).tolist() == [[0.1]]


# --- against napkinxc ------------------------------------------------------------------------


@pytest.mark.parametrize("empty_slots", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_napkinxc(seed, empty_slots):
    indices, gold = random_case(seed, unseen=3, empty_slots=empty_slots)
    judged = judge(indices, csr(gold, 15))
    theirs = {
        precision_at_k: napkin.precision_at_k(gold, rankings(indices), k=K),
        recall_at_k: napkin.recall_at_k(gold, rankings(indices), k=K),
        ndcg_at_k: napkin.ndcg_at_k(gold, rankings(indices), k=K),
    }
    for metric, expected in theirs.items():
        ours = [metric(judged, k).value for k in range(1, K + 1)]
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_propensity_scored_metrics_agree_with_napkinxc(seed):
    indices, gold = random_case(seed, unseen=3, empty_slots=True)
    _, train = random_case(seed + 100, n=200, unseen=3)
    train = csr(train, 15)
    inverse = napkin.Jain_et_al_inverse_propensity(train, A=0.6, B=2.6)
    counts = np.asarray(train.sum(axis=0)).ravel()
    weights = inverse_propensity(counts, 200, a=0.6, b=2.6)
    np.testing.assert_allclose(weights, inverse, rtol=0, atol=1e-9)
    weighted = weigh(judge(indices, csr(gold, 15)), weights, depth=K)
    theirs = {
        psp_at_k: napkin.psprecision_at_k(gold, rankings(indices), inverse, k=K),
        psndcg_at_k: napkin.psndcg_at_k(gold, rankings(indices), inverse, k=K),
    }
    for metric, expected in theirs.items():
        ours = [metric(weighted, k).value for k in range(1, K + 1)]
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-9)


def test_documents_without_gold_are_where_napkinxc_differs():
    # napkinxc counts them as zeros; scaled to the documents with gold, both agree.
    indices, gold = random_case(7, min_gold=0)
    judged = judge(indices, csr(gold, 12))
    assert 0 < judged.gold.left_out < 40
    scale = 40 / (40 - judged.gold.left_out)
    expected = napkin.ndcg_at_k(gold, rankings(indices), k=K)[-1] * scale
    assert ndcg_at_k(judged, K).value == pytest.approx(expected, abs=1e-9)


def test_propensity_of_tiny_training_sets_is_flat():
    # ln N - 1 is negative for N < 3, where the formula would favour frequent labels.
    assert inverse_propensity([0, 1, 2], 2).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="n_train"):
        inverse_propensity([0], 0)
    with pytest.raises(ValueError, match="b must"):
        inverse_propensity([0], 10, b=0)


# --- properties ------------------------------------------------------------------------------

labels = st.integers(0, 9)
documents = st.lists(
    st.tuples(
        st.lists(labels, max_size=K, unique=True),
        st.lists(st.integers(0, 11), max_size=8, unique=True),
    ),
    min_size=1,
    max_size=12,
)


def scores_of(case, k):
    indices = np.full((len(case), K), -1)
    for row, (ranking, _) in enumerate(case):
        indices[row, : len(ranking)] = ranking
    judged = judge(indices, csr([sorted(gold) for _, gold in case], 12))
    weights = inverse_propensity(np.arange(12), 50)
    weighted = weigh(judged, weights, depth=K)
    return [metric(judged, k) for metric in RANKING] + [
        psp_at_k(weighted, k),
        psndcg_at_k(weighted, k),
    ]


@settings(max_examples=60, deadline=None)
@given(case=documents, k=st.integers(1, K))
def test_values_lie_between_zero_and_one(case, k):
    for scores in scores_of(case, k):
        assert len(scores) == sum(bool(gold) for _, gold in case)
        assert (scores.numerators <= scores.denominators + 1e-12).all()
        assert (scores.numerators >= 0).all()
        assert len(scores) == 0 or 0 <= scores.value <= 1


@settings(max_examples=60, deadline=None)
@given(case=documents, k=st.integers(1, K), random=st.randoms(use_true_random=False))
def test_the_order_of_documents_does_not_matter(case, k, random):
    shuffled = random.sample(case, len(case))
    for one, other in zip(scores_of(case, k), scores_of(shuffled, k), strict=True):
        assert one.value == pytest.approx(other.value, abs=1e-12, nan_ok=True)


@settings(max_examples=60, deadline=None)
@given(case=documents, k=st.integers(1, K))
def test_a_perfect_ranking_scores_one(case, k):
    # Rarest labels first, and at least k gold labels, so that P@k can be 1 too.
    perfect = []
    for _, gold in case:
        enough = sorted({*(label for label in gold if label < 10), *range(k)})
        perfect.append((enough[:K], enough))
    precision, recall, r_precision, ndcg, psp, psndcg = scores_of(perfect, k)
    for scores in (precision, r_precision, ndcg, psp, psndcg):
        assert scores.value == pytest.approx(1.0)
    expected = np.mean([k / len(gold) for _, gold in perfect])
    assert recall.value == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(case=documents, k=st.integers(1, K - 1))
def test_recall_grows_with_k(case, k):
    assert (scores_of(case, k)[1].numerators <= scores_of(case, k + 1)[1].numerators).all()

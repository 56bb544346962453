"""Paired bootstrap."""

import numpy as np
import pytest

from glocal.metrics import bootstrap
from glocal.metrics.bootstrap import BootstrapResult, paired_bootstrap
from glocal.metrics.documents import DocumentScores


def test_equal_models_do_not_differ():
    values = np.random.default_rng(0).random(50)
    result = paired_bootstrap(values, values, samples=500)
    assert (result.difference, result.low, result.high, result.p_value) == (0, 0, 0, 1)
    assert (result.n, result.samples) == (50, 500)


def test_a_constant_gain_is_certain():
    values = np.random.default_rng(0).random(50)
    result = paired_bootstrap(values + 0.1, values, samples=999)
    assert result.difference == pytest.approx(0.1)
    assert result.low == pytest.approx(0.1)
    assert result.high == pytest.approx(0.1)
    assert result.p_value == pytest.approx(2 / 1000)


def test_interval_is_that_of_the_mean_difference():
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.02, 1, 2000), np.zeros(2000)
    result = paired_bootstrap(a, b, samples=4000)
    error = a.std() / np.sqrt(2000)
    assert result.low == pytest.approx(a.mean() - 1.96 * error, abs=0.1 * error)
    assert result.high == pytest.approx(a.mean() + 1.96 * error, abs=0.1 * error)
    assert 0.05 < result.p_value <= 1


def test_swapping_the_models_turns_the_sign():
    rng = np.random.default_rng(2)
    a, b = rng.random(100), rng.random(100)
    one, other = paired_bootstrap(a, b, samples=2000), paired_bootstrap(b, a, samples=2000)
    assert one.difference == pytest.approx(-other.difference)
    assert one.low == pytest.approx(-other.high, abs=0.01)


def test_grouped_and_single_draws_have_one_distribution():
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 3, 400) / 2, rng.integers(0, 3, 400) / 2
    grouped = paired_bootstrap(a, b, samples=8000)
    # A little noise makes every document a group of its own.
    noise = rng.normal(0, 1e-9, 400)
    single = paired_bootstrap(a + noise, b, samples=8000)
    width = single.high - single.low
    assert grouped.low == pytest.approx(single.low, abs=0.05 * width)
    assert grouped.high == pytest.approx(single.high, abs=0.05 * width)


def test_ratios_are_resampled_as_ratios():
    # The value is 3/4 against 1/4; the mean of per-document ratios would be 1/2 for both.
    a = DocumentScores(np.array([3.0, 0.0] * 20), np.array([3.0, 1.0] * 20))
    b = DocumentScores(np.array([0.0, 1.0] * 20), np.array([3.0, 1.0] * 20))
    result = paired_bootstrap(a, b, samples=500)
    assert (result.value_a, result.value_b) == (0.75, 0.25)
    assert result.difference == 0.5
    assert 0.1 < result.low < 0.4 < 0.6 < result.high < 0.8


def test_same_seed_same_result_whatever_the_block(monkeypatch):
    rng = np.random.default_rng(4)
    a, b = rng.random(30), rng.random(30)
    whole = paired_bootstrap(a, b, samples=300, seed=5)
    monkeypatch.setattr(bootstrap, "_BLOCK", 64)
    assert paired_bootstrap(a, b, samples=300, seed=5) == whole
    assert paired_bootstrap(a, b, samples=300, seed=6) != whole


def test_result_is_plain_for_json():
    result = paired_bootstrap([1.0, 0.0], [0.0, 0.0], samples=10)
    assert isinstance(result, BootstrapResult)
    assert result.to_dict()["n"] == 2
    assert {type(value) for value in result.to_dict().values()} <= {int, float}


@pytest.mark.parametrize(
    ("a", "b", "options"),
    [
        ([], [], {}),
        ([1.0], [1.0, 2.0], {}),
        ([1.0], [1.0], {"samples": 0}),
        ([1.0], [1.0], {"confidence": 1.0}),
        ([np.nan], [1.0], {}),
    ],
)
def test_what_cannot_be_compared_is_refused(a, b, options):
    with pytest.raises(ValueError, match=r"at least one|between 0 and 1|finite"):
        paired_bootstrap(a, b, **options)


def test_by_default_ten_thousand_draws_and_95_per_cent():
    rng = np.random.default_rng(0)
    a = rng.normal(0.0, 1.0, 40)
    found = paired_bootstrap(a, np.zeros(40))
    assert (found.samples, found.confidence) == (10_000, 0.95)
    assert found == paired_bootstrap(a, np.zeros(40), samples=10_000, seed=0, confidence=0.95)
    narrow = paired_bootstrap(a, np.zeros(40), confidence=0.5)
    assert found.low < narrow.low < narrow.high < found.high
    assert paired_bootstrap([1.0, 2.0], [0.0, 0.0], samples=1).samples == 1


def test_the_p_value_is_twice_the_rarer_side():
    # Of the four equally likely draws of two documents two sum to 0, one is above and one below.
    found = paired_bootstrap([1.0, -1.0], [0.0, 0.0], samples=4000)
    assert found.p_value == 1.0
    certain = paired_bootstrap([1.0, 1.0], [0.0, 0.0], samples=9)
    assert certain.p_value == pytest.approx(2 / 10)
    worse = paired_bootstrap([0.0, 0.0], [1.0, 1.0], samples=9)
    assert worse.p_value == pytest.approx(2 / 10)
    mixed = paired_bootstrap([1.0, 1.0, -0.5], [0.0, 0.0, 0.0], samples=20_000)
    # At or below 0 are the draws with the third document twice (equal) or three times: 7 of 27.
    assert mixed.p_value == pytest.approx(2 * 7 / 27, abs=0.02)


def test_a_draw_without_attainable_gain_scores_zero():
    a = DocumentScores(np.array([1.0, 0.0]), np.array([1.0, 0.0]))
    b = DocumentScores(np.array([0.0, 0.0]), np.array([1.0, 1.0]))
    found = paired_bootstrap(a, b, samples=500)
    assert found.low == 0.0
    assert found.high == 1.0


def test_every_draw_has_as_many_documents_as_there_are(monkeypatch):
    rng = np.random.default_rng(0)
    for sizes in (np.array([1, 2, 1]), np.array([40, 60])):  # one by one, and grouped
        for block in (1 << 22, 1, 10):
            monkeypatch.setattr(bootstrap, "_BLOCK", block)
            drawn = np.concatenate(list(bootstrap._draw_counts(sizes, 300, rng)))
            assert drawn.shape == (300, len(sizes))
            assert (drawn.sum(axis=1) == sizes.sum()).all()
            np.testing.assert_allclose(drawn.mean(axis=0), sizes, rtol=0.2)


@pytest.mark.parametrize("confidence", [0.0, -0.1, 1.5])
def test_a_confidence_outside_zero_and_one_is_refused(confidence):
    with pytest.raises(ValueError, match="between 0 and 1"):
        paired_bootstrap([1.0], [0.0], confidence=confidence)


@pytest.mark.parametrize(("a", "b"), [([1.0, 2.0], [1.0]), ([], [1.0]), ([1.0], [])])
def test_the_documents_must_be_the_same(a, b):
    with pytest.raises(ValueError, match="same documents"):
        paired_bootstrap(a, b)


def test_scores_are_vectors_of_one_length():
    for numerators, denominators in ((np.ones(2), np.ones(3)), (np.ones((2, 2)), np.ones((2, 2)))):
        with pytest.raises(ValueError, match="one length"):
            DocumentScores(numerators, denominators)
    assert np.isnan(DocumentScores(np.zeros(2), np.zeros(2)).value)
    some = DocumentScores(np.array([1.0, 2.0]), np.array([2.0, 4.0])).take(np.array([1]))
    assert (some.numerators.tolist(), some.denominators.tolist()) == ([2.0], [4.0])


class Spy:
    """A generator that notes which way documents are drawn."""

    def __init__(self):
        self.rng, self.ways = np.random.default_rng(0), []

    def multinomial(self, *args, **options):
        self.ways.append("grouped")
        return self.rng.multinomial(*args, **options)

    def integers(self, *args, **options):
        self.ways.append("single")
        return self.rng.integers(*args, **options)


@pytest.mark.parametrize(
    ("sizes", "way"), [([8, 8], "single"), ([8, 9], "grouped"), ([1, 2, 1], "single")]
)
def test_documents_are_drawn_in_groups_of_more_than_eight(sizes, way):
    spy = Spy()
    (counts,) = bootstrap._draw_counts(np.array(sizes), 5, spy)
    assert spy.ways == [way]
    assert counts.shape == (5, len(sizes))
    assert counts.dtype == np.float64


@pytest.mark.parametrize(
    ("sizes", "block", "draws"),
    [([1, 2, 1], 8, [2, 2, 2, 1]), ([40, 60], 5, [2, 2, 2, 1]), ([1, 2, 1], 1, [1] * 7)],
)
def test_blocks_of_draws_stay_within_their_size(sizes, block, draws, monkeypatch):
    monkeypatch.setattr(bootstrap, "_BLOCK", block)
    blocks = bootstrap._draw_counts(np.array(sizes), 7, np.random.default_rng(0))
    assert [len(counts) for counts in blocks] == draws


def test_a_block_of_counts_takes_32_megabytes():
    assert 8 * bootstrap._BLOCK == 32 * 2**20


def test_whole_numbers_become_scores():
    scores = DocumentScores.mean([1, 0])
    assert scores.numerators.dtype == scores.denominators.dtype == np.float64
    assert scores.value == 0.5

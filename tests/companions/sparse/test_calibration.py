import copy
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from glocal.companions.sparse.label_profiles import label_profiles
from glocal.companions.sparse.platt import (
    LabelEvidence,
    calibrate,
    fit_scaling,
    held_out_texts,
)
from glocal.companions.sparse.sparse_scoring import LabelGroups, LinearScorer, top_labels
from tests.companions.sparse.made_up import corpus, label_space


def pairs(slope, shift, *, n=40_000):
    rng = np.random.default_rng(0)
    values = rng.normal(-0.5, 1, n)
    return values, rng.random(n) < 1 / (1 + np.exp(-(slope * values + shift)))


def test_finds_the_scaling_that_made_the_gold():
    assert fit_scaling(*pairs(3.0, -1.0)) == pytest.approx((3.0, -1.0), abs=0.15)


def test_separable_margins_give_a_finite_slope():
    slope, shift = fit_scaling(np.array([-1.0, 1.0]), np.array([False, True]))
    assert 0 < slope < 20
    assert abs(shift) < 1


def test_without_texts_the_usual_scaling_is_left():
    assert fit_scaling(np.empty(0), np.empty(0, dtype=bool)) == (4.0, 0.0)


def test_every_label_keeps_a_text():
    train = corpus(300)
    gold = label_space(train).encode(train)
    held = held_out_texts(gold, seed=0)
    assert len(held) == 30
    kept = np.setdiff1d(np.arange(300), held)
    assert gold[kept].sum(axis=0).min() >= 1
    assert held_out_texts(csr_matrix(np.eye(40, dtype=np.float32)), seed=0).tolist() == []


def test_calibrated_scores_keep_their_order():
    rng = np.random.default_rng(0)
    scorer = LinearScorer(csr_matrix(rng.random((8, 5), dtype=np.float32)), np.zeros(5, np.float32))
    features = csr_matrix(rng.random((50, 8), dtype=np.float32))
    gold = csr_matrix((rng.random((50, 7)) < 0.3).astype(np.float32))
    before = top_labels(scorer, features, 5)
    scaled, _ = calibrate(scorer, features, gold, threads=1)
    after = top_labels(scaled, features, 5)
    np.testing.assert_array_equal(before[0], after[0])
    share = (1 / (1 + np.exp(-after[1]))).mean()
    assert share == pytest.approx(gold[:, :5].toarray().mean(), abs=0.01)


def test_groups_have_a_slope_of_their_own():
    rng = np.random.default_rng(0)
    n_texts, n_labels = 4000, 6
    features = csr_matrix(rng.normal(size=(n_texts, 8)).astype(np.float32))
    own = csr_matrix(rng.normal(size=(8, n_labels)).astype(np.float32))
    shared = csr_matrix(rng.normal(size=(8, 2)).astype(np.float32))
    of = np.array([0, 1, 0, 1, 0, 1], dtype=np.int32)
    true = (features @ own).toarray() * 0.5 + (features @ shared).toarray()[:, of] * 2.0
    gold = csr_matrix((rng.random(true.shape) < 1 / (1 + np.exp(-true))).astype(np.float32))
    scorer = LinearScorer(own, np.zeros(n_labels, np.float32), LabelGroups(shared, of[:, None]))
    own, shared = own.copy(), shared.copy()  # those of the scorer are rescaled where they are
    scaled, _ = calibrate(scorer, features, gold, threads=1)
    assert scaled.weights.data / own.data == pytest.approx(0.5, abs=0.05)
    assert scaled.groups.weights.data / shared.data == pytest.approx(2.0, abs=0.1)


def test_likeness_and_frequency_have_their_own_coefficients():
    rng = np.random.default_rng(1)
    n_texts, n_labels = 4000, 6
    features = csr_matrix(rng.normal(size=(n_texts, 8)).astype(np.float32))
    own, profiles = (csr_matrix(rng.normal(size=(8, n_labels)).astype(np.float32)) for _ in "ab")
    counts = np.array([3, 9, 30, 90, 300, 900])
    logs = np.log(counts)
    true = (features @ (0.5 * own + 2 * profiles)).toarray() + 0.6 * logs - 0.2 * logs**2
    gold = csr_matrix((rng.random(true.shape) < 1 / (1 + np.exp(-true))).astype(np.float32))
    scorer = LinearScorer(own, np.zeros(n_labels, np.float32))
    expected = (0.5 * own + 2 * profiles).toarray()
    scaled, _ = calibrate(
        scorer, features, gold, evidence=LabelEvidence(profiles, counts), threads=1
    )
    np.testing.assert_allclose(scaled.weights.toarray(), expected, atol=0.3)
    np.testing.assert_allclose(scaled.biases, 0.6 * logs - 0.2 * logs**2, atol=0.5)


def made_up_evidence(*, rare_slope=0.5, n_texts=6000):
    """A scorer whose margins count for less or more where labels are rare, and its mean texts."""
    rng = np.random.default_rng(3)
    n_labels = 12
    counts = np.array([2, 2000] * (n_labels // 2))
    features = csr_matrix(rng.normal(size=(n_texts, 8)).astype(np.float32))
    own, profiles = (csr_matrix(rng.normal(size=(8, n_labels)).astype(np.float32)) for _ in "ab")
    slopes = np.where(counts == 2, rare_slope, 2.0)
    true = (features @ own).toarray() * slopes
    gold = csr_matrix((rng.random(true.shape) < 1 / (1 + np.exp(-true))).astype(np.float32))
    scorer = LinearScorer(own, np.full(n_labels, -1, np.float32))
    return scorer, features, gold, LabelEvidence(profiles, counts)


def test_rare_labels_have_slopes_of_their_own():
    scorer, features, gold, evidence = made_up_evidence()
    before = scorer.weights.toarray()
    scaled, scaling = calibrate(scorer, features, gold, evidence=evidence, threads=1)
    assert scaling.rare_slope == pytest.approx(0.5, abs=0.1)
    assert scaling.slopes(evidence.counts) == pytest.approx([0.5, 2.0] * 6, abs=0.15)
    likeness = evidence.profiles.toarray()  # scaled where they are
    expected = before * scaling.slopes(evidence.counts) + likeness
    np.testing.assert_allclose(scaled.weights.toarray(), expected, rtol=1e-4, atol=1e-5)
    # A margin of -1, where the slope does not count, stands for log-odds of about zero here.
    assert scaled.biases == pytest.approx(np.zeros(12), abs=0.5)


@pytest.mark.parametrize(("rare_slope", "used"), [(0.5, True), (2.0, False)])
def test_evidence_on_trial_is_used_where_it_helps(rare_slope, used):
    scorer, features, gold, evidence = made_up_evidence(rare_slope=rare_slope, n_texts=1500)
    plain, _ = calibrate(copy.deepcopy(scorer), features, gold, threads=1)
    evidence = replace(evidence, on_trial=True)
    tried, scaling = calibrate(scorer, features, gold, evidence=evidence, threads=1)
    assert (scaling.rare_slope is not None) == used
    same = np.array_equal(tried.weights.toarray(), plain.weights.toarray())
    assert same == np.array_equal(tried.biases, plain.biases) == (not used)


def test_a_label_without_texts_stays_below_every_other():
    rng = np.random.default_rng(2)
    features = csr_matrix(rng.random((50, 8), dtype=np.float32))
    gold = csr_matrix((rng.random((50, 5)) < 0.3).astype(np.float32))
    scorer = LinearScorer(csr_matrix(rng.random((8, 5), dtype=np.float32)), np.zeros(5, np.float32))
    counts = np.array([40, 30, 20, 10, 0])
    evidence = LabelEvidence(csr_matrix((8, 5), dtype=np.float32), counts)
    scaled, _ = calibrate(scorer, features, gold, evidence=evidence, threads=1)
    assert scaled.biases[4] <= scaled.biases[:4].min()


def test_profiles_are_mean_texts_of_length_one():
    features = csr_matrix(np.array([[0.6, 0.8, 0], [1, 0, 0], [0, 0.01, 1]], np.float32))
    labels = csr_matrix(np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]], np.float32))
    profiles = label_profiles(features, labels, threshold=0.05, threads=2).toarray()
    mean = np.array([1.6, 0.8, 0]) / np.hypot(1.6, 0.8)
    np.testing.assert_allclose(profiles.T, [mean, [0, 0, 1], [0, 0, 0]], atol=1e-4)

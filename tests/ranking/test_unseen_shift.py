"""The constant of labels without training texts."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from glocal.ranking.calibration import Calibration
from glocal.ranking.combination import Combination
from glocal.ranking.predictions import Predictions
from glocal.ranking.unseen_shift import fit_unseen_shift

COUNTS = np.array([5, 0])


def found(n_texts, probability, n_gold):
    """Every text has label 0; label 1 has no training texts and the same probability each time."""
    indices = np.tile([0, 1], (n_texts, 1))
    scores = np.tile(np.array([0.9, probability], np.float32), (n_texts, 1))
    gold = np.zeros((n_texts, 2), np.float32)
    gold[:, 0], gold[:n_gold, 1] = 1, 1
    return Predictions(indices, scores), csr_matrix(gold)


@pytest.mark.parametrize(("probability", "n_gold"), [(0.4, 20), (0.1, 40)])
def test_probabilities_sum_to_the_gold_labels(probability, n_gold):
    shift = fit_unseen_shift(*found(100, probability, n_gold), COUNTS, Calibration())
    share = n_gold / 100
    whole = np.log(share / (1 - share)) - np.log(probability / (1 - probability))
    assert shift == pytest.approx(whole * n_gold / (n_gold + 5), abs=1e-4)


def test_empty_places_are_skipped():
    predictions, gold = found(50, 0.3, 10)
    padded = Predictions(
        np.pad(predictions.indices, ((0, 0), (0, 1)), constant_values=-1),
        np.pad(predictions.scores, ((0, 0), (0, 1)), constant_values=-np.inf),
    )
    expected = fit_unseen_shift(predictions, gold, COUNTS, Calibration())
    assert fit_unseen_shift(padded, gold, COUNTS, Calibration()) == pytest.approx(expected)
    assert expected < 0


def test_without_gold_nothing_is_known():
    assert fit_unseen_shift(*found(10, 0.2, 0), COUNTS, Calibration()) == 0.0
    assert fit_unseen_shift(*found(10, 0.2, 5), np.array([5, 1]), Calibration()) == 0.0


def test_only_labels_without_texts_are_shifted():
    plain = Combination({"S": 1.0}, 0.1, -0.2)
    shifted = Combination({"S": 1.0}, 0.1, -0.2, unseen=-0.7)
    logits = np.array([[0.5, 0.5]], np.float32)
    before, after = (c.of_arrays({"S": logits}, COUNTS) for c in (plain, shifted))
    assert after[0, 0] == before[0, 0]
    odds = np.log(after[0, 1] / (1 - after[0, 1])) - np.log(before[0, 1] / (1 - before[0, 1]))
    assert odds == pytest.approx(-0.7, abs=1e-5)
    of_torch = shifted(["S"], [torch.from_numpy(logits)], torch.from_numpy(COUNTS))
    np.testing.assert_allclose(of_torch.numpy(), after, rtol=1e-6)
    assert Combination.from_mapping(shifted.to_mapping()) == shifted
    assert "unseen" not in plain.to_mapping()


def test_a_probability_of_one_has_a_finite_shift():
    before, gold = found(100, 0.5, 50)
    certain = Predictions(before.indices[:, ::-1], np.tile(np.float32([1, 0.9]), (100, 1)))
    shift = fit_unseen_shift(certain, gold, COUNTS, Calibration())
    assert shift == pytest.approx(-3 * 50 / 55, abs=1e-3)


def test_a_shift_has_six_digits():
    shift = fit_unseen_shift(*found(100, 0.37, 21), COUNTS, Calibration())
    assert shift == round(shift, 6)


def test_a_shift_is_at_most_three():
    for probability, n_gold, sign in ((1e-4, 90, 1), (0.9, 1, -1)):
        shift = fit_unseen_shift(*found(100, probability, n_gold), COUNTS, Calibration())
        assert shift == pytest.approx(sign * 3 * n_gold / (n_gold + 5), abs=1e-5)


def test_the_first_label_may_be_the_one_without_texts():
    predictions, gold = found(50, 0.3, 10)
    swapped = Predictions(1 - predictions.indices, predictions.scores)
    expected = fit_unseen_shift(predictions, gold, COUNTS, Calibration())
    assert fit_unseen_shift(swapped, gold[:, ::-1], COUNTS[::-1], Calibration()) == expected

"""The scaling of margins, which a model keeps for labels that are added later."""

import numpy as np
import pytest

from glocal.companions.sparse.training_memory import Scaling, rarity

COUNTS = np.array([0, 1, 2, 8, 200])


def test_rarity_falls_with_the_root_of_a_label_s_texts():
    assert rarity(COUNTS) == pytest.approx([1, 1, 1, 0.5, 0.1])


def test_labels_of_any_frequency_have_the_same_slope_by_default():
    scaling = Scaling(3.0, -1.0, likeness=2.0)
    assert scaling.slopes(COUNTS).tolist() == [3.0] * 5
    assert scaling.likenesses(COUNTS).tolist() == [2.0] * 5
    assert scaling.constants(COUNTS).tolist() == [-1.0] * 5


def test_slopes_lie_between_those_of_rare_and_of_frequent_labels():
    scaling = Scaling(3.0, -1.0, likeness=2.0, rare_slope=5.0, rare_likeness=0.0)
    assert scaling.slopes(COUNTS) == pytest.approx([5, 5, 5, 4, 3.2])
    assert scaling.likenesses(COUNTS) == pytest.approx([0, 0, 0, 1, 1.8])


def test_at_a_margin_of_minus_one_the_slope_does_not_count():
    scaling = Scaling(3.0, -1.0, rare_slope=5.0, frequency=(0.5, -0.25))
    logs = np.log([2, 2, 2, 8, 200])
    found = scaling.constants(COUNTS) - scaling.slopes(COUNTS)
    assert found == pytest.approx(-4 + 0.5 * logs - 0.25 * logs**2, abs=1e-5)

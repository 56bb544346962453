import re
from xml.etree import ElementTree

import numpy as np
import pytest

from glocal.lab.plots import LETTER, LINE, Point, _log_ticks, scatter

LABELS = r'<text class="label" x="([\d.-]+)" y="([\d.-]+)">([^<]*)</text>'


def drawn(points):
    return scatter(points, x_label="seconds", y_label="P@5", title="P@5 <against> time")


def boxes(svg):
    for x, y, text in re.findall(LABELS, svg):
        bottom = float(y) + 3
        yield float(x), bottom - LINE, float(x) + LETTER * len(text), bottom


def overlap(a, b):
    return min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) > max(a[1], b[1])


def test_is_well_formed_with_a_mark_and_a_label_for_each():
    points = [Point("one & two", 1.0, 50.0, "recipe"), Point("three", 1000.0, 60.0, "baseline")]
    root = ElementTree.fromstring(drawn(points))
    titles = [node.text for node in root.iter("title")]
    assert sorted(titles) == ["one & two: 50.0 at 1", "three: 60.0 at 1e+03"]
    assert len(list(root.iter("circle"))) == 1


def test_labels_of_crowded_points_do_not_overlap():
    random = np.random.default_rng(0)
    points = [
        Point(f"method {n}, matched", 20 * 10 ** random.normal(0, 0.1), 80 + random.normal(), "x")
        for n in range(12)
    ]
    found = list(boxes(drawn(points)))
    assert len(found) == 12
    for n, box in enumerate(found):
        assert not any(overlap(box, other) for other in found[:n])


def test_points_of_one_place_get_labels_apart():
    first, second = boxes(drawn([Point("a", 5.0, 70.0, "x"), Point("b", 5.0, 70.0, "x")]))
    assert not overlap(first, second)


def test_the_front_leaves_out_what_is_beaten_in_both():
    points = [Point("cheap", 1, 50, "x"), Point("good", 9, 70, "x"), Point("beaten", 10, 60, "x")]
    path = re.search(r'class="front" points="([^"]*)"', drawn(points)).group(1)
    assert len(path.split()) == 2


def test_a_point_far_below_does_not_press_the_others_together():
    points = [Point(f"m{n}", 10.0**n, 80.0 + n, "x") for n in range(5)]
    svg = drawn([*points, Point("poor", 10.0, 5.0, "x")])
    heights = {text: float(y) for _, y, text in re.findall(LABELS, svg)}
    assert "poor (5.0) ↓" in heights
    assert abs(heights["m0"] - heights["m4"]) > 80
    assert "poor: 5.0 at 10" in svg


@pytest.mark.parametrize("span", [(0.0, 0.4), (-1.0, 1.2), (0.0, 5.0)])
def test_a_logarithmic_axis_has_some_ticks(span):
    assert 1 <= len(_log_ticks(*span)) <= 9


def test_nothing_to_draw_is_no_plot():
    assert drawn([]) == ""

"""Metric names."""

import pytest

from glocal.metrics.metric_names import MetricName, parse_metric_name


@pytest.mark.parametrize(
    "name", ["P@1", "nDCG@10", "R@3", "RP@5", "PSP@1", "PSnDCG@3", "macro-F@5"]
)
def test_names_come_apart_and_together(name):
    parsed = parse_metric_name(name)
    assert str(parsed) == name
    assert parsed == MetricName(name.split("@")[0], int(name.split("@")[1]))


def test_micro_f1_has_no_k():
    assert parse_metric_name("micro-F1") == MetricName("micro-F1", 0)


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("ndcg@3", "nDCG@3"),
        ("p@5", "P@5"),
        ("P5", "P@5"),
        ("P3", "P@3"),
        ("P@0", "P@5"),
        ("PSNDCG@1", "PSnDCG@1"),
        ("macro-F1@5", "macro-F@5"),
        ("microF1", "micro-F1"),
        ("P@five", "P@5"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong, nearest):
    with pytest.raises(ValueError, match=f"did you mean '{nearest}'"):
        parse_metric_name(wrong)

"""Speed beside others: the same results from both, and a report of the right form."""

import json

import pytest
import torch

from glocal.experts.label_attention import LabelAttentionExpert
from glocal.lab import speed_report
from glocal.lab.naive_models import DenseModel, dense_bce, dense_label_attention, dense_targets
from glocal.lab.shortlist_speed import shortlist_speed
from glocal.lab.speed_measures import FULL, Comparison, training_step
from glocal.lab.synthetic_steps import Shape, synthetic_batch, synthetic_system, vocabulary_of
from glocal.losses.bce import bce_chunk

SHAPE = Shape("random:tiny", 12, 4, 40)
TINY = ["attention.key_size=16", "attention.hidden_size=16"]


@pytest.fixture(scope="module")
def system():
    return synthetic_system(SHAPE, [FULL, *TINY])[0].eval()


def test_dense_targets_ignore_padding():
    found = dense_targets(torch.tensor([[0, 3, -1], [-1, -1, -1]]), 4)
    assert found.tolist() == [[1, 0, 0, 1], [0, 0, 0, 0]]


def test_dense_label_attention_and_loss_equal_ours(system):
    expert = next(e for e in system.modules() if isinstance(e, LabelAttentionExpert))
    tokens = torch.randn(3, 7, system.encoder.hidden_size)
    mask = torch.arange(7) < torch.tensor([[7], [4], [1]])
    state = (expert.key(tokens), expert.mlp_in(tokens), expert.mlp_out, mask)
    expected = expert.score(state, expert.label_tensors())
    found = dense_label_attention(expert, tokens, mask)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    gold = torch.tensor([[1, 5], [2, -1], [-1, -1]])
    ours = bce_chunk(found, gold, 0) / 3
    torch.testing.assert_close(dense_bce(found, dense_targets(gold, 40)), ours)


def test_the_dense_model_ranks_as_the_mixture_does(system):
    expert = next(e for e in system.modules() if isinstance(e, LabelAttentionExpert))
    dense = DenseModel(system.encoder.model, 40, expert).eval()
    document = next(e for e in system.experts if e.name == "D-last")
    dense.head.weight.data.copy_(document.weight)
    dense.head.bias.data.copy_(document.bias)
    batch = synthetic_batch(SHAPE, vocabulary=vocabulary_of(system))
    with torch.no_grad():
        assert torch.equal(dense.topk(batch, 5), system.topk(batch, 5).combined.indices)


def test_steps_of_every_way_run():
    for settings in speed_report.WAYS.values():
        training_step(SHAPE, [*settings, *TINY])


def test_ratio_says_how_many_times_less():
    assert Comparison("a", "b", "ms", 2.0, 8.0).ratio == 4.0


def test_report_has_tables_and_files(tmp_path):
    report = speed_report.SpeedReport(
        "a machine",
        [Comparison("step", "dense", "ms", 2.0, 8.0)],
        {"labels": {"global expert": {10: 1.0, 100: 2.0}, "both experts": {10: 1.5, 100: 9.0}}},
        {"full": 0.8, "shortlist": 0.79},
    )
    files = report.write(tmp_path / "out", plots=False)
    assert [path.name for path in files] == ["speed.json", "speed.md"]
    stored = json.loads(files[0].read_text())
    assert stored["comparisons"][0]["ratio"] == 4.0
    assert stored["curves"]["labels"]["both experts"]["100"] == 9.0
    text = files[1].read_text()
    assert "keeps 98.8%" in text
    assert "Growth over labels" in text


def test_a_shortlist_finds_planted_labels_as_full_scoring_does():
    found = shortlist_speed(Shape("random:tiny", 12, 1, 600, repeats=1))
    assert set(found.times) == {"full", "shortlist", "clusters"}
    assert found.precisions["shortlist"] >= 0.9 * found.precisions["full"] > 0

import json

import numpy as np
import pytest
import torch

from glocal.cli.analyze import heads
from glocal.errors import ConfigError
from glocal.heads.frequency_clusters import label_clusters
from glocal.lab import head_bench
from glocal.lab.heads import (
    PARTITIONS,
    aplc_parameters,
    cost_ratio,
    measure_heads,
    parameter_ratio,
)
from glocal.lab.machine import PeakMemory
from glocal.lab.variant_tables import load_table, resolve
from tests.cli.conftest import invoke


def test_formulas_in_closed_form():
    # d 8, q 2, head of 10, tails of 20 and 40: 8·(10+2) + 4·(8+20) + 2·(8+40)
    assert aplc_parameters([10, 20, 40], 8, 2.0) == 96 + 112 + 96
    assert aplc_parameters([70], 8, 2.0) == 8 * 70  # Eq. 8
    assert parameter_ratio([10, 20, 40], 2.0) == pytest.approx(70 / (10 + 10 + 10))
    assert cost_ratio([10, 20, 40], 2.0, [0.5, 0.25]) == pytest.approx(70 / (10 + 5 + 2.5))
    assert cost_ratio([70], 2.0, []) == 1.0


def test_counted_parameters_are_the_formula_plus_biases_and_layer_norms():
    costs = measure_heads([60], width=16, batch=4, repeats=1)
    assert [row.head for row in costs.rows] == ["flat", *PARTITIONS]
    for row in costs.rows:
        tails = len(PARTITIONS.get(row.head, (1.0,))) - 1
        norms = sum(2 * (16 // 2**t) for t in range(1, tails + 1))
        assert row.parameters == row.parameters_formula + 60 + tails + norms
        assert row.step_ms > 0
        assert row.predict_ms > 0


def test_labels_of_documents_follow_zipf_and_do_not_repeat():
    workload = head_bench.Workload(1000, batch=400)
    gold = workload.gold().numpy()
    assert all(len(set(row)) == 5 for row in gold.tolist())
    assert np.isin(gold, range(100)).mean() > 0.6  # ln 100 / ln 1000, about
    counts = workload.counts()
    assert (np.diff(counts) <= 0).all()


def test_tail_shares_count_documents():
    clusters = label_clusters(np.arange(10, 0, -1), (0.4, 0.3, 0.3))
    gold = torch.tensor([[0, 1], [4, 5], [9, 4], [2, 3]])
    assert head_bench.tail_shares(clusters, gold) == [0.5, 0.25]


@pytest.mark.parametrize(("how", "visited"), [("closed", 0), ("open", 8)])
def test_gates_are_set_as_asked(how, visited):
    workload = head_bench.Workload(80, width=16, batch=8)
    head = head_bench.build_clusters(workload, (0.5, 0.5))
    document = head_bench.set_gates(head, workload.documents(), workload.gold(), how)
    assert (head.gate_probabilities(document) > 0.5).sum() == visited
    pruned = head_bench.head_topk(head, document, 5)
    torch.testing.assert_close(pruned, head_bench.head_topk(head, document, 5, prune=False))


def test_typical_gates_are_open_where_a_label_is():
    workload = head_bench.Workload(80, width=16, batch=8)
    head, gold = head_bench.build_clusters(workload, (0.2, 0.8)), workload.gold()
    document = head_bench.set_gates(head, workload.documents(), gold, "typical")
    assert ((head.gate_probabilities(document) > 0.5)[:, 0] == (gold >= 16).any(1)).all()


def test_peak_memory_sees_what_was_held():
    memory = PeakMemory(torch.device("cpu"))
    with memory.watch():
        held = torch.ones(16 << 20)
        held.add_(1)
    assert memory.bytes is None or memory.bytes >= 60 << 20


def test_too_few_labels_are_refused_before_anything_is_measured():
    with pytest.raises(ConfigError, match=r"only 3 labels.*at least 4"):
        measure_heads([1000, 3])
    with pytest.raises(ConfigError, match="not 'tpu'"):
        measure_heads([1000], device="tpu")


def test_the_command_prints_json_and_writes_tables(tmp_path):
    options = ["--labels", "50,90", "--width", "16", "--repeats", "1", "--no-plots"]
    result = invoke("analyze", "heads", *options, "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert [row["labels"] for row in rows] == [50] * 4 + [90] * 4
    assert json.loads((tmp_path / "heads.json").read_text())["rows"] == rows
    lines = (tmp_path / "heads.csv").read_text().splitlines()
    assert lines[0].startswith("labels,head,parameters,")
    assert len(lines) == 9
    assert "Eq. 14" in (tmp_path / "heads.md").read_text()


def test_a_plot_shows_every_layer(tmp_path):
    pytest.importorskip("matplotlib")
    costs = measure_heads([50, 90], width=16, batch=4, repeats=1)
    names = {path.name for path in costs.write(tmp_path)}
    assert {"heads.png", "heads.svg", "heads-dark.png", "heads-dark.svg"} < names


@pytest.mark.parametrize("labels", ["many", "", "0", "50,-4"])
def test_wrong_label_counts_are_refused(labels):
    with pytest.raises(ConfigError, match=f"--labels {labels}: expected numbers"):
        heads(labels=labels)


@pytest.mark.parametrize(
    ("name", "clusters"), [("aplc-figure4", [1, 2, 3, 4, 5, 6]), ("aplc-figure5", [3, 3, 3])]
)
def test_tables_of_figures_4_and_5(name, clusters):
    recipes = resolve(load_table(name))
    partitions = [recipe.aplc.partition for recipe in recipes.values()]
    assert [len(partition) for partition in partitions] == clusters
    for partition in partitions:
        label_clusters(np.ones(4000), partition)
    if name == "aplc-figure4":
        assert all(max(p) - min(p) < 1e-6 for p in partitions)

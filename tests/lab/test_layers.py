import json
from collections import Counter

import numpy as np
import pytest

from glocal.data.builtin import load_builtin
from glocal.errors import ConfigError
from glocal.lab.experiment.jobs import Conditions, Splits
from glocal.lab.layers import LayerSweep, layer_table, on_layers
from glocal.lab.variant_tables import resolve, variant_runner
from tests.lab.reports import random_result
from tests.lab.small import small_splits
from tests.tiny import FAST

DIVERGENCE = {"jsd": 0.2, "bernoulli_jsd": 0.01, "gold_kl": 0.5}


def sweep(second_expert, *, missing=(), mean=("mean",)):
    table = layer_table(second_expert=second_expert, overrides=FAST)
    results = [
        random_result(v.name, v.title, seed, ["D-last", v.name, *mean], divergence=DIVERGENCE)
        for seed, v in enumerate(table.variants)
        if v.name not in missing
    ]
    return LayerSweep(table, resolve(table, FAST), small_splits(), results), results


def test_variants_are_the_layers_of_the_encoder():
    table = layer_table(overrides=FAST)
    assert [variant.name for variant in table.variants] == ["A-0", "A-1", "A-2"]
    recipes = resolve(table, FAST)
    assert recipes["A-2"].experts == ("D-last", "A-2")
    assert recipes["A-0"].system == "glocalxml"
    assert recipes["A-0"].candidates.mode == "full"
    both = layer_table(second_expert=True, overrides=FAST)
    assert [v.name for v in both.variants] == ["D-0", "D-1", "D-2", "A-0", "A-1", "A-2"]
    assert both.recipe == "me-xml"
    assert not resolve(both, FAST)["A-1"].attention.projections
    assert on_layers(both, [0, 2]) == ["D-0", "D-2", "A-0", "A-2"]


def test_layers_the_encoder_does_not_have():
    with pytest.raises(ConfigError, match="layer 3, -1: the encoder has layers 0 to 2"):
        on_layers(layer_table(overrides=FAST), [1, 3, -1])


def test_points_and_table():
    result, results = sweep(second_expert=False)
    point = result.points[1]
    assert (point.expert, point.layer) == ("A-1", 1)
    assert point.first == results[1].score("P@5", "D-last")
    assert point.second == results[1].score("P@5", "A-1")
    assert point.gain == pytest.approx(point.combined / point.first - 1)
    (table,) = result.tables()
    assert [row[0] for row in table.rows] == ["A-0", "A-1", "A-2"]
    assert point.mean_gain == pytest.approx(point.mean / point.first - 1)
    gains = point.gain, point.mean_gain
    assert table.rows[1][3:] == (point.combined, point.mean, *gains, 0.2, 0.01, 0.5)
    assert point.mean == results[1].score("P@5", "mean")
    assert "Numbers are on test" in table.note


@pytest.mark.parametrize("second_expert", [False, True])
def test_files(tmp_path, second_expert):
    result, _ = sweep(second_expert, missing=["A-1"])
    paths = {path.name for path in result.write(tmp_path)}
    stems = {"second-expert"} if second_expert else {"layers-scores", "layers-divergence"}
    for stem in stems:
        assert {f"{stem}.png", f"{stem}.svg", f"{stem}-dark.png", f"{stem}-dark.svg"} <= paths
    name = "second-expert" if second_expert else "layers"
    document = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert [p["layer"] for p in document["points"] if p["expert"][0] == "A"] == [0, 2]


def test_a_sweep_combined_by_the_mean_has_no_second_mean(tmp_path):
    result, _ = sweep(second_expert=False)
    result.write(tmp_path)
    assert ">mean</text>" in (tmp_path / "layers-scores.svg").read_text(encoding="utf-8")
    result, _ = sweep(second_expert=False, mean=())  # from before it was measured
    assert all(point.mean is None for point in result.points)
    result.write(tmp_path)
    assert ">mean</text>" not in (tmp_path / "layers-scores.svg").read_text(encoding="utf-8")
    text = (tmp_path / "layers.csv").read_text(encoding="utf-8")
    assert text.startswith("expert,P@5 global,P@5 local,P@5 combined,P@5 mean,")


def test_an_expert_that_is_never_right_has_no_gain(tmp_path):
    table = layer_table(overrides=FAST)
    report = {"scores": {name: {"P@5": 0.0} for name in ("combined", "D-last", "A-0")}}
    result = random_result("A-0", "A-0", report=report, divergence=DIVERGENCE)
    result = LayerSweep(table, resolve(table, FAST), small_splits(), [result])
    assert result.points[0].gain is result.points[0].mean_gain is None
    assert result.write(tmp_path)


def test_sweep_on_the_tiny_corpus(tmp_path):
    table = layer_table(overrides=FAST)
    recipes = resolve(table, [*FAST, "train.epochs=1"])
    splits = small_splits()
    conditions = Conditions("cpu", divergence=True)
    runner = variant_runner(table, recipes, splits, conditions, out=tmp_path)
    result = LayerSweep(table, recipes, splits, runner.run())
    assert [point.layer for point in result.points] == [0, 1, 2]
    assert all(0 < point.jsd < 0.7 for point in result.points)
    assert all(point.gold_kl > 0 for point in result.points)


@pytest.mark.slow
def test_sweep_on_icd10cm_in_a_reduced_setting(tmp_path):
    """The embeddings and the last layer of MiniLM, frozen, on a part of the texts, on a CPU."""
    loaded = load_builtin("icd10cm")
    random = np.random.default_rng(0)
    train, test = (
        corpus.take(random.choice(len(corpus), size, replace=False))
        for corpus, size in ((loaded.train, 400), (loaded.test, 100))
    )
    splits = Splits(train, test=test)
    overrides = [
        "encoder.max_length=16",
        "encoder.freeze=true",
        "attention.key_size=64",
        "attention.hidden_size=64",
        "train.epochs=1",
        "train.batch_size=8",
        "train.rates.classifier=1e-2",
        "train.rates.attention=3e-3",
        "labels.min_count=5",
    ]
    table = layer_table(overrides=overrides)
    assert len(table.variants) == 7
    recipes = resolve(table, overrides)
    conditions = Conditions("cpu", divergence=True)
    runner = variant_runner(table, recipes, splits, conditions, out=tmp_path)
    runner.run(on_layers(table, [0, 6]))
    result = LayerSweep(table, recipes, splits, runner.results())
    assert [point.layer for point in result.points] == [0, 6]
    frequent = {
        label
        for label, _ in Counter(label for labels in train.labels() for label in labels).most_common(
            5
        )
    }
    always_the_same = np.mean([len(frequent & set(labels)) / 5 for labels in test.labels()])
    for point in result.points:
        assert point.combined > always_the_same
        assert 0 < point.jsd < np.log(2)
        assert 0 < point.bernoulli_jsd < point.jsd
    assert result.write(tmp_path)

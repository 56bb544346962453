"""Runs of several processes, with sharded labels, encoders, or both, are those of one process."""

import json

import pytest
import torch

from glocal.cluster.encoder_shards import chunk_bounds
from glocal.cluster.sharded_training import fit_sharded
from glocal.errors import ConfigError, TrainingError
from glocal.train.loop import Loop
from tests.cli.conftest import invoke
from tests.cluster import fit_worker
from tests.cluster.groups import torchrun
from tests.tiny import tiny_corpus, tiny_recipe
from tests.train.runs import entries, losses, train, weights

SETTINGS = ["train.averaging=0.5", "train.evaluations=4", "train.clip_norm=0.5", "train.epochs=6"]
# Labels join the clusters above them in the middle of the run.
SETTINGS += ["candidates.mode=clusters", "candidates.cluster_size=2", "candidates.picked=3"]
SETTINGS += ["candidates.levels=2", "candidates.branching=2", "candidates.coarse=0.6"]

LABELS, ENCODER = {"labels": True}, {"encoder": True}
SHARDINGS = [
    pytest.param({}, id="documents"),
    pytest.param(LABELS, id="labels"),
    pytest.param(ENCODER, id="encoder"),
    pytest.param({**LABELS, **ENCODER}, id="both"),
]


@pytest.mark.parametrize(("n", "ranks"), [(1, 2), (5, 4), (7, 2), (8, 4), (0, 2)])
def test_rows_of_the_encoder_are_divided_as_fsdp_does(n, ranks):
    rows = torch.arange(n)
    parts = [*rows.chunk(ranks), *[rows[:0]] * ranks][:ranks]
    for rank, part in enumerate(parts):
        assert rows[slice(*chunk_bounds(n, rank, ranks))].equal(part)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    out = tmp_path_factory.mktemp("alone") / "model"
    train(tiny_recipe("glocalxml", *SETTINGS), out, dev=tiny_corpus(9, seed=1))
    return out


def assert_equal_runs(found, expected):
    assert losses(found) == pytest.approx(losses(expected), rel=1e-4)
    for name, tensor in weights(expected).items():
        torch.testing.assert_close(weights(found)[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_a_run_continues_on_more_and_fewer_processes(sharding, alone, tmp_path, monkeypatch):
    """One process starts it, two go on, a killed one ends it, and one finishes it."""
    out = tmp_path / "model"
    options = {"out": str(out), "overrides": SETTINGS, "resume": True, **sharding}
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_step", Loop._step)
        fit_worker.main(**options, stop_at=5)
    said = torchrun(2, "tests.cluster.fit_worker", json.dumps({**options, "kill_at": 22}), check=0)
    assert "error: another process of the run was lost" in said.stderr
    assert not out.exists()
    (checkpoint,) = (tmp_path / "model.run").glob("checkpoint-*")
    assert len(list(checkpoint.glob("rows-*-of-2.safetensors"))) == (2 if sharding else 0)
    fit_worker.main(**options)
    assert_equal_runs(out, alone)


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_sharded_encoder_gives_the_run_of_one_process(ranks, tmp_path):
    """Gradients of parts of a batch add up, and the best of averaged weights are kept."""
    settings = [*SETTINGS[:4], "train.accumulation=2", "encoder.gradient_checkpointing=true"]
    train(tiny_recipe("glocalxml", *settings), tmp_path / "one", dev=tiny_corpus(9, seed=1))
    run = {"out": str(tmp_path / "many"), "overrides": settings, **ENCODER}
    torchrun(ranks, "tests.cluster.fit_worker", json.dumps(run))
    assert_equal_runs(tmp_path / "many", tmp_path / "one")
    for found, expected in zip(entries(tmp_path / "many"), entries(tmp_path / "one"), strict=True):
        assert found.get("scores") == pytest.approx(expected.get("scores"), abs=1e-5)


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        (
            "glocalxml",
            ["encoder.document_length=64", "encoder.overlap=4"],
            "encoder.document_length=0",
        ),
        ("glocalxml", ["train.compile=true"], "train.compile=false"),
        ("attentionxml", ["encoder.name=bilstm"], "has no list of layers"),
    ],
)
def test_encoders_that_cannot_be_sharded(tmp_path, recipe, overrides, message):
    with pytest.raises(ConfigError, match=message):
        fit_sharded(
            tiny_recipe(recipe, *overrides),
            tiny_corpus(),
            encoder=True,
            out=tmp_path / "model",
            device="cpu",
        )


def test_a_checkpoint_for_other_labels_is_one_line(tmp_path, monkeypatch):
    out = tmp_path / "model"
    monkeypatch.setattr(Loop, "_step", Loop._step)
    fit_worker.main(out=str(out), overrides=SETTINGS, stop_at=5, labels=True)
    corpus = tiny_corpus(9, seed=1)
    with pytest.raises(
        TrainingError, match="had another recipe or other data, such as other labels"
    ):
        fit_sharded(
            tiny_recipe("glocalxml", *SETTINGS),
            corpus,
            labels=True,
            out=out,
            resume=True,
            dev=corpus,
            device="cpu",
        )


@pytest.mark.slow
def test_the_command(tmp_path):
    texts = tmp_path / "texts.jsonl"
    texts.write_text(
        "".join(
            json.dumps({"id": d.id, "text": d.text, "labels": d.labels}) + "\n"
            for d in tiny_corpus().documents()
        )
    )
    small = ["encoder.name=random:tiny", "encoder.max_length=16", "train.epochs=1"]
    settings = [part for setting in small for part in ("-s", setting)]
    out = tmp_path / "model"
    sharded = ["--shard-encoder", "--shard-labels", "--device", "cpu", "--out", out]
    found = invoke("train", texts, "--recipe", "glocalxml", *settings, *sharded)
    assert found.exit_code == 0, found.stderr
    assert (out / "model.safetensors").is_file()

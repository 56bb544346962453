"""Labels sharded over processes give what one process gives."""

import itertools
import json

import pytest
import torch

from glocal.cluster.label_shards import shard_labels, slice_bounds
from glocal.cluster.sharded_training import fit_sharded
from glocal.config import load_recipe
from glocal.errors import ConfigError
from tests.cluster.groups import torchrun
from tests.cluster.shard_worker import SHARDED
from tests.systems.test_contract import Built
from tests.tiny import tiny_corpus, tiny_recipe
from tests.train.runs import losses, train, weights

SETTINGS = ["train.averaging=0.5", "train.evaluations=4", "train.clip_norm=0.5", "train.epochs=6"]


@pytest.mark.parametrize(("n", "ranks"), [(1, 1), (7, 2), (7, 3), (4, 4), (501_000, 8)])
def test_slices_are_even_and_cover_the_labels(n, ranks):
    bounds = [slice_bounds(n, rank, ranks) for rank in range(ranks)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == n
    assert all(first[1] == second[0] for first, second in itertools.pairwise(bounds))
    sizes = [stop - start for start, stop in bounds]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_loss_gradients_and_best_labels_are_those_of_one_process(ranks, tmp_path):
    torchrun(ranks, "tests.cluster.shard_worker", tmp_path)
    assert len(list(tmp_path.iterdir())) == ranks * len(SHARDED)


def test_fewer_labels_than_processes():
    built = Built(("glocalxml", "full"))
    with pytest.raises(ConfigError, match="13 labels cannot be sharded over 16 processes"):
        shard_labels(built.system, 0, 16)


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        ("glocalxml", ["candidates.mode=shortlist"], "candidates.mode=full"),
        ("glocalxml", ["train.budget=1m"], "time budget"),
        ("glocalxml", ["train.members=2"], "train.members=1"),
        ("fast", [], "no label parameters"),
    ],
)
def test_what_cannot_be_sharded_is_refused(tmp_path, recipe, overrides, message):
    recipe = load_recipe("fast") if recipe == "fast" else tiny_recipe(recipe, *overrides)
    with pytest.raises(ConfigError, match=message):
        fit_sharded(recipe, tiny_corpus(), out=tmp_path / "model", device="cpu")


def run(ranks, out, **options):
    found = torchrun(
        ranks, "tests.cluster.fit_worker",
        json.dumps({"out": str(out), "overrides": SETTINGS, **options}),
        check="kill_at" not in options,
    )  # fmt: skip
    return found.stdout + found.stderr


def assert_close(found, expected):
    assert losses(found) == pytest.approx(losses(expected), rel=1e-4)
    for name, tensor in weights(expected).items():
        torch.testing.assert_close(weights(found)[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    out = tmp_path_factory.mktemp("alone") / "model"
    recipe = tiny_recipe("glocalxml", "candidates.mode=full", *SETTINGS)
    train(recipe, out, dev=tiny_corpus(9, seed=1))
    return out


@pytest.mark.slow
@pytest.mark.dist
def test_a_run_continues_on_more_and_fewer_processes(alone, tmp_path):
    """Two processes start it, four go on, a killed one ends it, and one finishes it.

    Processes ask each other every ten steps whether to stop.
    """
    out = tmp_path / "model"
    assert "stopped" in run(2, out, stop_at=5)
    (checkpoint,) = (tmp_path / "model.run").glob("checkpoint-*")
    assert len(list(checkpoint.glob("rows-*-of-2.safetensors"))) == 2
    assert "stopped" in run(4, out, resume=True, stop_at=15)
    said = run(2, out, resume=True, kill_at=22)
    assert "error: another process of the run was lost" in said
    assert not out.exists()
    run(1, out, resume=True)
    assert_close(out, alone)

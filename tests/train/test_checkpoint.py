"""What a checkpoint holds, and what happens when it cannot be written or read."""

import errno
import json

import pytest
import torch

from glocal.data.corpus import Corpus
from glocal.errors import Interrupted, ModelError, TrainingError
from glocal.storage.tensors import write_tensors
from glocal.train import checkpoint
from glocal.train.checkpoint import RunFolder, seed_everything
from tests.tiny import tiny_corpus, tiny_recipe
from tests.train.runs import Recorder, assert_same_run, train

DEV = tiny_corpus(12, seed=1)
FULL = OSError(errno.ENOSPC, "No space left on device")


def fail_after(monkeypatch, target, name, calls):
    """Let a function work so many times, then find the disk full."""
    original, done = getattr(target, name), []

    def limited(*arguments, **options):
        done.append(arguments)
        if len(done) > calls:
            raise FULL
        return original(*arguments, **options)

    monkeypatch.setattr(target, name, limited)


@pytest.fixture
def unfinished(tmp_path):
    with pytest.raises(Interrupted):
        train(tiny_recipe("glocalxml"), tmp_path / "m", dev=DEV, listener=Recorder(stop_at=5))
    return tmp_path / "m.run"


def test_it_holds_tensors_and_json_and_no_pickle(unfinished):
    names = {path.name for path in (unfinished / "checkpoint-5").iterdir()}
    parts = {"model", "optimizer", "average", "random-0"}
    assert names == {*(f"{part}.safetensors" for part in parts), "state.json"}
    others = {path.name for path in unfinished.iterdir()}
    assert others == {"checkpoint-5", "best.safetensors", "train_log.jsonl"}
    for path in (unfinished / "checkpoint-5").glob("*.safetensors"):
        assert path.read_bytes()[8:9] == b"{"  # a JSON header, not a pickle
    state = json.loads((unfinished / "checkpoint-5" / "state.json").read_text())
    assert (state["step"], state["best_step"]) == (5, 4)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "random-0.safetensors", "state.json"]
)
@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_a_damaged_checkpoint_is_one_clear_error(unfinished, name, damage):
    path = unfinished / "checkpoint-5" / name
    path.write_bytes(path.read_bytes()[:40]) if damage == "cut" else path.unlink()
    with pytest.raises(TrainingError, match=r"checkpoint-5 cannot be read.*overwrite=True"):
        train(tiny_recipe("glocalxml"), unfinished.with_name("m"), dev=DEV, resume=True)


def test_a_checkpoint_for_other_labels_is_refused(unfinished, tmp_path):
    other = Corpus.from_texts(tiny_corpus().texts(0, 64), [["x", "y"]] * 64)
    with pytest.raises(TrainingError, match="had another recipe or other data") as error:
        train(tiny_recipe("glocalxml"), tmp_path / "m", corpus=other, dev=DEV, resume=True)
    assert "\n" not in str(error.value)


def test_what_a_kill_left_half_written_is_ignored(unfinished, tmp_path):
    half = unfinished / ".checkpoint-8.abc.tmp"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    log = unfinished / "train_log.jsonl"
    log.write_text(log.read_text() + '{"step": 6, "loss": 1.0}\n{"step": 7, "lo')
    train(tiny_recipe("glocalxml"), tmp_path / "m", dev=DEV, resume=True)
    train(tiny_recipe("glocalxml"), tmp_path / "whole", dev=DEV)
    assert_same_run(tmp_path / "whole", tmp_path / "m")
    assert not unfinished.exists()


@pytest.mark.parametrize(
    ("target", "name", "calls"),
    [
        (checkpoint, "write_tensors", 1),  # in the first checkpoint
        (checkpoint, "write_tensors", 5),  # in the second one
        (checkpoint, "replace_dir", 1),
        (checkpoint, "atomic_write", 0),  # the best weights, before any checkpoint
    ],
)
def test_a_full_disk_costs_the_work_since_the_last_checkpoint(
    tmp_path, monkeypatch, target, name, calls
):
    settings = ["train.checkpoints=1", "train.evaluations=8"]
    recipe = tiny_recipe("glocalxml", *settings)
    with monkeypatch.context() as patch:
        fail_after(patch, target, name, calls)
        with pytest.raises(TrainingError, match="No space left on device") as error:
            train(recipe, tmp_path / "m", dev=DEV)
    assert str(tmp_path / "m.run") in str(error.value)
    assert "run it again" in str(error.value)
    assert not list((tmp_path / "m.run").glob(".*"))
    train(recipe, tmp_path / "m", dev=DEV, resume=True)
    train(recipe, tmp_path / "whole", dev=DEV)
    assert_same_run(tmp_path / "whole", tmp_path / "m")


def test_a_disk_full_at_the_end_keeps_the_old_model_and_the_run(tmp_path, monkeypatch):
    recipe = tiny_recipe("glocalxml", "train.seed=3")
    out = tmp_path / "m"
    train(tiny_recipe("glocalxml"), out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with monkeypatch.context() as patch:
        patch.setattr("glocal.storage.weights.write_tensors", _full)
        with pytest.raises(ModelError, match="No space left on device; nothing there was changed"):
            train(recipe, out, overwrite=True)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    train(recipe, out, overwrite=True, resume=True)
    train(recipe, tmp_path / "whole")
    assert_same_run(tmp_path / "whole", out)


def _full(*_, **__):
    raise FULL


def test_the_newest_checkpoint_is_the_one_of_the_highest_step(tmp_path):
    folder = RunFolder(tmp_path / "m")
    assert folder.latest() is None
    for name in ("checkpoint-9", "checkpoint-10", ".checkpoint-11.tmp", "checkpoint-x"):
        (folder.path / name).mkdir(parents=True)
    assert folder.latest() == folder.path / "checkpoint-10"


@pytest.mark.parametrize("seed", [0, 2**32 + 5])
def test_any_seed_can_be_used_and_processes_draw_differently(seed):
    draws = []
    for rank in (0, 1, 0):
        seed_everything(seed, rank)
        draws.append(torch.rand(4))
    assert draws[0].equal(draws[2])
    assert not draws[0].equal(draws[1])


def test_tensors_are_as_readable_as_other_new_files(tmp_path):
    (tmp_path / "other").write_text("")
    write_tensors({"a": torch.zeros(3)}, tmp_path / "a.safetensors")
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode

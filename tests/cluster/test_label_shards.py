"""Labels sharded over processes give what one process gives."""

import errno
import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import distributed

from glocal.cluster import sharded_folder
from glocal.cluster.label_shards import GroupSlice, slice_bounds
from glocal.cluster.sharded_folder import ShardedRunFolder
from glocal.cluster.sharded_training import fit_sharded
from glocal.config import load_recipe
from glocal.errors import ConfigError, GlocalError, TrainingError
from glocal.label_slice import EVERY_LABEL, LabelPart
from tests.cluster import shard_worker
from tests.cluster.groups import torchrun
from tests.systems.test_contract import CASES, Built
from tests.tiny import tiny_corpus, tiny_recipe


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
    if ranks == 1:  # a group of this process alone
        shard_worker.main(tmp_path, store=distributed.HashStore(), rank=0, world_size=1)
    else:
        torchrun(ranks, "tests.cluster.shard_worker", tmp_path)
    assert len(list(tmp_path.iterdir())) == ranks * len(CASES)


def test_fewer_labels_than_processes():
    with pytest.raises(ConfigError, match="13 labels cannot be sharded over 16 processes"):
        Built(("glocalxml", "full"), here=GroupSlice(0, 16))


def test_label_clusters_inside_a_mixture_cannot_be_sharded():
    with pytest.raises(ConfigError, match="the labels of the expert D-last cannot be sharded"):
        Built(("glocalxml", "full"), "document.head=aplc", here=GroupSlice(0, 2))


@pytest.mark.parametrize(("n", "width"), [(3, 2), (5_000, 3), (12_288, 1), (12_289, 5)])
def test_rows_are_drawn_as_in_one_process(n, width):
    def draw(here):
        torch.manual_seed(0)
        return here.draw(n, width, 0.02), torch.rand(1)

    expected, after = draw(EVERY_LABEL)
    parts = [draw(GroupSlice(rank, 3)) for rank in range(3)]
    assert torch.cat([rows for rows, _ in parts]).equal(expected)
    assert all(other.equal(after) for _, other in parts)


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        ("glocalxml", ["train.budget=1m"], "time budget"),
        ("glocalxml", ["train.members=2"], "train.members=1"),
        ("fast", [], "no network to shard"),
    ],
)
def test_what_cannot_be_sharded_is_refused(tmp_path, recipe, overrides, message):
    recipe = load_recipe("fast") if recipe == "fast" else tiny_recipe(recipe, *overrides)
    with pytest.raises(ConfigError, match=message):
        fit_sharded(recipe, tiny_corpus(), labels=True, out=tmp_path / "model", device="cpu")


class Rows(torch.nn.Module):
    """A system of one label matrix."""

    def __init__(self, rows):
        super().__init__()
        self.weight = torch.nn.Parameter(rows)

    def label_parts(self):
        return [LabelPart(self, ("weight",))]


def together(ranks, act):
    """Have threads act as the processes of a group, which all end when one fails."""
    meeting = threading.Barrier(ranks)

    def acting(rank):
        try:
            return act(rank, meeting.wait)
        except GlocalError:
            meeting.abort()
            raise

    with ThreadPoolExecutor(ranks) as pool:
        return [pool.submit(acting, rank) for rank in range(ranks)]


def save_best(out, rows, ranks):
    """Have processes save their rows of a matrix and something shared."""

    def act(rank, wait):
        folder = ShardedRunFolder(out, rank, ranks, wait)
        system = Rows(rows[slice(*slice_bounds(len(rows), rank, ranks))])
        folder.use_system(system)
        folder.save_best({**system.state_dict(), "shared": torch.arange(3)})

    return together(ranks, act)


def test_weights_are_read_by_any_number_of_processes(tmp_path):
    rows = torch.rand(11, 2)
    for done in save_best(tmp_path / "model", rows, 4):
        done.result()
    for ranks in (1, 2, 3, 4):
        folders = [ShardedRunFolder(tmp_path / "model", rank, ranks, int) for rank in range(ranks)]
        for folder in folders:
            folder.use_system(Rows(rows))  # which of its tensors are sharded
        found = [folder.load_best() for folder in folders]
        assert torch.cat([part["weight"] for part in found]).equal(rows)
        assert all(part["shared"].equal(torch.arange(3)) for part in found)


def test_a_full_disk_of_one_process_keeps_the_weights_before(tmp_path, monkeypatch):
    rows = torch.rand(11, 2)
    save_best(tmp_path / "model", rows, 2)
    write = sharded_folder.write_tensors

    def full(tensors, path):
        if path.name == "rows-1-of-2.safetensors":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(tensors, path)

    monkeypatch.setattr(sharded_folder, "write_tensors", full)
    first, second = save_best(tmp_path / "model", rows + 1, 2)
    with pytest.raises(TrainingError, match=r"model\.run: No space left on device; free some"):
        second.result()
    assert isinstance(first.exception(), threading.BrokenBarrierError)  # it is not left waiting
    assert ShardedRunFolder(tmp_path / "model", 0, 1, int).load_best()["weight"].equal(rows)

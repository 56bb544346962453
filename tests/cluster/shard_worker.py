"""One process of a group that shards systems: `python -m tests.cluster.shard_worker FOLDER`.

Compares what a sharded system computes with the whole system, in the same process. Several cases
share a process, as most of its seconds go into starting it.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import distributed

from glocal.cluster.encoder_shards import EncoderShards, local_part
from glocal.cluster.label_shards import (
    GroupSlice,
    join_labels,
    label_tensor_names,
    slice_bounds,
)
from glocal.encoders.encoder import layers_path
from tests.systems.test_contract import CASES, Built, parts_of


def slice_of(tensor, rank, ranks):
    return tensor[slice(*slice_bounds(len(tensor), rank, ranks))]


def assert_same(found, expected):
    for part, other in zip(parts_of(found), parts_of(expected), strict=True):
        np.testing.assert_array_equal(part.indices, other.indices)
        np.testing.assert_allclose(part.scores, other.scores, atol=1e-5)


def compare(case, rank, ranks):
    built = Built(case)
    system, batch = built.system, built.batch()
    whole = {name: tensor.clone() for name, tensor in system.state_dict().items()}
    loss, gradients = built.gradients([batch])
    experts = system.expert_names
    some = np.tile(np.array([[3, 0, -1, 11]]), (len(built.tokens), 1))
    allowed = np.arange(system.n_labels) % 3 == 1
    asked = [
        {"k": 7, "experts": experts},
        {"k": system.n_labels, "experts": experts},  # beyond any shortlist
        {"k": 4, "experts": experts, "candidates": some},
        {"k": 5, "experts": experts, "allowed": allowed},
    ]
    best = [built.scores(**options) for options in asked]

    built = Built(case, here=GroupSlice(rank, ranks))
    system = built.system
    names = label_tensor_names(system)
    for name, tensor in system.state_dict().items():
        own = slice_of(whole[name], rank, ranks) if name in names else whole[name]
        assert tensor.equal(own), name
    assert len(names) > 1
    sharded_loss, sharded_gradients = built.gradients([batch])
    assert abs(sharded_loss - loss) <= 1e-5 * abs(loss), (case, sharded_loss, loss)
    assert sharded_gradients.keys() == gradients.keys()
    for name, expected in gradients.items():
        own = slice_of(expected, rank, ranks) if name in names else expected
        found = sharded_gradients[name]
        torch.testing.assert_close(found, own, rtol=1e-5, atol=1e-5, msg=f"{case} {name}")
    for options, expected in zip(asked, best, strict=True):
        assert_same(built.scores(**options), expected)

    join_labels(system, rank, ranks)
    if rank == 0:
        for name, tensor in system.state_dict().items():
            assert tensor.equal(whole[name]), name
        assert_same(built.scores(**asked[0]), best[0])


def compare_encoder(case, rank, ranks):
    """Compare a sharded encoder, on this process's documents, with one that reads all of them."""
    built = Built(case)
    if layers_path(built.system.encoder.model) is None:
        return
    best = built.scores()
    documents = np.arange(len(built.tokens))
    divisor = built.system.denominator(built.gold, documents)
    parts = [documents[part::ranks] for part in range(ranks)]
    batches = [built.batch(part, denominator=divisor) for part in parts]
    loss, gradients = built.gradients(batches)
    expected = {n: g for n, g in gradients.items() if n.startswith("encoder.")}
    n_weights = sum(p.numel() for p in built.system.encoder.parameters())

    built = Built(case)
    system = built.system
    shards = EncoderShards(system, torch.device("cpu"))
    n_local = sum(local_part(p).numel() for p in system.encoder.parameters())
    assert abs(n_local - n_weights / ranks) < 0.05 * n_weights
    own = built.batch(parts[rank], denominator=divisor / ranks)
    own_loss, gradients = built.gradients([own])
    total = torch.tensor(own_loss / ranks)
    distributed.all_reduce(total)
    assert abs(float(total) - loss) <= 1e-5 * abs(loss), (case, float(total), loss)
    found = {n: g.full_tensor() for n, g in gradients.items() if n.startswith("encoder.")}
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name], gradient, rtol=1e-5, atol=1e-5, msg=f"{case} {name}"
        )
    with shards.gathered(system):
        assert_same(built.scores(), best)
    assert all(p.is_meta for p in shards._whole.parameters())  # they take no memory any more


def main(folder, **group):
    distributed.init_process_group("gloo", **group)
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    for case in CASES:
        compare(case, rank, ranks)
        compare_encoder(case, rank, ranks)
        (folder / f"{'-'.join(case)}-{rank}-of-{ranks}").touch()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

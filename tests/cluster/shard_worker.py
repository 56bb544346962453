"""One process of a group that shards labels: `python -m tests.cluster.shard_worker FOLDER`.

Compares what a sharded system computes with the whole system, in the same process. Several cases
share a process, as most of its seconds go into starting it.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import distributed

from glocal.cluster.label_shards import (
    join_labels,
    label_tensor_names,
    shard_labels,
    slice_bounds,
)
from tests.systems.test_contract import Built, parts_of

SHARDED = [("glocalxml", "full"), ("glocalxml", "tied"), ("me-xml", "full"), ("aplc-xlnet", "full")]
K = 7


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
    best = built.scores(k=K, experts=experts)
    some = np.tile(np.array([[3, 0, -1, 11]]), (len(built.tokens), 1))
    chosen = built.scores(k=4, candidates=some, experts=experts)

    shard_labels(system, rank, ranks)
    names = label_tensor_names(system)
    for name, parameter in system.named_parameters():
        if name in names and ranks > 1:
            assert len(parameter) <= -(-len(whole[name]) // ranks), name
    sharded_loss, sharded_gradients = built.gradients([batch])
    assert abs(sharded_loss - loss) <= 1e-5 * abs(loss), (case, sharded_loss, loss)
    assert sharded_gradients.keys() == gradients.keys()
    for name, expected in gradients.items():
        own = slice(*slice_bounds(len(expected), rank, ranks)) if name in names else slice(None)
        found = sharded_gradients[name]
        torch.testing.assert_close(found, expected[own], rtol=1e-5, atol=1e-5, msg=f"{case} {name}")
    assert_same(built.scores(k=K, experts=experts), best)
    assert_same(built.scores(k=4, candidates=some, experts=experts), chosen)

    join_labels(system, ranks)
    for name, tensor in system.state_dict().items():
        assert tensor.equal(whole[name]), name
    np.testing.assert_array_equal(built.scores(k=K).indices, best.indices)


def main(folder):
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    for case in SHARDED:
        compare(case, rank, ranks)
        (folder / f"{'-'.join(case)}-{rank}-of-{ranks}").touch()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

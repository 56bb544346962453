import pytest

from glocal.losses.memory import ChunkUse


@pytest.mark.parametrize(
    ("use", "megabytes"),
    [
        ("EXPERT_LOGITS", (4096, 16, 1024)),
        ("CLUSTER_LOSS", (1024, 16, 64)),
        ("CLUSTER_TOPK", (512, 2, 64)),
    ],
)
def test_the_largest_tensor_of_a_chunk_takes_this_much_in_fp32(use, megabytes):
    limits = [ChunkUse[use].limit(device) for device in ("cuda", "cpu", "mps")]
    assert [4 * limit / 2**20 for limit in limits] == list(megabytes)

"""Memory limits: the largest (documents × labels × width) tensor of a label chunk, by its use."""

from __future__ import annotations

from enum import Enum


class ChunkUse(Enum):
    """The uses of label chunks; each value holds the elements on CUDA, on a CPU and elsewhere."""

    EXPERT_LOGITS = (1 << 30, 1 << 22, 1 << 28)
    CLUSTER_LOSS = (1 << 28, 1 << 22, 1 << 24)
    CLUSTER_TOPK = (1 << 27, 1 << 19, 1 << 24)  # on a CPU, as much as its caches hold

    def limit(self, device_type: str) -> int:
        """Return how many elements the largest tensor of a chunk may have on a device."""
        cuda, cpu, other = self.value
        return {"cuda": cuda, "cpu": cpu}.get(device_type, other)

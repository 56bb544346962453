"""Memory and exchanged bytes of each process where labels or the encoder are sharded.

    for n in 1 2 4; do torchrun --nproc-per-node $n benchmarks/label_shards.py --labels 500000; done
    torchrun --nproc-per-node 2 benchmarks/label_shards.py --labels 1000 --encoder random:minilm

Builds the slice of each process of a mixture of a document and a label-attention expert on a tiny
encoder and takes two optimizer steps. The bytes of label parameters, gradients and moments are
counted from the tensors; the resident size is the system's, before the labels and at its largest.
Exchanged bytes are those of the all-reduced tensors. `--clusters` scores the labels of clusters.
With `--encoder` it is the encoder that is sharded, and each process reads a part of the documents.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import distributed

from glocal.cluster.encoder_shards import EncoderShards, local_part
from glocal.cluster.label_shards import GroupSlice, label_tensor_names
from glocal.config import load_recipe
from glocal.config.resolve import check, resolve
from glocal.data.batches import Collator
from glocal.data.tokens import TokenStore
from glocal.encoders.read_facts import read_encoder_facts
from glocal.label_slice import EVERY_LABEL, LabelSlice
from glocal.systems.registry import build_system
from glocal.systems.system import LabelStatistics, System, TrainingPosition

SETTINGS = [
    "encoder.max_length=32", "encoder.dropout=0.0",
    "attention.key_size=64", "attention.hidden_size=64",
    "train.precision=fp32", "train.label_precision=fp32",
]  # fmt: skip


class CountedSum:
    """Counts the bytes of all-reduced tensors."""

    def __init__(self) -> None:
        self.bytes, self._reduce = 0, distributed.all_reduce
        distributed.all_reduce = self  # type: ignore[assignment]

    def __call__(self, tensor: torch.Tensor, *arguments: object, **options: object) -> object:
        """Count and reduce."""
        self.bytes += tensor.numel() * tensor.element_size()
        return self._reduce(tensor, *arguments, **options)  # type: ignore[arg-type]


def build(
    n_labels: int, mode: str, here: LabelSlice, encoder: str = "random:tiny"
) -> tuple[System, Collator]:
    """Return a mixture with random weights and 8 documents of 32 tokens."""
    random = np.random.default_rng(0)
    settings = [*SETTINGS, f"encoder.name={encoder}", f"candidates.mode={mode}"]
    recipe = load_recipe("glocalxml", settings)
    settled = resolve(check(recipe, read_encoder_facts), n_labels=n_labels, device_type="cpu")
    counts = random.integers(1, 100, n_labels)
    torch.manual_seed(0)
    system, tokenizer = build_system(settled, LabelStatistics(counts, 1_000_000, here=here))
    tokens = TokenStore.in_memory(random.integers(0, tokenizer.vocab_size, (8, 32)).tolist())
    from scipy.sparse import csr_matrix

    rows, columns = np.repeat(np.arange(8), 5), random.integers(0, n_labels, 40)
    gold = csr_matrix((np.ones(40), (rows, columns)), shape=(8, n_labels))
    return system, Collator(tokens, tokenizer.facts, gold=gold, n_labels=n_labels)


def resident(kind: str) -> int:
    """Return this process's resident size in MiB, now (`VmRSS`) or at its largest (`VmHWM`)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith(kind))


def main() -> None:
    """Measure and print one line for each process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, default=500_000)
    parser.add_argument("--clusters", action="store_true")
    parser.add_argument("--encoder", help="shard this encoder in place of the labels")
    arguments = parser.parse_args()
    labels, mode = arguments.labels, "clusters" if arguments.clusters else "full"
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    torch.set_num_threads(1)
    encoder = arguments.encoder
    here = GroupSlice(rank, ranks) if ranks > 1 and encoder is None else EVERY_LABEL
    build(1_000, mode, here)  # the libraries are in memory
    gc.collect()
    before = resident("VmRSS")
    system, collator = build(labels, mode, here, encoder or "random:tiny")
    system.train()
    if encoder is None:
        names, batch = label_tensor_names(system), collator(np.arange(8), denominator=8.0)
    else:
        names = {f"encoder.{name}" for name, _ in system.encoder.named_parameters()}
        batch = collator(np.arange(8)[rank::ranks], denominator=8.0 / ranks)
        if ranks > 1:
            EncoderShards(system, torch.device("cpu"))
    groups = [[p for n, p in system.named_parameters() if (n in names) == own] for own in (0, 1)]
    optimizer = torch.optim.AdamW([{"params": group} for group in groups], lr=1e-4, fused=True)
    counted, seconds = CountedSum(), 0.0
    for step in range(2):
        counted.bytes, started = 0, time.monotonic()
        optimizer.zero_grad()
        loss = system(batch, TrainingPosition(step, 2))
        loss.backward()
        loss = loss.detach()
        if encoder is not None and ranks > 1:
            for tensor in (loss, *[p.grad for p in groups[0] if p.grad is not None]):
                distributed.all_reduce(tensor)
                tensor /= ranks
        optimizer.step()
        seconds = time.monotonic() - started
    own = groups[1]
    moments = [t for p in own for t in optimizer.state[p].values()]
    gradients = [p.grad for p in own if p.grad is not None]
    tensors = [local_part(t) for t in (*own, *gradients, *moments)]
    held = sum(t.numel() * t.element_size() for t in tensors)
    found = {
        "rank": f"{rank} of {ranks}",
        "sharded_mib": round(held / 2**20, 1),
        "resident_before_mib": before,
        "resident_peak_mib": resident("VmHWM"),
        "exchanged_kib": round(counted.bytes / 1024, 1) if ranks > 1 else 0,
        "loss": round(float(loss), 4),
        "seconds": round(seconds, 2),
    }
    print(json.dumps(found), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

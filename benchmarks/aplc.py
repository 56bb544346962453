"""APLC against a flat output layer, side by side: 670K labels by Zipf's law, on the CPU.

    OMP_NUM_THREADS=2 python benchmarks/aplc.py

Prints parameters, the median time of a training step (forward, backward, AdamW) of both layers in
turn, and of pruned and unpruned prediction with closed, typical and open gates.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time

import torch

from glocal.lab.head_bench import (
    FlatHead,
    Workload,
    build_clusters,
    head_topk,
    set_gates,
    training_step,
)

PARTITIONS = {"0.1/0.2/0.7": (0.1, 0.2, 0.7), "4 equal": (0.25,) * 4}


def parameters(head):
    """How many numbers are trained."""
    return sum(p.numel() for p in head.parameters())


def show(name, flat_seconds, seconds):
    """A line with medians and their ratio."""
    flat, own = statistics.median(flat_seconds), statistics.median(seconds)
    print(f"  {name:42} {flat * 1e3:9.1f} ms {own * 1e3:9.1f} ms   {flat / own:5.2f} x")


def timed(*functions, repeats, device):
    """The seconds of each call; functions take turns, for equal conditions."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for function in functions:
        function()
    seconds = [[] for _ in functions]
    for _ in range(repeats):
        for taken, function in zip(seconds, functions, strict=True):
            wait()
            started = time.perf_counter()
            function()
            wait()
            taken.append(time.perf_counter() - started)
    return seconds


def compare_training(flat, heads, workload, device, repeats):
    """Each layer's step in turn with the flat one's."""
    step = training_step(flat, workload)
    for name, head in heads.items():
        share = parameters(head) / parameters(flat)
        print(f"  {name}: {parameters(head):,} parameters, {share:.3f} of the flat layer's")
        own = training_step(head, workload)
        show(f"training step, flat | {name}", *timed(step, own, repeats=repeats, device=device))


def compare_with_flat(flat, heads, document, k, repeats):
    """Top k of the flat layer and of each clustered one, as they are, in turn."""
    for name, head in heads.items():
        times = timed(
            lambda: head_topk(flat, document, k),
            lambda head=head: head_topk(head, document, k),
            repeats=repeats,
            device=document.device,
        )
        show(f"top {k}, flat | {name}", *times)


def compare_prediction(head, name, workload, device, k, repeats):
    """Unpruned and pruned in turn, for every state of the gates."""
    document, gold = workload.documents(), workload.gold()
    for how in ("closed", "typical", "open"):
        gated = set_gates(head, document, gold, how)
        times = timed(
            lambda gated=gated: head_topk(head, gated, k, prune=False),
            lambda gated=gated: head_topk(head, gated, k),
            repeats=repeats,
            device=device,
        )
        show(f"top {k}, {name}, gates {how}, unpruned | pruned", *times)


def main():
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=670_091)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    workload = Workload(args.labels, width=args.width, batch=args.batch, device=device)
    print(f"{args.labels:,} labels, d {args.width}, batch {args.batch}, {device}, "
          f"{torch.get_num_threads()} threads; medians, the two in turn")  # fmt: skip
    flat = FlatHead(workload).to(device)
    print(f"  flat: {parameters(flat):,} parameters")
    heads = {name: build_clusters(workload, p).to(device) for name, p in PARTITIONS.items()}
    compare_training(flat, heads, workload, device, args.steps)
    compare_with_flat(flat, heads, workload.documents(), args.k, args.repeats)
    flat.to("meta")  # its memory is not needed any more
    gc.collect()
    for name, head in heads.items():
        compare_prediction(head, name, workload, device, args.k, args.repeats)


if __name__ == "__main__":
    main()

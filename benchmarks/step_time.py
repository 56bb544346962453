"""Time of a training step on synthetic documents: eager, compiled, replayed as a CUDA graph.

    python benchmarks/step_time.py --encoder minilm --length 384 --labels 4108 --experts D-last,A-1

Prints a line per variant: median milliseconds per optimizer step (warmed up, synchronised), peak
memory, and the model FLOP/s it corresponds to.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time

import numpy as np
import torch

from glocal.config import load_recipe
from glocal.data.batches import Batch
from glocal.systems.registry import build_system
from glocal.systems.system import LabelStatistics, TrainingPosition
from glocal.train.graphs import StepGraphs
from glocal.train.optim import build_optimizer, set_rates


def make_batch(size, length, n_labels, vocabulary, device, *, padded):
    """Random tokens with five gold labels each."""
    ids = torch.randint(1000, vocabulary, (size, length))
    mask = torch.ones(size, length, dtype=torch.bool)
    if padded:
        mask[: size // 2, int(length * 0.9) :] = False
    gold = torch.randint(0, n_labels, (size, 8))
    gold[:, 5:] = -1
    return Batch(ids, mask, gold, np.arange(size), float(size), padded=padded).to(device)


def flops(recipe, system, size, length):
    """Multiply-adds of forward and backward, twice each: encoder, and label attention as folded."""
    layers = sum(
        p.numel() for n, p in system.encoder.named_parameters() if p.dim() == 2 and "embed" not in n
    )
    total = 6 * layers * size * length
    for expert in system.experts:
        if expert.name.startswith("A"):
            width = recipe.attention.key_size + recipe.attention.hidden_size
            total += 6 * size * system.n_labels * length * width
        else:
            total += 6 * size * system.n_labels * system.encoder.hidden_size
    return total


def measure(args, experts, *, how, padded):
    """Time one variant and print its line."""
    overrides = [f"encoder.name={args.encoder}", f"encoder.max_length={args.length}"]
    overrides += [f"experts={experts!r}", "candidates.mode=full"]
    recipe = load_recipe("glocalxml", overrides)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    counts = np.full(args.labels, 50)
    system, tokenizer = build_system(recipe, LabelStatistics(counts, 45_000))
    system.to(device).train()
    if device.type == "cuda" and how == "graph":
        system.encoder.compute_dtype = torch.bfloat16
    if how == "compiled":
        system.encoder.compile(dynamic=args.dynamic)
    optimizer = build_optimizer(system, recipe.train, device)
    set_rates(optimizer, 0.01)
    batch = make_batch(
        args.batch, args.length, args.labels, tokenizer.vocab_size, device, padded=padded
    )
    cast = torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else None
    graphs = StepGraphs(system, torch.bfloat16) if how == "graph" else None
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    times = []
    for step in range(args.warmup + args.steps):
        sync()
        start = time.perf_counter()
        if graphs is None or graphs.step(batch, TrainingPosition(step, 1000)) is None:
            with cast or contextlib.nullcontext():
                loss = system(batch, TrainingPosition(step, 1000))
            loss.backward()
            del loss  # a graph kept alive would tie gradients to this stream
        torch.nn.utils.clip_grad_norm_(system.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        sync()
        times.append(time.perf_counter() - start)
    median = statistics.median(times[args.warmup :])
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan")
    rate = flops(recipe, system, args.batch, args.length) / median / 1e12
    print(
        f"{'+'.join(experts):14} {how:9} "
        f"{'padded' if padded else 'full':7} {median * 1e3:8.2f} ms/step {peak:6.2f} GiB "
        f"{rate:7.1f} TFLOP/s  first step {times[0]:.1f} s"
    )


def main():
    """Time every variant asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--experts", default="D-last,A-1", help="comma-separated")
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--labels", type=int, default=4108)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--how", default="eager", help="of eager, compiled, graph; comma-separated")
    parser.add_argument("--dynamic", action="store_true", help="compile with dynamic shapes")
    args = parser.parse_args()
    experts = args.experts.split(",")
    for how in args.how.split(","):
        for padded in (False, True):
            torch.compiler.reset()
            measure(args, experts, how=how, padded=padded)


if __name__ == "__main__":
    main()

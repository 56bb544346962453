"""Time of a training step on synthetic documents: eager, compiled, replayed as a CUDA graph.

    python benchmarks/step_time.py --encoder minilm --length 384 --labels 4108 --experts D-last,A-1
    python benchmarks/step_time.py --rows eurlex,lf,wiki,million,global --how graph --plain

Prints a line per variant: median milliseconds per optimizer step (warmed up, synchronised),
documents per second, peak memory, and the model FLOP/s it corresponds to. `random:minilm`,
`random:bert-base` and `random:mpnet` are encoders of that shape with random weights, which are as
fast as trained ones. With `--plain` each variant is also measured without the fused kernel of the
label attention, with `--label-precision bf16` or `fp8` label matrices are updated chunk by chunk,
with `--profile` the kernels that take longest are listed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from glocal.config import load_recipe
from glocal.config.resolve import check, resolve
from glocal.config.rules import LEAN_LABELS
from glocal.encoders.read_facts import read_encoder_facts
from glocal.experts import label_attention_kernel
from glocal.lab.synthetic_steps import SHAPES, Shape, shape_folder, synthetic_batch
from glocal.systems.registry import build_system
from glocal.systems.system import LabelStatistics, TrainingPosition
from glocal.train.graphs import StepGraphs
from glocal.train.optim import build_optimizer, set_rates
from glocal.train.row_updates import RowUpdates, round_label_matrices

# encoder, tokens, batch, labels, experts
ROWS = {
    "eurlex": ("random:minilm", 384, 64, 4_108, "D-last,A-1"),
    "lf": ("random:bert-base", 512, 32, 30_938, "D-last,A-1"),
    "wiki": ("random:bert-base", 256, 16, 501_070, "D-last,A-1"),
    "million": ("random:bert-base", 128, 16, 3_000_000, "D-last,A-1"),
    "global": ("random:bert-base", 128, 128, 2_812_281, "D-last"),
    "largest": ("random:bert-base", 128, 128, 8_600_000, "D-last"),
    "mpnet": ("random:mpnet", 384, 32, 4_108, "D-last,A-1"),
}


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


def measure(args, *, how, padded, fused):
    """Time one variant and print its line."""
    experts = args.experts.split(",")
    overrides = [f"encoder.name={args.encoder}", f"encoder.max_length={args.length}"]
    overrides += [f"experts={experts!r}", f"candidates.mode={args.candidates}", *args.set]
    overrides += [f"train.label_precision={args.label_precision}"]
    checked = check(load_recipe("glocalxml", overrides), read_encoder_facts)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    recipe = resolve(checked, n_labels=args.labels, device_type=device.type)
    torch.manual_seed(0)
    counts = np.full(args.labels, 50)
    with device if args.labels > 100_000 else contextlib.nullcontext():  # random weights at once
        system, _ = build_system(recipe, LabelStatistics(counts, 45_000))
    system.to(device).train()
    if device.type == "cuda" and how == "graph":
        system.encoder.compute_dtype = torch.bfloat16
    if how == "compiled":
        system.encoder.compile(dynamic=args.dynamic)
    lean = args.label_precision in LEAN_LABELS
    if lean:
        round_label_matrices(system, args.label_precision)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    optimizer = build_optimizer(system, recipe.train, device)
    set_rates(optimizer, 0.01)
    updates = RowUpdates(system, optimizer) if lean else None
    shape = Shape(args.encoder, args.length, args.batch, args.labels, device)
    batch = synthetic_batch(shape, padded=padded)
    cast = torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else None
    graphs = StepGraphs(system, torch.bfloat16, updates) if how == "graph" else None
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)

    def step(number):
        if updates is not None:
            updates.start_step()
        if graphs is None or graphs.step(batch, TrainingPosition(number, 1000)) is None:
            with cast or contextlib.nullcontext():
                loss = system(batch, TrainingPosition(number, 1000))
            loss.backward()
            del loss  # a graph kept alive would tie gradients to this stream
        torch.nn.utils.clip_grad_norm_(system.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    times = []
    for number in range(args.warmup + args.steps):
        sync()
        start = time.perf_counter()
        step(number)
        sync()
        times.append(time.perf_counter() - start)
    median = statistics.median(times[args.warmup :])
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan")
    rate = flops(recipe, system, args.batch, args.length) / median / 1e12
    speed = args.batch / median
    failed = " (not recorded)" if graphs is not None and graphs.failed else ""
    print(
        f"{args.encoder.rpartition('/')[2]:10} {args.length:4} {args.batch:4} {args.labels:8} "
        f"{'+'.join(experts):11} {how:9}{'padded' if padded else 'full':7}"
        f"{'fused' if fused else 'plain':6}{args.label_precision:5}{args.candidates:9}"
        f"{median * 1e3:8.2f} ms "
        f"{speed:7.0f} docs/s {peak:6.2f} GiB {rate:6.1f} TFLOP/s  "
        f"first step {times[0]:.1f} s{failed}",
        flush=True,
    )
    if args.profile:
        profile(step, args.profile)


def profile(step, rows):
    """List the kernels that take longest, per step."""
    from torch.profiler import ProfilerActivity

    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for number in range(3):
            step(number)
        torch.cuda.synchronize()
    found = [e for e in profiler.key_averages() if e.self_device_time_total > 0]
    found.sort(key=lambda e: -e.self_device_time_total)
    busy = sum(e.self_device_time_total for e in found) / 3e3
    print(f"    {busy:.2f} ms of kernels a step, {sum(e.count for e in found) // 3} kernels")
    for event in found[:rows]:
        milliseconds, name = event.self_device_time_total / 3e3, event.key[:110]
        print(f"    {milliseconds:8.3f} ms {event.count / 3:6.1f} × {name}", flush=True)


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
    parser.add_argument("--rows", default="", help=f"of {', '.join(ROWS)}; comma-separated")
    parser.add_argument("--padded", default="no,yes", help="with padding: no, yes or both")
    parser.add_argument("--plain", action="store_true", help="also without the fused kernel")
    parser.add_argument("--label-precision", default="fp32", help="fp32, bf16 or fp8")
    parser.add_argument("--candidates", default="full", help="full, shortlist or clusters")
    parser.add_argument("--set", action="append", default=[], help="another setting, NAME=VALUE")
    parser.add_argument("--profile", type=int, default=0, help="list this many kernels")
    args = parser.parse_args()
    fits = label_attention_kernel.fits
    for row in args.rows.split(","):
        if row:
            args.encoder, args.length, args.batch, args.labels, args.experts = ROWS[row]
        shape = args.encoder.removeprefix("random:")
        if shape in SHAPES and args.encoder.startswith("random:"):
            args.encoder = f"random:{shape_folder(shape, Path(tempfile.mkdtemp()))}"
        attention = any(name.startswith("A") for name in args.experts.split(","))
        for how in args.how.split(","):
            for padded in args.padded.split(","):
                for fused in (False, True) if args.plain and attention else (True,):
                    label_attention_kernel.fits = fits if fused else lambda *_: False
                    torch.compiler.reset()
                    measure(args, how=how, padded=padded == "yes", fused=fused)
                    gc.collect()
                    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

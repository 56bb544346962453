"""A student's network on a CPU beside its teacher's: time of one text, of a batch, and size.

    OMP_NUM_THREADS=2 python benchmarks/student_speed.py --labels 22625 --length 256

The student is the network of `balanced` (MiniLM), the teacher that of `large` (MPNet), with random
weights: what a text costs does not depend on them. Both read texts of the same length; `large`
reads up to 512 tokens by default. The words model, which both have, is not part of it.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

import torch

from glocal.lab.synthetic_steps import (
    Shape,
    shape_folder,
    synthetic_batch,
    synthetic_system,
    vocabulary_of,
)

SETTINGS = ('experts=["D-last","A-last"]', "candidates.mode=full", "labels.text=off")
ENCODERS = {"student": "minilm", "teacher": "mpnet"}


def main():
    """Measure both networks and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=22_625)
    parser.add_argument("--length", type=int, default=256, help="tokens of each text")
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, encoder in ENCODERS.items():
            place = f"random:{shape_folder(encoder, Path(folder))}"
            shape = Shape(place, options.length, options.batch, options.labels)
            system, _ = synthetic_system(shape, SETTINGS)
            system.eval()
            size = sum(p.numel() * p.element_size() for p in system.parameters()) / 1e6
            with torch.inference_mode():
                found[name] = size, *(seconds(shape, system, n) for n in (1, options.batch))
            del system
    for name, (size, one, many) in found.items():
        speed = options.batch / many
        print(f"{name}: {size:.0f} MB, one text {1e3 * one:.0f} ms, {speed:.2f} texts/s in a batch")
    size, one, many = (b / a for a, b in zip(found["student"], found["teacher"], strict=True))
    print(f"teacher / student: {size:.1f} times the size, {one:.1f} and {many:.1f} times the time")


def seconds(shape, system, n_texts):
    """Return the time of the ten best labels of some texts."""
    sizes = Shape(shape.encoder, shape.length, n_texts, shape.labels)
    batch = synthetic_batch(sizes, padded=False, vocabulary=vocabulary_of(system))
    return shape.seconds(partial(system.topk, batch, 10))


if __name__ == "__main__":
    main()

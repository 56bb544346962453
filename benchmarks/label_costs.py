"""Label attention beside its dense form, and the ten best of many labels beside full scoring.

    python benchmarks/label_costs.py                    # on two CPU cores, about two minutes
    python benchmarks/label_costs.py --attention        # one of the two
    python benchmarks/label_costs.py --shortlist --labels 501070

Prints a line per figure: ours, the other, and their ratio. Labels and texts are synthetic.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from glocal.lab.shortlist_speed import shortlist_speed
from glocal.lab.speed_measures import attention_speed
from glocal.lab.synthetic_steps import Shape, shape_folder


def main():
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attention", action="store_true")
    parser.add_argument("--shortlist", action="store_true")
    parser.add_argument("--labels", type=int, default=501_070, help="of the shortlist")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16, help="texts of the label attention")
    args = parser.parse_args()
    both = args.attention == args.shortlist
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        encoder = f"random:{shape_folder('minilm', Path(folder))}"
        if both or args.attention:
            found += attention_speed(Shape(encoder, args.length, args.batch, 30_938, device))
        if both or args.shortlist:
            ways = shortlist_speed(Shape(encoder, args.length, 1, args.labels, device))
            found += ways.comparisons(args.labels)
            print("P@5 of planted labels:", ways.precisions)
    for c in found:
        print(f"{c.what}: {c.ours:.1f} {c.unit}, {c.other}: {c.theirs:.1f}; ratio {c.ratio:.1f}")


if __name__ == "__main__":
    main()

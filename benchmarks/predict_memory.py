"""Peak memory of `glocal predict`, beside the size of the model on disk.

A model of words may take 1.3 times its size and 150 MB, an exported one 500 MB in all; the script
fails where one takes more.

    python benchmarks/predict_memory.py MODEL [MODEL…] --texts FILE
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MB = 1e6
EXPORTED_MB = 500.0


def main() -> int:
    """Measure every model and print a table; return 1 where one takes more than it may."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+", help="`fast` or exported models")
    parser.add_argument("--texts", required=True, help="file of texts to tag")
    options = parser.parse_args()
    print(f"{'model':30} {'disk MB':>8} {'peak MB':>8} {'allowed':>8} {'processor':>10}")
    exceeded = False
    for model in options.models:
        size = sum(file.stat().st_size for file in model.rglob("*") if file.is_file()) / MB
        allowed = EXPORTED_MB if (model / "graph").is_dir() else 1.3 * size + 150
        peak, seconds = predict(model, options.texts)
        exceeded |= peak > allowed
        print(f"{model.name:30} {size:8.0f} {peak:8.0f} {allowed:8.0f} {seconds:8.1f} s")
    return int(exceeded)


def predict(model: Path, texts: str) -> tuple[float, float]:
    """Tag the texts; return the peak memory in MB and the processor's seconds."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["predict", str(model), texts, "-k", "5", "-o", f"{folder}/tags.jsonl"]
        process = subprocess.Popen(
            [sys.executable, "-m", "glocal", *arguments], stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: glocal {' '.join(arguments)}")
    return used.ru_maxrss * 1024 / MB, used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())

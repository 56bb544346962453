"""Start-up of `glocal predict` with `fast`, and its speed on one thread and on all of them.

Generates texts, trains a model of words with the working tree and with the other commit, and runs
`glocal predict` with each in turn, best of three: on one text, and on many with each number of
threads. Processor time is printed beside the time on the clock: on a busy machine it is the
steadier figure for start-up.

    python benchmarks/startup.py --commit e35a16d
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REPEATS = 3


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commit", default="e35a16d", help="the commit to compare with")
    parser.add_argument("--texts", type=int, default=2000, help="texts of the bulk prediction")
    parser.add_argument("--labels", type=int, default=500, help="number of labels")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = {"now": ROOT / "src", options.commit: checkout(options.commit, folder)}
        write_texts(folder, options.texts, options.labels)
        for label, source in sources.items():
            arguments = ("train", "train.jsonl", "--recipe", "fast", "--out", f"model-{label}")
            run(source, folder, *arguments)
        cores = os.cpu_count() or 1
        cases = {"one text": ("one.jsonl", cores)}
        cases |= {f"{options.texts} texts, {n} threads": ("many.jsonl", n) for n in {1, cores}}
        for case, (file, threads) in cases.items():
            report(case, compare(sources, folder, file, threads))


def checkout(commit: str, folder: Path) -> Path:
    """Unpack the sources of a commit; return the folder for PYTHONPATH."""
    archive = subprocess.run(
        ["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder / "other", filter="data")
    return folder / "other" / "src"


def write_texts(folder: Path, count: int, n_labels: int) -> None:
    """Write texts whose words tell their labels."""
    chance = random.Random(0)
    words = [f"word{number}" for number in range(10 * n_labels)]

    def row() -> str:
        labels = chance.sample(range(n_labels), 3)
        told = [f"word{10 * label + chance.randrange(10)}" for label in labels for _ in range(4)]
        text = " ".join(chance.sample(told + chance.choices(words, k=100), 100))
        return json.dumps({"text": text, "labels": [f"label{label}" for label in labels]})

    for name, size in {"train": 3 * n_labels, "many": count, "one": 1}.items():
        lines = "\n".join(row() for _ in range(size))
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")


def run(source: Path, folder: Path, *arguments: str, threads: int = 1) -> tuple[float, float]:
    """Run the command line; return seconds on the clock and of the processor."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "glocal", *arguments],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={
            **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": str(source),
            "GLOCAL_CACHE": str(folder / "cache"),
        },
    )
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used


def compare(
    sources: dict[str, Path], folder: Path, file: str, threads: int
) -> dict[str, tuple[float, float]]:
    """Return the best times of each source; they take turns, so that load hits them alike."""
    best: dict[str, tuple[float, float]] = {}
    for _ in range(REPEATS):
        for label, source in sources.items():
            found = run(source, folder, "predict", f"model-{label}", file, threads=threads)
            known = best.get(label, found)
            best[label] = (min(known[0], found[0]), min(known[1], found[1]))
    return best


def report(case: str, best: dict[str, tuple[float, float]]) -> None:
    """Print one case: seconds on the clock and of the processor, and their ratios."""
    (now, now_used), (other, other_used) = best.values()
    labels = list(best)
    print(
        f"{case}: {labels[0]} {now:.2f} s ({now_used:.2f} s of the processor), {labels[1]} "
        f"{other:.2f} s ({other_used:.2f} s); ratios {now / other:.2f} and "
        f"{now_used / other_used:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()

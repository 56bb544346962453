"""Prediction on a CPU by exported models beside another commit's torch: bulk, one text, memory.

Trains a MiniLM model (global and local expert, 128 tokens) on generated short texts with the other
commit, exports it with the working tree, and predicts long texts with all of them in turn, best of
three; about eight minutes on two cores, once the models are there. The table is printed after each
round. Processor time stands beside the time on the clock: on a busy machine it is the steadier one.

    python benchmarks/exported_speed.py --commit e35a16d
    python benchmarks/exported_speed.py --work DIR --prepare   # models alone; measure them later
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from startup import ROOT, checkout

REPEATS = 3
EXPORTS = {
    "fp32": ("--to", "onnx"),
    "int8": ("--to", "onnx", "--int8", "--dev", "dev.jsonl"),
    "openvino": ("--to", "openvino"),
}
ONE_BY_ONE = """
import json, statistics, sys, time
from glocal import Predictor
predictor = Predictor.load(sys.argv[1], device="cpu")
with open(sys.argv[2], encoding="utf-8") as file:
    texts = [json.loads(line)["text"] for line in file][: int(sys.argv[3])]
predictor.predict(texts[:1], k=5)
seconds, used = [], []
for text in texts:
    start, before = time.perf_counter(), time.process_time()
    predictor.predict([text], k=5)
    seconds.append(time.perf_counter() - start)
    used.append(time.process_time() - before)
print(json.dumps([statistics.median(seconds), statistics.median(used)]))
"""


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commit", default="e35a16d", help="the commit to compare with")
    parser.add_argument("--texts", type=int, default=800, help="texts of the bulk prediction")
    parser.add_argument("--singles", type=int, default=24, help="texts predicted one by one")
    parser.add_argument("--labels", type=int, default=4100, help="number of labels")
    parser.add_argument("--work", type=Path, help="folder to keep models in; temporary by default")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="the best of so many counts")
    parser.add_argument("--prepare", action="store_true", help="only make the models in --work")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.work or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        models = prepare(folder, options)
        if options.prepare:
            return
        bulk: dict[str, list[tuple[float, ...]]] = {name: [] for name in models}
        single: dict[str, list[tuple[float, ...]]] = {name: [] for name in models}
        for _ in range(options.repeats):
            for label, (source, model) in models.items():
                arguments = ("-m", "glocal", "predict", model, "many.jsonl", "-k", "5", "-o")
                bulk[label].append(run(source, folder, *arguments, f"{label}.jsonl"))
                child = (ONE_BY_ONE, model, "many.jsonl", str(options.singles))
                single[label].append(tuple(json.loads(output(source, folder, "-c", *child))))
            report(f"glocal predict, {options.texts} texts", bulk)
            report("one text, median", single)


def prepare(folder: Path, options: argparse.Namespace) -> dict[str, tuple[Path, str]]:
    """Make texts and models; return the sources and the model of each case."""
    now, other = ROOT / "src", folder / "other" / "src"
    if not other.exists():
        checkout(options.commit, folder)
    write_texts(folder, options.texts, options.labels)
    if not (folder / "model").exists():
        settings = ["encoder.max_length=128", "candidates.mode=full", "train.epochs=1"]
        overrides = [part for setting in settings for part in ("-s", setting)]
        arguments = ("train", "train.jsonl", "--recipe", "glocalxml", "--out", "model")
        run(other, folder, "-m", "glocal", *arguments, *overrides)
    changed = max(path.stat().st_mtime for path in now.rglob("*.py"))
    for name, arguments in EXPORTS.items():
        written = folder / name / "glocal.toml"
        if not written.exists() or written.stat().st_mtime < changed:  # by another state
            command = ("export", "model", "--out", name, "--overwrite", *arguments)
            run(now, folder, "-m", "glocal", *command)
    return {options.commit: (other, "model"), **{name: (now, name) for name in EXPORTS}}


def write_texts(folder: Path, count: int, n_labels: int) -> None:
    """Write a few short texts with every label to train on, and long ones to predict.

    No dev text has a label that the model knows, so that int8 is kept in all layers: only its speed
    is measured here.
    """
    chance = random.Random(0)
    words = [
        f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("le", "ra", "ton", "k")
    ]
    rows = [
        {"text": chance.choice(words), "labels": [f"l{i}" for i in range(start, start + 50)]}
        for start in range(0, n_labels, 50)
    ]
    dev = [{"text": chance.choice(words), "labels": ["unknown"]} for _ in range(8)]
    long = [
        {"text": " ".join(chance.choices(words, k=chance.randint(128, 200)))} for _ in range(count)
    ]
    for name, some in {"train": rows, "dev": dev, "many": long}.items():
        lines = "\n".join(map(json.dumps, some))
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")


def run(source: Path, folder: Path, *arguments: str) -> tuple[float, float, float]:
    """Run Python; return seconds on the clock, of the processor, and the peak memory in MB."""
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(source, folder),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(arguments)}\n{said}")
    seconds = time.monotonic() - started
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def output(source: Path, folder: Path, *arguments: str) -> str:
    """Run Python; return what it printed."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(source, folder),
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def environment(source: Path, folder: Path) -> dict[str, str]:
    """Return the variables of a process that uses one source tree and no cache of the user's."""
    return {**os.environ, "PYTHONPATH": str(source), "GLOCAL_CACHE": str(folder / "cache")}


def report(title: str, measured: dict[str, list[tuple[float, ...]]]) -> None:
    """Print the best of each case and its ratio to the first one."""
    print(f"\n{title}, best of {len(next(iter(measured.values())))}", flush=True)
    print(f"{'':10} {'seconds':>9} {'speed':>7} {'processor':>10} {'speed':>7} {'peak MB':>8}")
    first = None
    for name, rows in measured.items():
        best = [min(row[column] for row in rows) for column in range(len(rows[0]))]
        first = first or best
        speeds = [reference / value for reference, value in zip(first, best, strict=True)]
        memory = f"{best[2]:8.0f}" if len(best) > 2 else ""
        print(
            f"{name:10} {best[0]:9.3f} {speeds[0]:6.2f}× {best[1]:10.3f} {speeds[1]:6.2f}× {memory}"
        )


if __name__ == "__main__":
    main()

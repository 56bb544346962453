"""Kills at random moments: every restart continues, and the results are those without kills.

    python benchmarks/kills.py 200

The kills are divided among training (checkpoints and saving included), bulk prediction and tuning,
each a whole command on made-up texts. A command and its workers are killed (SIGKILL) at a random
moment of its usual duration and started again, until its share of kills is used up; then it runs to
its end. Training must end with the weights and metrics of an undisturbed run, prediction with the
same bytes, tuning with the same score before and no worse one after.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ANIMALS = ["cat", "dog", "owl", "fox", "bee", "hen", "pig", "cow", "ant", "bat"]
COLOURS = ["red", "blue", "green", "white", "black"]
TINY = [
    "encoder.name=random:tiny", "encoder.max_length=24", "attention.key_size=16",
    "attention.hidden_size=16", "train.batch_size=16", "train.epochs=12", "train.precision=fp32",
    "train.checkpoints=3", "train.rates.encoder=3e-3", "candidates.mode=full",
]  # fmt: skip


def write_texts(path: Path, count: int, seed: int) -> Path:
    """Write texts whose labels can be read off their words."""
    draw = random.Random(seed)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            animal, colour = draw.choice(ANIMALS), draw.choice(COLOURS)
            padding = " ".join(draw.choices(["the", "a", "of", "and"], k=draw.randrange(9)))
            row = {"id": str(number), "text": f"{colour} {animal} {padding}"}
            file.write(json.dumps({**row, "labels": [animal, colour]}) + "\n")
    return path


def glocal(*words: object) -> list[str]:
    """Return a command line of glocal."""
    return [sys.executable, "-m", "glocal", "--quiet", "--threads", "1", *map(str, words)]


def run(words: list[str]) -> float:
    """Run a command to its end; return its seconds."""
    started = time.monotonic()
    finished = subprocess.run(words, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"{' '.join(words)}\n{finished.stderr}")
    return time.monotonic() - started


def run_killed(words: Callable[[], list[str]], kills: int, seconds: float, seed: int) -> int:
    """Run a command with kills at random moments, then to its end; return the kills that struck."""
    draw, struck = random.Random(seed), 0
    while struck < kills:
        process = subprocess.Popen(
            words(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
        try:
            _, said = process.communicate(timeout=draw.uniform(0.05, 1.0) * seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            struck += 1
            continue
        if process.returncode:
            raise SystemExit(f"a restart failed after {struck} kills:\n{said.decode()}")
        return struck  # it came to its end between two kills
    run(words())
    return struck


def digest(path: Path) -> str:
    """Return the checksum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def training(folder: Path, kills: int, seed: int) -> int:
    """Kill training runs; return the kills."""
    train, dev = (
        write_texts(folder / "train.jsonl", 600, 0),
        write_texts(folder / "dev.jsonl", 60, 1),
    )
    settings = [part for setting in TINY for part in ("-s", setting)]
    base = ["train", train, "--dev", dev, "--recipe", "glocalxml", *settings]
    seconds = run(glocal(*base, "--out", folder / "plain"))
    expected = _outcome(folder / "plain")
    struck, number = 0, 0
    while struck < kills:
        out = folder / f"killed-{number}"

        def words(out: Path = out) -> list[str]:
            unfinished = out.with_name(f"{out.name}.run").is_dir() and not out.is_dir()
            again = ["--resume"] if unfinished else ["--overwrite"]
            return glocal(*base, "--out", out, *again)

        struck += run_killed(words, min(kills - struck, 10), seconds, seed + number)
        assert _outcome(out) == expected, "another result after kills"
        number += 1
    return struck


def _outcome(model: Path) -> tuple[object, str]:
    metrics = json.loads((model / "metrics.json").read_text())
    del metrics["train_seconds"]
    return metrics, digest(model / "model.safetensors")


def prediction(folder: Path, kills: int, seed: int) -> int:
    """Kill bulk predictions; return the kills."""
    train, texts = (
        write_texts(folder / "t.jsonl", 600, 0),
        write_texts(folder / "x.jsonl", 60_000, 2),
    )
    model, plain, killed = folder / "fast", folder / "plain.jsonl", folder / "killed.jsonl"
    run(glocal("train", train, "--recipe", "fast", "--out", model))
    run(glocal("predict", model, texts, "--output", plain))
    base = ["predict", model, texts, "--output", killed, "--workers", 2]
    seconds, struck = run(glocal(*base)), 0
    while struck < kills:
        killed.unlink(missing_ok=True)
        struck += run_killed(lambda: glocal(*base), min(kills - struck, 10), seconds, seed + struck)
        assert digest(killed) == digest(plain), "other tags after kills"
    return struck


def tuning(folder: Path, kills: int, seed: int) -> int:
    """Kill searches of settings; return the kills."""
    train, dev = write_texts(folder / "a.jsonl", 600, 0), write_texts(folder / "b.jsonl", 100, 1)
    base = ["tune", train, "--dev", dev, "--recipe", "fast", "--trials", 6, "--json"]
    plain = glocal(*base, "--out", folder / "plain.toml")
    started = time.monotonic()
    finished = subprocess.run(plain, capture_output=True, text=True, check=True)
    seconds, expected = time.monotonic() - started, json.loads(finished.stdout)
    killed = glocal(*base, "--out", folder / "killed.toml")
    struck = run_killed(lambda: killed, kills, seconds, seed)
    found = json.loads(subprocess.run(killed, capture_output=True, text=True, check=True).stdout)
    assert found["before"] == expected["before"], "another first score after kills"
    assert found["after"] >= found["before"]
    assert found["n_trials"] >= expected["n_trials"]
    return struck


PARTS = {"training": (0.5, training), "prediction": (0.3, prediction), "tuning": (0.2, tuning)}


def main() -> None:
    """Kill commands and print how often."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name, (share, part) in PARTS.items():
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            os.environ["GLOCAL_CACHE"] = f"{folder}/cache"
            struck = part(Path(folder), round(share * arguments.kills), arguments.seed)
            print(f"{name}: {struck} kills, equal results, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()

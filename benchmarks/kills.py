"""Kills at random moments: every restart continues, and the results are those without kills.

    python benchmarks/kills.py 200

The kills are divided among training (checkpoints and saving included), bulk prediction and tuning,
each a whole command on made-up texts, in a fork of this process, so that it does not load the
libraries again. A command and its workers are killed (SIGKILL) at a random moment of its usual
duration and started again, until its share of kills is used up; then it runs to its end. Training
must end with the weights and metrics of an undisturbed run, prediction with the same bytes, tuning
with the same score before and no worse one after.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import optuna  # noqa: F401 - loaded here, so that forks need not
import torch
import transformers  # noqa: F401

from glocal.cli import main
from glocal.train import engine, loop  # noqa: F401
from glocal.tune import tuning as _tuning  # noqa: F401

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
    return ["glocal", "--quiet", "--threads", "1", *map(str, words)]


class Command:
    """A command of glocal in a fork of this process, with its output in files.

    Args:
        words: The command line.
    """

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115
        self._pid = os.fork()
        if self._pid == 0:
            self._run()

    def _run(self) -> None:
        code = 1
        try:
            os.setsid()
            for number, file in enumerate(self._files, start=1):
                os.dup2(file.fileno(), number)
            sys.argv = self._words
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def output(self, number: int) -> str:
        """Return what it wrote to stdout (1) or stderr (2)."""
        file = self._files[number - 1]
        file.seek(0)
        return file.read().decode()

    def wait(self, seconds: float = math.inf) -> bool:
        """Wait for its end; return whether it came in time."""
        deadline = time.monotonic() + seconds
        while True:
            done, status = os.waitpid(self._pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)
        if code := os.waitstatus_to_exitcode(status):
            raise SystemExit(f"{' '.join(self._words)} ended with {code}\n{self.output(2)}")
        return True

    def kill(self) -> None:
        """Kill it and its workers."""
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def run(words: list[str]) -> tuple[float, str]:
    """Run a command to its end; return its seconds and what it printed."""
    started = time.monotonic()
    command = Command(words)
    command.wait()
    return time.monotonic() - started, command.output(1)


def run_killed(words: Callable[[], list[str]], kills: int, seconds: float, seed: int) -> int:
    """Run a command with kills at random moments, then to its end; return the kills that struck."""
    draw, struck = random.Random(seed), 0
    while struck < kills:
        command = Command(words())
        if command.wait(draw.uniform(0.02, 1.0) * seconds):
            return struck  # it came to its end between two kills
        command.kill()
        struck += 1
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
    seconds, _ = run(glocal(*base, "--out", folder / "plain"))
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
        write_texts(folder / "x.jsonl", 10_000, 2),
    )
    model, plain, killed = folder / "fast", folder / "plain.jsonl", folder / "killed.jsonl"
    run(glocal("train", train, "--recipe", "fast", "--out", model))
    run(glocal("predict", model, texts, "--output", plain))
    base = ["predict", model, texts, "--output", killed, "--workers", 2]
    (seconds, _), struck = run(glocal(*base)), 0
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
    seconds, printed = run(plain)
    expected = json.loads(printed)
    killed = glocal(*base, "--out", folder / "killed.toml")
    struck = run_killed(lambda: killed, kills, seconds, seed)
    found = json.loads(run(killed)[1])
    assert found["before"] == expected["before"], "another first score after kills"
    assert found["after"] >= found["before"]
    assert found["n_trials"] >= expected["n_trials"]
    return struck


PARTS = {"training": (0.5, training), "prediction": (0.3, prediction), "tuning": (0.2, tuning)}


def measure() -> None:
    """Kill commands and print how often."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    for name in arguments.parts:
        share, part = PARTS[name]
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            torch.set_num_threads(1)
            os.environ["GLOCAL_CACHE"] = f"{folder}/cache"
            struck = part(Path(folder), round(share * arguments.kills), arguments.seed)
            print(
                f"{name}: {struck} kills, equal results, {time.monotonic() - started:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    measure()

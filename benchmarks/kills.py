"""Kills at random moments: every restart continues, and the results are those without kills.

    python benchmarks/kills.py 200
    python benchmarks/kills.py 200 --parts training --seed 1   # a part of them, for several cores

The kills are divided among training (checkpoints and saving included), bulk prediction, tuning and
changes of a stored model (`labels add` and `train --from`, of words and of a network), each a whole
command on made-up texts, in a fork of this process, so that it does not load the libraries again. A
command and its workers are killed (SIGKILL) at a random moment of its usual duration and started
again, ten times at most; then it runs to its end. Training must end with the weights and metrics of
an undisturbed run, prediction with the same bytes, tuning with the same score before and no worse
one after. A model under change must predict as before or as after an undisturbed change, and the
change must succeed when it is tried again. Every second kill waits for something to be written;
kills that left an unfinished file or folder behind, such as half a checkpoint, are counted apart.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import optuna  # noqa: F401 - loaded here, so that forks need not
import torch
import transformers  # noqa: F401

from glocal.cli import main
from glocal.train import engine, loop  # noqa: F401
from glocal.tune import tuning as _tuning  # noqa: F401

ANIMALS = ["cat", "dog", "owl", "fox", "bee", "hen", "pig", "cow", "ant", "bat"]
_KILLS_OF_A_RUN = 10
COLOURS = ["red", "blue", "green", "white", "black"]
TINY = [
    "encoder.name=random:tiny", "encoder.max_length=24", "attention.key_size=16",
    "attention.hidden_size=16", "train.batch_size=16", "train.epochs=4", "train.precision=fp32",
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


@dataclass
class Kills:
    """Kills at random moments.

    Attributes:
        folder: Where commands write.
        wanted: Kills to come to.
        draw: Random numbers.
        struck: Kills so far.
        writing: Kills among them that left something unfinished behind.
    """

    folder: Path
    wanted: int
    draw: random.Random
    struck: int = 0
    writing: int = 0

    def run(self, words: Callable[[], list[str]], seconds: float) -> None:
        """Run a command that usually takes some seconds, killed up to ten times, to its end."""
        for _ in range(min(_KILLS_OF_A_RUN, self.wanted - self.struck)):
            if not self.strike(words(), seconds):
                return  # it came to its end before the kill
        run(words())

    def strike(self, words: list[str], seconds: float) -> bool:
        """Kill a command that usually takes some seconds; return whether it was still running.

        Every second kill waits for something to be written after its random moment.
        """
        before = self._unfinished()
        command = Command(words)
        if command.wait(self.draw.uniform(0.02, 1.0) * seconds):
            return False
        aimed, deadline = self.struck % 2 == 1, time.monotonic() + seconds
        while aimed and time.monotonic() < deadline and not self._unfinished() - before:
            if command.wait(0.001):
                return False
        command.kill()
        self.struck += 1
        self.writing += bool(self._unfinished() - before)
        return True

    def _unfinished(self) -> set[Path]:
        """Return the files and folders that are written but not yet under their name."""
        return set(self.folder.rglob(".*.tmp"))


def digest(path: Path) -> str:
    """Return the checksum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def training(folder: Path, kills: Kills) -> None:
    """Kill training runs."""
    train, dev = (
        write_texts(folder / "train.jsonl", 200, 0),
        write_texts(folder / "dev.jsonl", 40, 1),
    )
    settings = [part for setting in TINY for part in ("-s", setting)]
    base = ["train", train, "--dev", dev, "--recipe", "glocalxml", *settings]
    seconds, _ = run(glocal(*base, "--out", folder / "plain"))
    expected = _outcome(folder / "plain")
    number = 0
    while kills.struck < kills.wanted:
        out = folder / f"killed-{number}"

        def words(out: Path = out) -> list[str]:
            unfinished = out.with_name(f"{out.name}.run").is_dir() and not out.is_dir()
            again = ["--resume"] if unfinished else ["--overwrite"]
            return glocal(*base, "--out", out, *again)

        kills.run(words, seconds)
        assert _outcome(out) == expected, "another result after kills"
        number += 1


def _outcome(model: Path) -> tuple[object, str]:
    metrics = json.loads((model / "metrics.json").read_text())
    del metrics["train_seconds"]
    return metrics, digest(model / "model.safetensors")


def prediction(folder: Path, kills: Kills) -> None:
    """Kill bulk predictions."""
    train, texts = (
        write_texts(folder / "t.jsonl", 600, 0),
        write_texts(folder / "x.jsonl", 10_000, 2),
    )
    model, plain, killed = folder / "fast", folder / "plain.jsonl", folder / "killed.jsonl"
    run(glocal("train", train, "--recipe", "fast", "--out", model))
    run(glocal("predict", model, texts, "--output", plain))
    base = ["predict", model, texts, "--output", killed, "--workers", 2]
    seconds, _ = run(glocal(*base))
    while kills.struck < kills.wanted:
        killed.unlink(missing_ok=True)
        kills.run(lambda: glocal(*base), seconds)
        assert digest(killed) == digest(plain), "other tags after kills"


def tuning(folder: Path, kills: Kills) -> None:
    """Kill searches of settings."""
    train, dev = write_texts(folder / "a.jsonl", 600, 0), write_texts(folder / "b.jsonl", 100, 1)
    base = ["tune", train, "--dev", dev, "--recipe", "fast", "--trials", 6, "--json"]
    seconds, printed = run(glocal(*base, "--out", folder / "plain.toml"))
    expected, number = json.loads(printed), 0
    while kills.struck < kills.wanted:
        killed = glocal(*base, "--out", folder / f"killed-{number}.toml")
        kills.run(lambda killed=killed: killed, seconds)
        found = json.loads(run(killed)[1])
        assert found["before"] == expected["before"], "another first score after kills"
        assert found["after"] >= found["before"]
        assert found["n_trials"] >= expected["n_trials"]
        number += 1


def changes(folder: Path, kills: Kills) -> None:
    """Kill changes of stored models."""
    train, texts = write_texts(folder / "a.jsonl", 400, 0), write_texts(folder / "b.jsonl", 40, 1)
    labels, shown = folder / "labels.jsonl", folder / "shown.jsonl"
    labels.write_text('{"id": "newt", "name": "newt"}\n', encoding="utf-8")
    rows = ({"text": f"a {colour} newt", "labels": ["newt", colour]} for colour in COLOURS)
    shown.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with texts.open("a", encoding="utf-8") as file:  # the new label shows in its tags
        file.write('{"id": "newt", "text": "a newt and a newt"}\n')
    run(glocal("train", train, "--recipe", "fast", "--out", folder / "words"))
    settings = [part for setting in [*TINY, "train.epochs=2"] for part in ("-s", setting)]
    run(glocal("train", train, "--recipe", "balanced", *settings, "--out", folder / "network"))
    target, work = folder / "changed", []
    for kind in ("words", "network"):
        given = ["--train", train] if kind == "network" else []
        replayed = [train] if kind == "network" else []
        for words in (
            glocal("labels", "add", target, labels, "--examples", shown, *given),
            glocal("train", *replayed, "--from", target, "--add", shown),
        ):
            shutil.copytree(folder / kind, target)
            seconds, _ = run(words)
            before, after = (_tags(model, texts) for model in (folder / kind, target))
            assert before != after, "the change changes nothing"
            work.append((folder / kind, words, seconds, before, after))
            shutil.rmtree(target)
    while kills.struck < kills.wanted:
        model, words, seconds, before, after = kills.draw.choice(work)
        shutil.copytree(model, target)
        kills.strike(words, seconds)
        found = _tags(target, texts)
        assert found in (before, after), "neither the old model nor the new one"
        if found == before:
            run(words)
            assert _tags(target, texts) == after, "another result after a kill"
        shutil.rmtree(target)
        left = [path.name for path in folder.iterdir() if path.name.startswith(".changed.")]
        assert len(left) <= 1, f"left behind: {left}"


def _tags(model: Path, texts: Path) -> str:
    return run(glocal("predict", model, texts, "-k", 15))[1]


PARTS = {
    "training": (0.4, training),
    "prediction": (0.25, prediction),
    "tuning": (0.15, tuning),
    "changes": (0.2, changes),
}


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
            wanted, draw = round(share * arguments.kills), random.Random(arguments.seed)
            kills = Kills(Path(folder), wanted, draw)
            part(Path(folder), kills)
            print(
                f"{name}: {kills.struck} kills, {kills.writing} of them in the middle of writing, "
                f"equal results, {time.monotonic() - started:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    measure()

"""Small training runs and what they leave behind."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from safetensors.torch import load_file

from glocal.train.listener import TrainListener
from glocal.train.run import fit
from tests.tiny import tiny_corpus

ROOT = Path(__file__).parents[2]


class Recorder(TrainListener):
    """Keeps everything it is told; `stop_at` presses Ctrl-C during that step."""

    def __init__(self, stop_at=None):
        self.stop_at = stop_at
        self.steps, self.evaluations, self.messages = [], [], []

    def on_step(self, info):
        self.steps.append(info["step"])
        if info["step"] == self.stop_at:
            signal.raise_signal(signal.SIGINT)

    def on_evaluation(self, info):
        self.evaluations.append(info)

    def on_message(self, text):
        self.messages.append(text)


def train(recipe, out, *, corpus=None, **options):
    """`fit` on the CPU, on 64 tiny documents unless others are given."""
    return fit(
        recipe, tiny_corpus() if corpus is None else corpus, out=out, device="cpu", **options
    )


def weights(path):
    return load_file(path / "model.safetensors")


def entries(path):
    """Lines of the training log, without what the clock decides."""
    lines = (path / "train_log.jsonl").read_text("utf-8").splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if key != "docs_per_second"}
        for line in lines
    ]


def losses(path):
    return [entry["loss"] for entry in entries(path) if "loss" in entry]


def assert_same_run(first, second):
    """Equal weights, bit by bit, equal logs and equal dev scores."""
    left, right = weights(first), weights(second)
    assert left.keys() == right.keys()
    different = [name for name in left if not left[name].equal(right[name])]
    assert not different
    assert entries(first) == entries(second)
    kept = [json.loads((path / "metrics.json").read_text()) for path in (first, second)]
    for metrics in kept:
        del metrics["train_seconds"]
    assert kept[0] == kept[1]


def environment():
    """Of a process that runs this package's tests."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


def train_in_processes(out, processes, recipe, *overrides):
    """Train with `torchrun` on the CPU; the recipe and the data are those of `tests.tiny`."""
    train_all_in_processes(processes, (out, recipe, *overrides))


def train_all_in_processes(processes, *runs):
    """Train several recipes after one start of `torchrun`, which takes longer than the training.

    Args:
        processes: How many.
        runs: (out, recipe's name, *overrides) of each run, one after the other.

    Returns:
        What all processes wrote to stdout, line by line.
    """
    listed = json.dumps([[str(part) for part in run] for run in runs])
    command = [
        sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}",
        "--master-addr=127.0.0.1", f"--master-port={free_port()}",
        "-m", "tests.train.worker", listed,
    ]  # fmt: skip
    finished = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=240
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    return finished.stdout.splitlines()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]

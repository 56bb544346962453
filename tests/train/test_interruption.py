"""The command line's training run, stopped by Ctrl-C and by a kill, and resumed."""

import signal
import subprocess
import sys
import time

import pytest

from glocal.data.writers import write_corpus
from tests.tiny import FAST, tiny_corpus
from tests.train.runs import ROOT, assert_same_run, environment

pytestmark = [pytest.mark.slow, pytest.mark.dist]

SETTINGS = [*FAST, "encoder.dropout=0.1", "train.batch_size=2", "train.epochs=8"]


class Run:
    """`glocal train` on one file, in processes of its own."""

    def __init__(self, folder):
        self.file, self.cache = folder / "train.jsonl", folder / "cache"
        write_corpus(tiny_corpus(96), self.file)

    def start(self, out, *options):
        settings = [part for setting in SETTINGS for part in ("-s", setting)]
        command = [
            sys.executable, "-m", "glocal", "train", str(self.file), "--out", str(out),
            *settings, *options,
        ]  # fmt: skip
        return subprocess.Popen(
            command, cwd=ROOT, env={**environment(), "GLOCAL_CACHE": str(self.cache)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def finish(self, out, *options):
        process = self.start(out, *options)
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
        return errors


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(run, tmp_path_factory):
    """The same run, uninterrupted."""
    out = tmp_path_factory.mktemp("whole") / "m"
    run.finish(out)
    return out


def wait_for(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, "the run ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_says_how_to_go_on_and_does(run, whole, tmp_path, number):
    out, log = tmp_path / "m", tmp_path / "m.run" / "train_log.jsonl"
    process = run.start(out)
    wait_for(log.is_file, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "the state is saved in" in errors
    assert "--resume" in errors
    assert "Traceback" not in errors
    assert not out.exists()
    assert "resuming at step" in run.finish(out, "--resume")
    assert_same_run(whole, out)


def test_a_killed_run_resumes_to_the_same_result(run, whole, tmp_path):
    out, folder = tmp_path / "m", tmp_path / "m.run"
    process = run.start(out)
    wait_for(lambda: any(folder.glob("checkpoint-*")), process)
    process.kill()
    process.communicate(timeout=100)
    assert not out.exists()
    assert "resuming at step" in run.finish(out, "--resume")
    assert_same_run(whole, out)
    assert not folder.exists()

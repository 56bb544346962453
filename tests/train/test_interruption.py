"""The command line's training run, stopped by Ctrl-C and by a kill, and resumed.

What is stopped runs in a process of its own; what goes on afterwards runs in this one.
"""

import signal
import subprocess
import sys
import time

import pytest

from glocal.data.writers import write_corpus
from tests.cli.conftest import invoke
from tests.tiny import FAST, tiny_corpus
from tests.train.runs import ROOT, assert_same_run, environment

pytestmark = [pytest.mark.slow, pytest.mark.dist]

SETTINGS = [*FAST, "encoder.dropout=0.1", "train.batch_size=2", "train.epochs=5"]


class Run:
    """`glocal train` on one file."""

    def __init__(self, folder):
        self.file = folder / "train.jsonl"
        write_corpus(tiny_corpus(96), self.file)

    def arguments(self, out):
        settings = [part for setting in SETTINGS for part in ("-s", setting)]
        options = ["--recipe", "glocalxml", "--out", str(out), "--device", "cpu"]
        return ["train", str(self.file), *options, *settings]

    def start(self, out):
        """In a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "glocal", *self.arguments(out)], cwd=ROOT, env=environment(),
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def finish(self, out, *options):
        """In this process; what it says."""
        result = invoke(*self.arguments(out), *options)
        assert result.exit_code == 0, result.output
        return result.stderr


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(run, tmp_path_factory):
    """The same run, uninterrupted."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(folder / "cache"))
        run.finish(folder / "m")
    return folder / "m"


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

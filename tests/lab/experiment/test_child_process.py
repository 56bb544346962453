"""Jobs in child processes: crashes, Ctrl-C, and a training run that was stopped."""

import json
import os
import signal
from contextlib import nullcontext

import pytest

from glocal.errors import ConfigError, Interrupted
from glocal.lab.benchmark_page import benchmark_runner
from glocal.lab.experiment import child_process
from glocal.lab.experiment.child_process import LogReader
from glocal.lab.experiment.jobs import Conditions, JobListener, Result
from glocal.lab.experiment.methods import choose_methods
from glocal.lab.experiment.runner import RunView
from tests.lab.small import small_runner, small_splits
from tests.tiny import FAST, tiny_corpus

pytest.importorskip("sklearn")


# A worker that is done at once, without numpy or scikit-learn.
DONE = """
import json, sys
from pathlib import Path
folder = Path(sys.argv[1])
result = json.loads((folder / "job.json").read_text())["result"]
(folder / "result.json").write_text(json.dumps({**result, "format": 1, "status": "done"}))
"""
CRASH = "import os, sys; sys.stderr.write('boom\\n'); sys.stderr.flush(); os._exit(3)"
SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def worker(monkeypatch):
    return lambda code: monkeypatch.setattr(child_process, "WORKER", ["-c", code])


def svm_runner(out, *only, threads=1, **splits):
    methods = choose_methods([], ["svm"], only=only)
    conditions = Conditions(threads=threads, timed=True)
    return benchmark_runner(methods, small_splits(**splits), conditions, out=out)


def test_a_crash_becomes_the_results_error(tmp_path, worker):
    worker(CRASH)
    (row,) = svm_runner(tmp_path, "svm").run(children=1)
    assert row.has_failed
    assert "status 3: boom" in row.error
    worker(DONE)
    (row,) = svm_runner(tmp_path, "svm").run(children=1)  # failed jobs are tried again
    assert row.is_done


def test_one_crash_does_not_stop_the_others(tmp_path, worker):
    worker(f"import sys\nif 'matched' in sys.argv[1]:\n    {CRASH}\nelse:\n    exec({DONE!r})")
    rows = svm_runner(tmp_path).run(children=1)
    assert [(row.name, row.status) for row in rows] == [("svm", "done"), ("svm-matched", "failed")]


def test_several_at_a_time(tmp_path, worker):
    worker(DONE)
    assert [row.status for row in svm_runner(tmp_path).run(children=2)] == ["done", "done"]
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}  # no texts are left


def test_a_killed_process_is_a_failed_variant(tmp_path, worker):
    worker("import os; os.kill(os.getpid(), 9)")
    results = small_runner(tmp_path).run(children=2)
    assert [result.status for result in results] == ["failed", "failed"]
    assert "status -9 (out of memory?)" in results[0].error


def test_finished_rows_are_kept_and_discarded_on_request(tmp_path, worker):
    worker(DONE)
    svm_runner(tmp_path, "svm").run(children=1)
    worker(CRASH)
    assert svm_runner(tmp_path, "svm").run(children=1)[0].is_done
    assert svm_runner(tmp_path, "svm").run(children=1, overwrite=True)[0].has_failed


def test_rows_have_the_same_conditions(tmp_path, worker):
    worker(DONE)
    svm_runner(tmp_path, "svm").run(children=1)
    with pytest.raises(ConfigError, match="measured with threads = 1"):
        svm_runner(tmp_path, "svm", threads=2)
    with pytest.raises(ConfigError, match="other texts or labels"):
        svm_runner(tmp_path, "svm", train=tiny_corpus(31))


@pytest.fixture
def ctrl_c():
    """Ctrl-C does what it does on a terminal; started in the background, a process ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Stop(RunView, JobListener):
    """Presses Ctrl-C at the first sign of a stage."""

    def __init__(self, stage, *, percent=False):
        self.stage, self.percent, self.pressed = stage, percent, False

    def start(self, number, total, method):
        return nullcontext(self)

    def on_progress(self, stage, seconds, percent):
        if stage == self.stage and not self.pressed and (percent or not self.percent):
            self.pressed = True
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_keeps_finished_results(tmp_path, worker):
    worker(DONE)
    svm_runner(tmp_path, "svm").run(children=1)
    worker(SLEEP)
    with pytest.raises(Interrupted, match="finished results are kept"):
        svm_runner(tmp_path).run(children=1, view=Stop("starting"))
    states = {path.name: Result.load(path).status for path in (tmp_path / "runs").iterdir()}
    assert sorted(states.values()) == ["done", "started"]
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}


def test_an_error_of_the_view_ends_the_children(tmp_path, worker):
    class Broken(Stop):
        def on_progress(self, stage, seconds, percent):
            raise OSError("the terminal is gone")

    worker(SLEEP)
    with pytest.raises(OSError, match="the terminal is gone"):
        svm_runner(tmp_path).run(children=1, view=Broken("starting"))


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_a_stopped_training_continues(tmp_path):
    overrides = [*FAST, "train.epochs=80", "train.evaluations=2"]
    methods = choose_methods(["glocalxml"], [], overrides=overrides)
    conditions = Conditions("cpu", threads=1, timed=True)
    runner = benchmark_runner(methods, small_splits(), conditions, out=tmp_path)
    with pytest.raises(Interrupted):
        runner.run(children=1, view=Stop("training", percent=True))
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "model.run").is_dir()
    before = json.loads((folder / "spent.json").read_text())
    (row,) = runner.run(children=1)
    assert row.is_done
    assert "resuming at step" in (folder / "log.txt").read_text()
    assert row.cost["train_seconds"] > before["wall"] > 0


def test_a_log_is_followed_by_its_percentages(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("== training\nreading\n")
    reader = LogReader(log)
    seen = []
    for text in (
        "  0%  25%",  # a bar that grows on its line
        "  50%",
        "\nnext step\n",
        "Progress: 12.5% left\rProgress: 17",
        ".5% left\r",
        "== predicting\n",
    ):
        with log.open("a") as file:
            file.write(text)
        reader.read()
        seen.append((reader.stage, reader.percent))
    training = [25.0, 50.0, None, 12.5, 17.5]
    assert seen == [*(("training", percent) for percent in training), ("predicting", None)]

"""Rows in processes of their own: what becomes of a crash, of Ctrl-C and of a stopped training."""

import os
import signal

import pytest

from glocal.errors import ConfigError, Interrupted
from glocal.lab.benchmark import benchmark_process
from glocal.lab.benchmark.benchmark import Benchmark, BenchmarkView, Conditions, choose_contenders
from glocal.lab.benchmark.benchmark_fitted import Spent
from glocal.lab.benchmark.benchmark_process import _LogReader
from glocal.lab.benchmark.benchmark_rows import Row
from tests.lab.small import small_data
from tests.tiny import FAST, tiny_corpus

pytest.importorskip("sklearn")


# A worker that is done at once, without numpy or scikit-learn.
DONE = """
import sys
from dataclasses import replace
from pathlib import Path
from glocal.lab.benchmark.benchmark_rows import Job
job = Job.load(Path(sys.argv[1]))
replace(job.failed(""), status="done").save(Path(job.row_path))
"""
CRASH = "import os, sys; sys.stderr.write('boom\\n'); sys.stderr.flush(); os._exit(3)"
SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def worker(monkeypatch):
    return lambda code: monkeypatch.setattr(benchmark_process, "WORKER", ["-c", code])


def svm_benchmark(out, *only):
    contenders = choose_contenders([], ["svm"], only=only)
    return Benchmark(contenders, small_data(), Conditions(1), out=out)


def test_a_crash_becomes_the_rows_error(tmp_path, worker):
    worker(CRASH)
    (row,) = svm_benchmark(tmp_path, "svm").run()
    assert row.status == "failed"
    assert "status 3: boom" in row.error
    worker(DONE)
    (row,) = svm_benchmark(tmp_path, "svm").run()  # failed rows are tried again
    assert row.is_done


def test_one_crash_does_not_stop_the_others(tmp_path, worker):
    worker(f"import sys\nif 'matched' in sys.argv[1]:\n    {CRASH}\nelse:\n    exec({DONE!r})")
    rows = svm_benchmark(tmp_path).run()
    assert [(row.contender.name, row.status) for row in rows] == [
        ("svm", "done"),
        ("svm-matched", "failed"),
    ]


def test_finished_rows_are_kept_and_forgotten_when_asked(tmp_path, worker):
    worker(DONE)
    svm_benchmark(tmp_path, "svm").run()
    worker(CRASH)
    assert svm_benchmark(tmp_path, "svm").run()[0].is_done
    assert not svm_benchmark(tmp_path, "svm").run(overwrite=True)[0].is_done


def test_rows_are_of_one_set_of_conditions(tmp_path, worker):
    worker(DONE)
    svm_benchmark(tmp_path, "svm").run()
    contenders = choose_contenders([], ["svm"], only=["svm"])
    with pytest.raises(ConfigError, match="measured with threads = 1"):
        Benchmark(contenders, small_data(), Conditions(2), out=tmp_path).run()
    data = small_data(train=tiny_corpus(31))
    with pytest.raises(ConfigError, match="other texts or labels"):
        Benchmark(contenders, data, Conditions(1), out=tmp_path).run()


@pytest.fixture
def ctrl_c():
    """Ctrl-C does what it does on a terminal; started in the background, a process ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Stop(BenchmarkView):
    """Presses Ctrl-C at the first sign of life."""

    def __init__(self, stage):
        self.stage, self.pressed = stage, False

    def on_tick(self, stage, seconds, percent):
        if stage == self.stage and not self.pressed:
            self.pressed = True
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_keeps_what_is_finished(tmp_path, worker):
    worker(DONE)
    svm_benchmark(tmp_path, "svm").run()
    worker(SLEEP)
    with pytest.raises(Interrupted, match="finished rows are kept"):
        svm_benchmark(tmp_path).run(view=Stop("starting"))
    (kept,) = tmp_path.glob("rows/*.json")
    assert Row.load(kept).is_done
    assert not (tmp_path / "work" / "splits").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_a_stopped_training_goes_on(tmp_path):
    contenders = choose_contenders(
        ["glocalxml"], [], overrides=[*FAST, "train.epochs=80", "train.evaluations=2"]
    )
    benchmark = Benchmark(contenders, small_data(), Conditions(1, "cpu"), out=tmp_path)

    class StopInTheMiddle(Stop):
        def on_tick(self, stage, seconds, percent):
            if percent:
                super().on_tick(stage, seconds, percent)

    with pytest.raises(Interrupted):
        benchmark.run(view=StopInTheMiddle("training"))
    (folder,) = (tmp_path / "work").iterdir()
    assert (folder / "model.run").is_dir()
    before = Spent(folder / "spent.json", resume=True).before
    (row,) = benchmark.run()
    assert row.is_done
    assert "resuming at step" in (folder / "log.txt").read_text()
    assert row.cost["train_seconds"] > before["wall"] > 0


def test_a_log_is_followed_by_its_percentages(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("== training\nreading\n")
    reader = _LogReader(log)
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

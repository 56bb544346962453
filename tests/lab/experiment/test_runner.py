import json
import os
import shutil
import signal
from contextlib import nullcontext
from dataclasses import replace

import pytest

import glocal.train.run
from glocal.config import load_recipe
from glocal.errors import ConfigError, DataError, Interrupted
from glocal.lab.experiment import methods
from glocal.lab.experiment.jobs import JobListener, JobState, Result, Splits
from glocal.lab.experiment.methods import recipe_method
from glocal.lab.experiment.runner import RunView
from glocal.lab.variant_tables import Variant, VariantTable
from tests.lab.small import TABLE, small_runner, small_splits
from tests.tiny import tiny_corpus


class Seen(RunView):
    def __init__(self):
        self.begun, self.ended, self.reused = [], [], None

    def on_reuse(self, number, total):
        self.reused = number, total

    def start(self, number, total, method):
        self.begun.append(method.title)
        return super().start(number, total, method)

    def on_end(self, result, *, kept):
        self.ended.append((result.name, result.status, kept))


@pytest.fixture
def no_training(monkeypatch):
    def fit(*arguments, **options):
        raise AssertionError("nothing should be trained")

    monkeypatch.setattr(glocal.train.run, "fit", fit)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished experiment."""
    out = tmp_path_factory.mktemp("experiment")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(out / "cache"))
        results = small_runner(out).run()
    assert [result.status for result in results] == ["done", "done"]
    return out


def job_of(runner, name):
    return next(job for job in runner.jobs if job.method.name == name)


def test_every_variant_is_trained_and_measured(finished):
    one, two = small_runner(finished).results()
    assert (finished / "runs" / "one" / "model" / "glocal.toml").is_file()
    assert one.split == two.split == "test"
    assert one.parts == ["mean"]  # as if nothing had been learned on dev
    assert two.parts == ["D-last", "A-1", "mean"]
    assert 0 <= two.score("P@5", "A-1") <= 1
    assert one.score("P@5", "A-1") is None
    assert two.report["documents"]["given"] == 12
    assert two.cost["train_seconds"] > 0


def test_results_come_back_as_they_were_saved(finished, tmp_path):
    (one, _) = small_runner(finished).results()
    one.save(tmp_path)
    assert Result.load(tmp_path) == one


def test_finished_jobs_are_skipped(finished, no_training):
    view = Seen()
    results = small_runner(finished).run(view=view)
    assert view.begun == []
    assert view.ended == [("one", "done", True), ("two", "done", True)]
    assert all(result.is_done for result in results)


def test_another_test_set_is_measured_without_training(finished, no_training, tmp_path):
    out = shutil.copytree(finished, tmp_path / "copy")
    other = small_runner(out, splits=small_splits(test=tiny_corpus(5, 9)))
    assert [r.name for r in other.run(["two"])] == ["two"]  # numbers on other texts are left out
    assert [r.report["documents"]["given"] for r in other.run()] == [5, 5]


def test_other_settings_are_refused_before_anything_is_lost(finished, no_training):
    path = finished / "runs" / "one" / "result.json"
    before = path.read_text()
    with pytest.raises(ConfigError, match=r"train.epochs=2 \(now 5\)") as caught:
        small_runner(finished, "train.epochs=5").run()
    assert len(caught.value.problems) == 2
    with pytest.raises(ConfigError, match="other training or dev texts"):
        small_runner(finished, splits=small_splits(train=tiny_corpus(32, 7))).run()
    assert path.read_text() == before


def test_another_version_of_the_library_is_another_result(finished, no_training, monkeypatch):
    monkeypatch.setattr(methods, "__version__", "99.0")
    assert small_runner(finished).results() == []
    with pytest.raises(ConfigError, match=r"was trained with glocal \S+ \(now glocal 99\.0\)"):
        small_runner(finished).run()


def test_results_of_another_experiment_are_reused(finished, no_training, tmp_path):
    renamed = Variant("pair", "a pair", TABLE.variants[1].settings)
    table = VariantTable("other", "", "me-xml", (renamed,))
    (finished / "other").mkdir(exist_ok=True)
    (finished / "other" / "result.json").write_text("{}")  # a file of some other program
    view = Seen()
    runner = small_runner(tmp_path / "out", table=table, reuse=[finished.parent])
    (pair,) = runner.run(view=view)
    assert view.reused == (1, 1)
    assert view.ended == [("pair", "done", True)]
    assert (pair.name, pair.title) == ("pair", "a pair")
    assert pair.report == small_runner(finished).results()[1].report
    assert small_runner(tmp_path / "out", table=table).results() == [pair]  # it is its own now


@pytest.mark.parametrize("what", ["settings", "test texts", "divergence"])
def test_other_results_of_another_experiment_are_not_reused(finished, tmp_path, monkeypatch, what):
    trained = []
    monkeypatch.setattr(glocal.train.run, "fit", lambda recipe, *_, **__: trained.append(recipe))
    overrides = ["train.epochs=5"] if what == "settings" else []
    splits = small_splits(test=tiny_corpus(5, 9)) if what == "test texts" else None
    options = {"splits": splits, "divergence": what == "divergence"}
    small_runner(tmp_path, *overrides, **options, reuse=[finished]).run(["two"])
    assert len(trained) == 1


def test_a_result_with_divergence_serves_an_experiment_without(finished, no_training, tmp_path):
    two = Result.load(finished / "runs" / "two")
    known = job_of(small_runner(finished, divergence=True), "two").blank
    done = replace(two, measured_on=known.measured_on, divergence={"jsd": 0.1})
    done.save(tmp_path / "x")
    (pair,) = small_runner(tmp_path / "out", reuse=[tmp_path]).run(["two"])
    assert pair.report == two.report


@pytest.mark.parametrize("status", [JobState.STARTED, JobState.FAILED])
def test_a_job_started_here_and_finished_there_is_reused(finished, no_training, tmp_path, status):
    runner = small_runner(tmp_path, reuse=[finished])
    job = job_of(runner, "one")
    replace(job.blank, status=status).save(job.folder)
    assert [result.status for result in runner.run(["one"])] == ["done"]


def test_numbers_on_other_texts_do_not_prevent_reuse(finished, no_training, tmp_path):
    other = job_of(small_runner(tmp_path, splits=small_splits(test=tiny_corpus(5, 9))), "one")
    replace(other.blank, status=JobState.DONE).save(other.folder)
    (one,) = small_runner(tmp_path, reuse=[finished]).run(["one"])
    assert one.report["documents"]["given"] == 12


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no finished results to reuse in .*nowhere"):
        small_runner(tmp_path, reuse=[tmp_path / "nowhere"]).run()


@pytest.mark.parametrize(
    "names", [["results/one.json", "models/one/glocal.toml"], ["benchmark.json"]]
)
def test_a_folder_of_an_older_version_is_refused(tmp_path, names):
    small_runner(tmp_path)
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("{}")
    with pytest.raises(ConfigError, match="holds results of an older version"):
        small_runner(tmp_path)


def test_a_layer_that_does_not_exist_loses_nothing(finished, no_training):
    wrong = Variant("deep", "too deep", {"experts": ["A-9"]})
    table = VariantTable("small", "", "me-xml", (*TABLE.variants, wrong))
    runner = small_runner(finished, table=table)
    with pytest.raises(ConfigError, match="'deep': expert 'A-9': layer 9 does not exist"):
        runner.run()
    assert [result.name for result in runner.results()] == ["one", "two"]


def test_a_failing_job_does_not_lose_the_others(tmp_path, monkeypatch):
    fit = glocal.train.run.fit

    def fails_once(recipe, *arguments, **options):
        if len(recipe.experts) == 1:
            raise RuntimeError("out of memory\nand more")
        return fit(recipe, *arguments, **options)

    monkeypatch.setattr(glocal.train.run, "fit", fails_once)
    one, two = small_runner(tmp_path).run()
    assert (one.status, one.error) == ("failed", "RuntimeError: out of memory")
    assert two.is_done
    monkeypatch.setattr(glocal.train.run, "fit", fit)
    view = Seen()
    assert all(result.is_done for result in small_runner(tmp_path).run(view=view))
    assert view.begun == ["one expert"]


def test_an_interrupted_job_resumes_to_the_same_result(tmp_path, finished):
    class StopsSoon(JobListener):
        def on_step(self, info):
            os.kill(os.getpid(), signal.SIGINT)

    class Stopping(RunView):
        def start(self, number, total, method):
            return nullcontext(StopsSoon())

    runner = small_runner(tmp_path)
    with pytest.raises(Interrupted, match="stopped while training 'one'"):
        runner.run(view=Stopping())
    assert [result.status for result in runner.results()] == ["started"]
    folder = tmp_path / "runs" / "one"
    assert list((folder / "model.run").glob("checkpoint-*"))
    spent = json.loads((folder / "spent.json").read_text())["wall"]
    resumed = runner.run()
    assert resumed[0].cost["train_seconds"] > spent > 0
    for mine, other in zip(resumed, small_runner(finished).results(), strict=True):
        assert mine.report == other.report


def test_a_model_of_other_settings_is_not_taken_for_the_jobs_own(tmp_path):
    small_runner(tmp_path).run(["one"])
    (tmp_path / "runs" / "one" / "result.json").unlink()
    small_runner(tmp_path, "train.epochs=1").run(["one"])
    log = (tmp_path / "runs" / "one" / "model" / "glocal.toml").read_text()
    assert "epochs = 1" in log


def identity(*overrides):
    return recipe_method(load_recipe("glocalxml", overrides), "any").identity


def test_only_settings_that_were_chosen_identify_a_method():
    assert identity("train.epochs=9") == identity()
    library, chosen = identity("train.epochs=4", "experts=['A-1']")
    assert library.startswith("glocal ")
    assert chosen == {**identity()[1], "experts": ["A-1"], "train": {"epochs": 4}}


def test_only_some(tmp_path):
    assert [result.name for result in small_runner(tmp_path).run(["two"])] == ["two"]


def test_overwrite_trains_again(tmp_path):
    small_runner(tmp_path).run(["one"])
    runner = small_runner(tmp_path, "train.epochs=1")
    (result,) = runner.run(["one"], overwrite=True)
    assert result.method.settings["train"]["epochs"] == 1


def test_divergence_is_measured_where_there_are_two_experts(tmp_path):
    one, two = small_runner(tmp_path, divergence=True).run()
    assert one.divergence == {}
    assert two.divergence["jsd"] > 0


def test_without_test_texts_dev_is_measured_and_named(tmp_path):
    splits = small_splits(test=None)
    assert splits.split == "dev"
    assert "the split the weights were chosen on" in splits.describe()
    with pytest.raises(ConfigError, match="test texts, dev texts or both"):
        Splits(tiny_corpus(4))


def test_a_damaged_result_is_named(tmp_path):
    assert Result.load(tmp_path) is None
    for text in ("{", json.dumps({"format": 1}), json.dumps({"format": 99}), "[]"):
        (tmp_path / "result.json").write_text(text)
        with pytest.raises(DataError, match=r"result\.json: not readable as the result of a job"):
            Result.load(tmp_path)


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        small_runner(tmp_path / "out")


@pytest.mark.slow
def test_child_processes_give_the_same_results(tmp_path, finished):
    view = Seen()
    results = small_runner(tmp_path).run(children=2, view=view)
    assert {name for name, _, _ in view.ended} == {"one", "two"}
    for mine, other in zip(results, small_runner(finished).results(), strict=True):
        assert mine.report["scores"]["combined"] == pytest.approx(
            other.report["scores"]["combined"]
        )

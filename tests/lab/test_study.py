import json
import os
import signal
from contextlib import nullcontext
from dataclasses import replace

import pytest

import glocal.train.run
from glocal.config import load_recipe
from glocal.errors import ConfigError, DataError, Interrupted
from glocal.lab import execute
from glocal.lab.study import Outcome, StudyData, StudyView, chosen_settings
from glocal.lab.variant_tables import Variant, VariantTable
from glocal.train.listener import TrainListener
from tests.lab.small import TABLE, dies, small_data, small_study
from tests.tiny import tiny_corpus


class Seen(StudyView):
    def __init__(self):
        self.begun, self.ended, self.taken = [], [], None

    def on_taken_over(self, number, total):
        self.taken = number, total

    def on_variant(self, number, total, title):
        self.begun.append(title)

    def on_outcome(self, outcome, *, skipped):
        self.ended.append((outcome.name, outcome.status, skipped))


@pytest.fixture
def no_training(monkeypatch):
    def fit(*arguments, **options):
        raise AssertionError("nothing was to be trained")

    monkeypatch.setattr(glocal.train.run, "fit", fit)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished study."""
    out = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(out / "cache"))
        outcomes = small_study(out).run()
    assert [outcome.status for outcome in outcomes] == ["done", "done"]
    return out


def test_every_variant_is_trained_and_measured(finished):
    one, two = small_study(finished).outcomes()
    assert (finished / "models" / "one" / "glocal.toml").is_file()
    assert one.split == two.split == "test"
    assert one.parts == ["mean"]  # as if nothing had been learnt on dev
    assert two.parts == ["D-last", "A-1", "mean"]
    assert 0 <= two.score("P@5", "A-1") <= 1
    assert one.score("P@5", "A-1") is None
    assert two.report["documents"]["given"] == 12


def test_what_is_finished_is_skipped(finished, no_training):
    view = Seen()
    outcomes = small_study(finished).run(view=view)
    assert view.begun == []
    assert view.ended == [("one", "done", True), ("two", "done", True)]
    assert all(outcome.status == "done" for outcome in outcomes)


def test_another_test_set_is_measured_without_training(finished, no_training, tmp_path):
    import shutil

    out = shutil.copytree(finished, tmp_path / "copy")
    other = small_study(out, data=small_data(test=tiny_corpus(5, 9)))
    assert [o.name for o in other.run(["two"])] == ["two"]  # numbers on other texts are left out
    assert [o.report["documents"]["given"] for o in other.run()] == [5, 5]


def test_other_settings_are_refused_before_anything_is_lost(finished, no_training):
    before = (finished / "results" / "one.json").read_text()
    with pytest.raises(ConfigError, match=r"train.epochs=2 \(now 5\)") as caught:
        small_study(finished, "train.epochs=5").run()
    assert len(caught.value.problems) == 2
    with pytest.raises(ConfigError, match="other training or dev texts"):
        small_study(finished, data=small_data(train=tiny_corpus(32, 7))).run()
    assert (finished / "results" / "one.json").read_text() == before


def test_what_another_study_finished_is_taken_over(finished, no_training, tmp_path):
    renamed = Variant("pair", "a pair", TABLE.variants[1].settings)
    table = VariantTable("other", "", "me-xml", (renamed,))
    (finished / "results" / "results.json").write_text("{}")  # of a benchmark, say
    view = Seen()
    study = small_study(tmp_path / "out", table=table, reuse=[finished.parent])
    (pair,) = study.run(view=view)
    assert view.taken == (1, 1)
    assert view.ended == [("pair", "done", True)]
    assert (pair.name, pair.title) == ("pair", "a pair")
    assert pair.report == small_study(finished).outcomes()[1].report
    assert small_study(tmp_path / "out", table=table).outcomes() == [pair]  # it is its own now


@pytest.mark.parametrize("what", ["settings", "test texts", "divergence"])
def test_what_another_study_did_otherwise_is_not_taken_over(finished, tmp_path, monkeypatch, what):
    trained = []
    monkeypatch.setattr(glocal.train.run, "fit", lambda recipe, *_, **__: trained.append(recipe))
    overrides = ["train.epochs=5"] if what == "settings" else []
    data = small_data(test=tiny_corpus(5, 9)) if what == "test texts" else None
    divergence = what == "divergence"
    study = small_study(tmp_path, *overrides, data=data, divergence=divergence, reuse=[finished])
    study.run(["two"])
    assert len(trained) == 1


def test_a_result_with_divergence_serves_a_study_without(finished, no_training, tmp_path):
    two = Outcome.load(finished / "results" / "two.json")
    known = small_study(finished, divergence=True).jobs["two"].blank("done")
    replace(known, report=two.report, divergence={"jsd": 0.1}).save(tmp_path / "results" / "x.json")
    (pair,) = small_study(tmp_path / "out", reuse=[tmp_path]).run(["two"])
    assert pair.report == two.report


@pytest.mark.parametrize("status", ["started", "failed"])
def test_what_was_begun_here_and_finished_there_is_taken_over(
    finished, no_training, tmp_path, status
):
    study = small_study(tmp_path, reuse=[finished])
    study.jobs["one"].blank(status).save(study.jobs["one"].result_path)
    assert [outcome.status for outcome in study.run(["one"])] == ["done"]


def test_numbers_on_other_texts_do_not_keep_from_taking_over(finished, no_training, tmp_path):
    other = small_study(tmp_path, data=small_data(test=tiny_corpus(5, 9)))
    other.jobs["one"].blank("done").save(other.jobs["one"].result_path)
    (one,) = small_study(tmp_path, reuse=[finished]).run(["one"])
    assert one.report["documents"]["given"] == 12


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="nowhere: no finished results there"):
        small_study(tmp_path, reuse=[tmp_path / "nowhere"]).run()


def test_a_layer_that_does_not_exist_loses_nothing(finished, no_training):
    wrong = Variant("deep", "too deep", {"experts": ["A-9"]})
    table = VariantTable("small", "", "me-xml", (*TABLE.variants, wrong))
    study = small_study(finished, table=table)
    with pytest.raises(ConfigError, match="variant 'deep': expert 'A-9': layer 9 does not exist"):
        study.run()
    assert [outcome.name for outcome in study.outcomes()] == ["one", "two"]


def test_a_failing_variant_does_not_lose_the_others(tmp_path, monkeypatch):
    fit = glocal.train.run.fit

    def fails_once(recipe, *arguments, **options):
        if len(recipe.experts) == 1:
            raise RuntimeError("out of memory\nand more")
        return fit(recipe, *arguments, **options)

    monkeypatch.setattr(glocal.train.run, "fit", fails_once)
    one, two = small_study(tmp_path).run()
    assert (one.status, one.error) == ("failed", "RuntimeError: out of memory")
    assert two.status == "done"
    monkeypatch.setattr(glocal.train.run, "fit", fit)
    view = Seen()
    assert [o.status for o in small_study(tmp_path).run(view=view)] == ["done", "done"]
    assert view.begun == ["one expert"]


def test_an_interrupted_variant_resumes_to_the_same_result(tmp_path, finished):
    class StopsSoon(TrainListener):
        def on_step(self, info):
            os.kill(os.getpid(), signal.SIGINT)

    class Stopping(StudyView):
        def training(self):
            return nullcontext(StopsSoon())

    study = small_study(tmp_path)
    with pytest.raises(Interrupted, match="stopped while training 'one'"):
        study.run(view=Stopping())
    assert [outcome.status for outcome in study.outcomes()] == ["started"]
    assert list((tmp_path / "models" / "one.run").glob("checkpoint-*"))
    resumed = study.run()
    for mine, other in zip(resumed, small_study(finished).outcomes(), strict=True):
        assert mine.report == other.report


def test_only_settings_that_were_chosen_identify_a_variant():
    assert chosen_settings(load_recipe("glocalxml", ["train.epochs=9"])) == {}
    assert chosen_settings(load_recipe("glocalxml", ["train.epochs=4", "experts=['A-1']"])) == {
        "experts": ["A-1"],
        "train": {"epochs": 4},
    }


def test_only_some(tmp_path):
    study = small_study(tmp_path)
    assert [outcome.name for outcome in study.run(["two"])] == ["two"]


def test_overwrite_trains_anew(tmp_path):
    small_study(tmp_path).run(["one"])
    study = small_study(tmp_path, "train.epochs=1")
    (outcome,) = study.run(["one"], overwrite=True)
    assert outcome.recipe["train"]["epochs"] == 1


def test_divergence_is_measured_where_there_are_two_experts(tmp_path):
    one, two = small_study(tmp_path, divergence=True).run()
    assert one.divergence == {}
    assert two.divergence["jsd"] > 0


def test_without_test_texts_dev_is_measured_and_said(tmp_path):
    data = small_data(test=None)
    assert data.split == "dev"
    assert "the split the weights were chosen on" in data.describe()
    with pytest.raises(ConfigError, match="--test, --dev or both"):
        StudyData(tiny_corpus(4))


def test_a_damaged_result_is_named(tmp_path):
    path = tmp_path / "one.json"
    assert Outcome.load(path) is None
    for text in ("{", json.dumps({"name": "one"}), "[]"):
        path.write_text(text)
        with pytest.raises(DataError, match=r"one\.json: not readable as a variant's result"):
            Outcome.load(path)


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        small_study(tmp_path / "out")


@pytest.mark.slow
def test_a_killed_process_is_a_failed_variant(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "_child", dies)
    outcomes = small_study(tmp_path).run(parallel=2)
    assert [outcome.status for outcome in outcomes] == ["failed", "failed"]
    assert "status 9" in outcomes[0].error


@pytest.mark.slow
def test_side_by_side_equals_one_by_one(tmp_path, finished):
    view = Seen()
    outcomes = small_study(tmp_path).run(parallel=2, view=view)
    assert {name for name, _, _ in view.ended} == {"one", "two"}
    for mine, other in zip(outcomes, small_study(finished).outcomes(), strict=True):
        assert mine.report["scores"]["combined"] == pytest.approx(
            other.report["scores"]["combined"]
        )

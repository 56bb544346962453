"""Searches for settings."""

import threading
import tomllib
from dataclasses import replace

import pytest

from glocal.config import load_recipe
from glocal.data.corpus import Corpus
from glocal.errors import ConfigError, DataError
from glocal.train.listener import TrainListener
from glocal.tune import trials, tuning
from glocal.tune.search_engine import Search, Trial, open_engine
from glocal.tune.search_space import Choice, Range
from glocal.tune.tuning import tune_recipe
from tests.tiny import FAST, tiny_corpus

TRAIN, DEV = tiny_corpus(96), tiny_corpus(24, seed=1)
SPACE = (Range("sparse.cost", 0.1, 10, log=True), Choice("sparse.pieces", ("on", "off")))
FIRST = {"sparse.cost": 1.0, "sparse.pieces": "auto"}


class Messages(TrainListener):
    def __init__(self):
        self.lines = []

    def on_message(self, text):
        self.lines.append(text)


def engine(folder, **changes):
    return open_engine("optuna", replace(Search(folder, "words", SPACE, FIRST), **changes))


def test_first_trial_has_the_own_settings_and_others_are_within_the_space(tmp_path):
    search = engine(tmp_path)
    first = search.ask()
    assert first.settings == FIRST
    search.tell(first, 0.5)
    for _ in range(3):
        trial = search.ask()
        assert 0.1 <= trial.settings["sparse.cost"] <= 10
        assert trial.settings["sparse.pieces"] in ("on", "off")
        search.tell(trial, 0.4)
    again = engine(tmp_path)
    assert [trial.score for trial in again.finished()] == [0.5, 0.4, 0.4, 0.4]
    assert again.finished()[0] == Trial(first.number, FIRST, 0.5)
    assert again.ask().settings != FIRST


def test_trials_worse_than_the_median_are_hopeless(tmp_path):
    search = engine(tmp_path)
    for score in (0.5, 0.6, 0.7, 0.8):
        trial = search.ask()
        assert not search.is_hopeless(trial, 0, score)
        search.tell(trial, score)
    trial = search.ask()
    assert search.is_hopeless(trial, 0, 0.1)
    search.tell(trial, None)
    assert len(search.finished()) == 4


def test_unknown_engine():
    with pytest.raises(ConfigError, match="search engine"):
        open_engine("optima", Search(None, "words", (), {}))


def test_trials_at_once_come_after_the_own_settings(scored, tmp_path, monkeypatch):
    words, meeting = trials.Trials.words, threading.Barrier(3, timeout=60)

    def together(self, recipe, is_hopeless):
        if scored:  # all but the first wait until three are here
            meeting.wait()
        return words(self, recipe, is_hopeless)

    monkeypatch.setattr(trials.Trials, "words", together)
    monkeypatch.setattr(trials.Trials, "at_once", 3)
    found = tune_recipe("fast", TRAIN, DEV, out=tmp_path / "tuned.toml", trials=7)
    assert len(scored) == 7
    assert found.before == load_recipe("fast").sparse.title_weight / 2
    assert found.after >= found.before


@pytest.fixture
def scored(monkeypatch):
    """Trials of the words model whose score is the title weight; no model is fitted."""
    seen = []

    def words(self, recipe, is_hopeless):
        seen.append(recipe.sparse)
        if is_hopeless(0, recipe.sparse.title_weight):
            raise trials.TrialStopped
        return recipe.sparse.title_weight / 2

    monkeypatch.setattr(trials.Trials, "words", words)
    return seen


def test_best_settings_are_written_as_a_recipe(tmp_path, scored):
    listener, out = Messages(), tmp_path / "tuned.toml"
    found = tune_recipe("fast", TRAIN, DEV, out=out, trials=12, listener=listener)
    assert found.before == 0.25
    assert found.after > 0.25
    recipe = load_recipe(str(out))
    assert recipe.sparse.title_weight == found.settings["sparse.title_weight"]
    assert recipe.sparse.title_weight / 2 == pytest.approx(found.after)
    assert tomllib.loads(out.read_text())["extends"] == "fast"
    assert len(listener.lines) == 12
    assert any("stopped early" in line for line in listener.lines)


def test_search_continues_where_it_was(tmp_path, scored):
    out = tmp_path / "tuned.toml"
    tune_recipe("fast", TRAIN, DEV, out=out, trials=2)
    assert tune_recipe("fast", TRAIN, DEV, out=out, trials=2).n_trials == 4
    assert len(scored) == 4
    with pytest.raises(ConfigError, match="another recipe or other texts"):
        tune_recipe("fast", DEV, TRAIN, out=out, trials=1)
    assert tune_recipe("fast", DEV, TRAIN, out=out, trials=1, overwrite=True).n_trials == 1


def test_interrupted_search_writes_the_best_so_far(tmp_path, scored, monkeypatch):
    words = trials.Trials.words

    def interrupted(self, recipe, is_hopeless):
        if len(scored) == 2:
            raise KeyboardInterrupt
        return words(self, recipe, is_hopeless)

    monkeypatch.setattr(trials.Trials, "words", interrupted)
    listener, out = Messages(), tmp_path / "tuned.toml"
    assert tune_recipe("fast", TRAIN, DEV, out=out, trials=9, listener=listener).n_trials == 2
    assert out.is_file()
    assert listener.lines[-1] == "stopped; the best settings so far are written"
    monkeypatch.setattr(trials.Trials, "words", words)
    assert tune_recipe("fast", TRAIN, DEV, out=out, trials=1).n_trials == 3


def test_no_trial_starts_after_the_budget(tmp_path, scored, monkeypatch):
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(tuning.time, "monotonic", lambda: next(clock))
    found = tune_recipe("fast", TRAIN, DEV, out=tmp_path / "tuned.toml", budget=100.0)
    assert 1 <= found.n_trials < 6


@pytest.mark.parametrize(
    ("recipe", "options", "expected"),
    [
        ("fast", {}, "a search needs a limit"),
        ("auto", {"trials": 1}, "nothing of a recipe with the experts auto"),
    ],
)
def test_searches_that_make_no_sense_are_refused(tmp_path, recipe, options, expected):
    with pytest.raises(ConfigError, match=expected):
        tune_recipe(recipe, TRAIN, DEV, out=tmp_path / "tuned.toml", **options)


def test_dev_without_labels_is_refused(tmp_path):
    nothing = Corpus.from_texts(["a cat"], [[]])
    with pytest.raises(DataError, match="no dev text has labels"):
        tune_recipe("fast", TRAIN, nothing, out=tmp_path / "tuned.toml", trials=1)


def test_words_are_searched_for_real(tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "_FEWEST", 50)
    found = tune_recipe("fast", TRAIN, DEV, out=tmp_path / "tuned.toml", trials=2)
    assert 0 < found.before <= found.after <= 1


def test_network_is_trained_once_for_all_trials_of_words(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    fitted = []
    fit = trials.fit
    monkeypatch.setattr(trials, "fit", lambda *a, **k: fitted.append(1) or fit(*a, **k))
    overrides = [*FAST, "sparse.min_words=1"]
    found = tune_recipe(
        "balanced", TRAIN, DEV, out=tmp_path / "tuned.toml", trials=2, overrides=overrides
    )
    assert len(fitted) <= 2 < found.n_trials <= 4
    assert (tmp_path / "tuned.toml.study" / "network" / "glocal.toml").is_file()
    assert not list((tmp_path / "tuned.toml.study").glob("network-*"))
    assert load_recipe(str(tmp_path / "tuned.toml")).experts == ("D-last", "A-last", "S")

import json

import pytest

from glocal.data.readers import read_corpus
from glocal.lab.combine import combine
from glocal.lab.saved_scores import save_scores
from glocal.predict.predictor import Predictor


def test_a_model_combined_again_is_the_model(model, files):
    predictor, corpus = Predictor.load(model), read_corpus(files.test)
    again = combine([save_scores(predictor, corpus, best=15)], way="mean").dev.scores
    whole = predictor.evaluate(corpus, plain_mean=True).mean.scores
    for metric in ("P@1", "P@5", "nDCG@5"):
        assert again[metric] == pytest.approx(whole[metric])


def test_scores_are_saved_and_combined(run, models, files, tmp_path):
    scores = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for model, path in zip(models, scores, strict=True):
        result = run("combine", "save", model, files.test, "--out", path)
        assert result.exit_code == 0, result.output
        assert "24 texts, experts D-last, A-1" in result.stderr
    result = run("combine", "fit", *scores, "--test", scores[0], "--test", scores[1], "--json")
    report = json.loads(result.stdout)
    assert set(report) == {"combination", "dev", "test"}
    assert report["dev"]["scores"] == report["test"]["scores"]
    tables = run("combine", "fit", *scores, "--way", "mean")
    assert "P@1" in tables.stdout


def test_another_file_is_refused(run, files):
    result = run("combine", "fit", files.test)
    assert result.exit_code == 1
    assert "not readable as saved scores" in result.stderr


def test_raw_probabilities_of_an_ensemble(run, models, files):
    raw, calibrated = (
        json.loads(
            run("ensemble", *models, files.test, "--output", "-", *options).stdout.splitlines()[0]
        )
        for options in (["--raw"], [])
    )
    assert raw["labels"][0]["score"] != calibrated["labels"][0]["score"]


def test_combined_scores_are_compared(run, models, files, tmp_path):
    scores = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for model, path in zip(models, scores, strict=True):
        run("combine", "save", model, files.test, "--out", path)
    both = tmp_path / "both.npz"
    result = run("combine", "fit", *scores, "--way", "mean", "--out", both, "--json")
    fitted = json.loads(result.stdout)["dev"]["scores"]["combined"]
    result = run("combine", "compare", scores[1], scores[0], both, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    # What was combined and saved scores as it did when it was combined.
    for metric, value in found["scores"][str(both)].items():
        assert value == pytest.approx(fitted[metric])
    single = json.loads(run("combine", "fit", scores[1], "--way", "mean", "--json").stdout)
    assert found["scores"][str(scores[1])]["P@1"] == pytest.approx(
        single["dev"]["scores"]["combined"]["P@1"]
    )
    difference = found["differences"][str(both)]["P@1"]
    assert difference["low"] <= difference["difference"] <= difference["high"]
    values = [found["scores"][str(path)]["P@3"] for path in (scores[0], both)]
    spread = found["spread"]["P@3"]
    assert spread["mean"] == pytest.approx(sum(values) / 2)
    assert spread["standard_deviation"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    tables = run("combine", "compare", *scores, both).stdout
    assert "standard deviation" in tables
    assert "Difference to" in tables


def test_scores_of_other_texts_are_not_compared(run, models, files, tmp_path):
    one, other = tmp_path / "one.npz", tmp_path / "other.npz"
    run("combine", "save", models[0], files.test, "--out", one)
    run("combine", "save", models[0], files.dev, "--out", other)
    result = run("combine", "compare", one, other)
    assert result.exit_code == 1
    assert "other texts than the first" in result.stderr
    assert "given twice" in run("combine", "compare", one, one).stderr

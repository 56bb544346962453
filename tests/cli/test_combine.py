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

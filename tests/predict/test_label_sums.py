"""The sum of a text's probabilities beside its number of gold labels."""

import json

import numpy as np
import pytest

from glocal.config import load_recipe
from glocal.data.corpus import Corpus
from glocal.predict import label_sums as module
from glocal.predict.label_sums import label_sums
from glocal.predict.predictor import Predictor
from glocal.train.run import fit
from tests.cli.conftest import corpus_rows, invoke, write_jsonl
from tests.tiny import tiny_corpus


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        path = tmp_path_factory.mktemp("model") / "m"
        fit(load_recipe("fast"), tiny_corpus(96), dev=tiny_corpus(60, 1), out=path)
        return path


def test_sums_run_over_all_labels_and_count_known_gold(model, monkeypatch):
    predictor = Predictor.load(model, device="cpu")
    texts = ["the red cat", "the blue dog", "nothing"]
    corpus = Corpus.from_texts(texts, [["red", "cat", "unknown"], ["blue"], []])
    everything = predictor.predict(texts[:2], k=len(predictor.labels)).scores
    monkeypatch.setattr(module, "_PAIRS_AT_A_TIME", 1)  # texts one by one
    found = label_sums(predictor, corpus)
    assert found.n_documents == 2
    assert found.expected == pytest.approx(np.sum(everything) / 2, rel=1e-6)
    assert found.observed == 1.5
    assert label_sums(predictor, Corpus.from_texts(["a"], [[]])) is None


def test_eval_shows_them(model, tmp_path):
    test = write_jsonl(tmp_path / "test.jsonl", corpus_rows(40, 2))
    report = json.loads(invoke("eval", model, test, "--json").stdout)
    sums = (report[0] if isinstance(report, list) else report)["label_sums"]
    assert sums["n_documents"] == 40
    assert sums["observed"] == pytest.approx(2.0, abs=0.1)
    assert sums["expected"] == pytest.approx(sums["observed"], rel=0.2)
    shown = " ".join(invoke("eval", model, test).stdout.split())
    assert f"sum to {sums['expected']:.2f}, and it has {sums['observed']:.2f} gold labels" in shown

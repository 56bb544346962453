"""Training without dev texts: some training texts are held out to tune probabilities and tags."""

import json

import numpy as np
import pytest

from glocal.config import load_recipe
from glocal.data.corpus import Corpus
from glocal.predict.predictor import Predictor
from glocal.storage.model_directory import load_model
from glocal.train.gather import hold_out
from glocal.train.run import fit
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable
from tests.cli.conftest import corpus_rows, invoke, write_jsonl
from tests.tiny import tiny_corpus, tiny_recipe


def test_texts_to_tune_on_are_no_training_texts_and_leave_every_label_one():
    made = tiny_corpus(400)
    texts = [f"{text} {number}" for number, text in enumerate(made.texts())]
    texts[7] = texts[300]  # equal texts are never on both sides
    corpus = Corpus.from_texts(texts, made.labels())
    labels = LabelSpace.build(corpus)
    train, held = (corpus.take(places) for places in hold_out(corpus, labels, seed=0))
    assert len(held) == pytest.approx(40, abs=2)
    assert not set(train.texts()) & set(held.texts())
    assert LabelSpace.build(train).ids == labels.ids
    again = hold_out(corpus, labels, seed=0)[1]
    assert corpus.take(again).texts() == held.texts()


def test_a_small_set_is_used_whole():
    corpus = tiny_corpus(199)
    assert hold_out(corpus, LabelSpace.build(corpus), seed=0) is None


def test_the_words_model_tunes_probabilities_and_tags_on_them(tmp_path):
    rows = corpus_rows(400, 0)
    for number, row in enumerate(rows):
        row["text"] += f" {number}"
    train = write_jsonl(tmp_path / "train.jsonl", rows)
    made = invoke("train", train, "--recipe", "fast", "--out", tmp_path / "m")
    assert made.exit_code == 0, made.output
    assert "training texts are held out" in made.stderr
    assert "held-out training texts: P@1" in made.stderr
    model = Predictor.load(tmp_path / "m")
    assert model.decision.micro_f1 > 0.8
    assert model.calibration.curve is not None
    assert "dev" not in model.metrics
    shown = invoke("info", tmp_path / "m").stdout
    assert "per text, tuned on 40 held-out training texts" in shown
    assert "metric on held-out training texts" in (tmp_path / "m" / "README.md").read_text()
    stored = json.loads((tmp_path / "m" / "metrics.json").read_text())
    assert stored["held_out_texts"] == 40
    # Both labels of a text are its tags, and a threshold of 0.5 was not just kept.
    tags = model.decision(model.predict(["the red cat", "the blue dog"], k=5))
    assert [set(tags.label_ids(row)) for row in range(2)] == [{"red", "cat"}, {"blue", "dog"}]


def test_a_network_keeps_its_last_weights(tmp_path):
    corpus = tiny_corpus(240)
    texts = [f"{text} {number}" for number, text in enumerate(corpus.texts())]
    result = fit(
        tiny_recipe("glocalxml", "train.epochs=2", "train.batch_size=64"),
        Corpus.from_texts(texts, corpus.labels()),
        out=tmp_path / "m",
    )
    assert result.metrics["evaluations"] == []
    assert result.metrics["best_step"] == result.metrics["steps"]
    assert 0 <= result.metrics["held_out"]["P@1"] <= 1
    assert result.metrics["held_out_texts"] == 24


def test_dev_texts_come_first(tmp_path):
    result = fit(load_recipe("fast"), tiny_corpus(240), dev=tiny_corpus(30, 1), out=tmp_path / "m")
    assert "dev" in result.metrics
    assert not any(name.startswith("held_out") for name in result.metrics)
    assert np.isfinite(result.metrics["dev"]["P@1"])


def test_labels_without_training_texts_have_a_constant_of_their_own(tmp_path):
    train, dev = tiny_corpus(96), tiny_corpus(96, seed=1)
    held = Corpus.from_texts(
        train.texts(), [[x for x in row if x != "owl"] for row in train.labels()]
    )
    names = sorted({label for row in train.labels() for label in row})
    recipe = tiny_recipe(
        "fast", "encoder.name=none", "labels.score_unseen=true", "sparse.min_words=1"
    )
    table = LabelTable(names, names)
    path = fit(recipe, held, out=tmp_path / "model", dev=dev, label_table=table, device="cpu").path
    model = load_model(path)
    assert model.labels.counts[model.labels.index["owl"]] == 0
    assert model.system.combination.unseen != 0
    plain = fit(recipe, train, out=tmp_path / "plain", dev=dev, label_table=table, device="cpu")
    assert load_model(plain.path).system.combination.unseen == 0

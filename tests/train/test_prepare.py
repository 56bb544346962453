"""Tokens and models of words that are computed before training."""

import json

import pytest

from glocal.companions.sparse.sparse_model import SparseModel
from glocal.config import load_recipe
from glocal.data import tokens
from glocal.train.prepare import Preparation, prepare_data
from tests.cli.conftest import invoke
from tests.tiny import FAST, tiny_corpus, tiny_recipe
from tests.train.runs import train

RECIPE = tiny_recipe("glocalxml", 'experts=["D-last", "S"]', "train.epochs=1")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("dev", [None, tiny_corpus(30, seed=1)], ids=["held out", "dev"])
def test_training_finds_everything_in_the_cache(dev, tmp_path, monkeypatch):
    corpus = tiny_corpus(230)  # enough to hold some out
    found = prepare_data(Preparation(RECIPE, corpus, dev))
    assert (found.texts, found.labels) == (230 + 30 * (dev is not None), 15)
    assert found.tokens > 2 * found.texts
    assert found.words

    def fail(*_, **__):
        pytest.fail("it was computed again")

    monkeypatch.setattr(tokens, "encode_here", fail)
    monkeypatch.setattr(SparseModel, "fit", fail)
    train(RECIPE, tmp_path / "model", corpus=corpus, dev=dev)


def test_words_alone_have_no_tokens():
    found = prepare_data(Preparation(load_recipe("fast"), tiny_corpus()))
    assert (found.tokens, found.words) == (0, True)


def test_the_command(tmp_path):
    path = tmp_path / "train.jsonl"
    rows = [{"text": d.text, "labels": d.labels} for d in tiny_corpus().documents()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = [part for setting in FAST for part in ("-s", setting)]
    found = invoke("data", "prepare", path, "--recipe", "glocalxml", *settings, "--json")
    assert found.exit_code == 0, found.stderr
    assert json.loads(found.stdout)["texts"] == 64
    assert "Prepared 64 texts with 15 labels" in found.stderr
    found = invoke("data", "prepare", path, "--address", "head:6379")
    assert found.exit_code == 1
    assert "add --engine ray" in found.stderr

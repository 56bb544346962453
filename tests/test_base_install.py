"""The base install has no torch: `fast` works, and everything else names the extra it needs."""

import json

import numpy as np
import pytest

from glocal import Predictor, fit
from glocal.data.writers import write_corpus
from tests.tiny import tiny_corpus, tiny_recipe
from tests.without import glocal_without, run_without


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for name, seed in (("train", 0), ("dev", 1)):
        write_corpus(tiny_corpus(60, seed), folder / f"{name}.jsonl")
    return folder


@pytest.fixture(scope="module")
def model(texts):
    """A model of words, trained without torch."""
    done = glocal_without(
        *("train", "train.jsonl", "--dev", "dev.jsonl", "--recipe", "fast", "--out", "model"),
        cwd=texts,
    )
    assert "On dev" in done.stderr
    return texts / "model"


def test_fast_is_the_same_with_and_without_torch(model):
    rows = glocal_without("predict", model, "dev.jsonl", "-k", 5, cwd=model.parent).stdout
    found = [json.loads(row)["labels"] for row in rows.splitlines()]
    expected = Predictor.load(model, device="cpu").predict(tiny_corpus(60, 1).texts(), k=5)
    assert [[tag["id"] for tag in tags] for tags in found] == [
        [tag.id for tag in tags] for tags in expected
    ]
    scores = [[tag["score"] for tag in tags] for tags in found]
    np.testing.assert_allclose(scores, expected.scores, atol=2e-6)


def test_fast_evaluates_and_explains_without_torch(model):
    report = json.loads(
        glocal_without("eval", model, "dev.jsonl", "--json", cwd=model.parent).stdout
    )
    assert "P@1" in json.dumps(report)
    assert "cat" in glocal_without("explain", model, "the red cat", "-k", 1).stdout


def test_predicting_with_fast_imports_only_what_it_needs(model):
    code = """
from glocal.cli.group import app
from typer.main import get_command
get_command(app)(["predict", *sys.argv[1:]], standalone_mode=False)
heavy = ["torch", "transformers", "tokenizers", "pandas", "pyarrow.dataset", "pyarrow.compute",
         "scipy.optimize", "scipy.sparse", "rich", "glocal.predict.evaluation",
         "glocal.companions.teacher", "glocal.companions.sparse.sparse_training"]
print([name for name in heavy if name in sys.modules], file=sys.stderr)
"""
    one = model.parent / "one.jsonl"
    one.write_text(json.dumps({"text": "the red cat"}), encoding="utf-8")
    assert run_without(code, model, one, absent=()).stderr == "[]\n"


def test_the_tagger_needs_no_torch():
    code = """
from glocal import Tagger
tagger = Tagger("fast").fit(["a red apple", "a whale", "an apple", "a whale"], [["f"], ["a"]] * 2)
print(tagger.predict("an apple", k=1))
"""
    assert run_without(code).stdout == "['f']\n"


def test_auto_trains_fast_and_says_why(texts):
    done = glocal_without("train", "train.jsonl", "--out", "auto", cwd=texts)
    assert "chosen: fast" in done.stderr
    assert "pip install 'glocal[train]'" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("train", "train.jsonl", "--recipe", "glocalxml", "--out", "other"),
        ("analyze", "heads", "--labels", "100"),
        ("teacher", "train.jsonl", "the red cat"),
    ],
)
def test_other_commands_name_the_extra_in_one_line(texts, command):
    failed = glocal_without(*command, cwd=texts, check=False)
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: ")
    assert failed.stderr.endswith("run: pip install 'glocal[train]'\n")
    assert len(failed.stderr.splitlines()) == 1


def test_a_stored_model_with_an_encoder_names_the_extra(tmp_path):
    model = fit(tiny_recipe("glocalxml", "train.epochs=1"), tiny_corpus(20), out=tmp_path / "m")
    code = """
from glocal import Predictor
try:
    Predictor.load(sys.argv[1])
except ImportError as error:
    print(error)
"""
    said = run_without(code, model.path).stdout
    assert said.endswith("run: pip install 'glocal[train]'\n")

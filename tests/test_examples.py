"""The examples in the docstrings of the public interface run and are right."""

import doctest
import inspect
import json

import pytest

import glocal
from glocal import Predictor, Tagger

TEXTS = ["a red apple", "a blue whale", "a green apple", "a grey whale"]
LABELS = [["fruit"], ["animal"], ["fruit"], ["animal"]]
CLASSES = ["Predictions", "Predictor", "Tagger"]  # every public method has an example
OTHERS = ["Bands", "Corpus", "LabelSpace", "LabelTable"]  # the class has one
FUNCTIONS = [name for name in glocal.__all__ if inspect.isfunction(getattr(glocal, name))]


def documented():
    """Every object that must have an example, by its name."""
    for name in [*CLASSES, *OTHERS, *FUNCTIONS]:
        yield name, getattr(glocal, name)
    for name in CLASSES:
        for parent in getattr(glocal, name).__mro__[:-1]:
            for member, value in vars(parent).items():
                function = getattr(value, "__func__", value)
                if inspect.isfunction(function) and not member.startswith("_"):
                    yield f"{name}.{member}", function


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return Tagger("fast").fit(TEXTS, LABELS)


@pytest.fixture
def names(tagger, tmp_path, monkeypatch):
    """What examples may use: a small data set, and a model of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    tagger.set_params(k=5).save("model")
    rows = [{"text": t, "labels": names} for t, names in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "labels.jsonl").write_text('{"id": "fruit", "name": "Fruit"}', encoding="utf-8")
    predictor = Predictor.load("model")
    found = predictor.predict(["an apple", "a whale"], k=2, per_expert=True)
    return {
        "Tagger": Tagger, "tagger": tagger, "texts": TEXTS, "labels": LABELS,
        "predictor": predictor, "predictions": found,
    }  # fmt: skip


@pytest.mark.parametrize(("name", "value"), list(documented()))
def test_example(name, value, names):
    text = inspect.getdoc(value) or ""
    assert "Example:" in text, f"{name} has no example"
    example = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    assert example.examples
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(example, out=said.append)
    assert not runner.failures, "".join(said)

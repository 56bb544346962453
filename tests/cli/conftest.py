"""A data set and a model trained on it once, and the command line called in this process."""

import json
import logging
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from glocal.cli import app, console
from tests.tiny import FAST, tiny_corpus

TINY = [part for setting in FAST for part in ("-s", setting)]


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def corpus_rows(n, seed):
    return [
        {"id": f"d{document.id}", "text": document.text, "labels": list(document.labels)}
        for document in tiny_corpus(n, seed).documents()
    ]


def invoke(*arguments, input=None):
    """Call `glocal`; the result has exit_code, stdout and stderr."""
    console.stdout.cache_clear()
    console.stderr.cache_clear()
    logger = logging.getLogger("glocal")
    before = logger.handlers, logger.propagate, logger.level
    try:
        return CliRunner().invoke(app, [str(a) for a in arguments], input=input)
    finally:
        console.configure(debug=False, quiet=False, verbose=False, as_json=False)
        logger.handlers, logger.propagate, logger.level = before


@pytest.fixture
def run():
    return invoke


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Paths of train, dev and test texts and of a label table."""
    folder = tmp_path_factory.mktemp("files")
    labels = sorted({label for row in corpus_rows(64, 0) for label in row["labels"]})
    return SimpleNamespace(
        train=write_jsonl(folder / "train.jsonl", corpus_rows(64, 0)),
        dev=write_jsonl(folder / "dev.jsonl", corpus_rows(16, 1)),
        test=write_jsonl(folder / "test.jsonl", corpus_rows(24, 2)),
        labels=write_jsonl(
            folder / "labels.jsonl", [{"id": label, "name": f"a {label}"} for label in labels]
        ),
    )


@pytest.fixture(scope="session")
def models(tmp_path_factory, files):
    """Two models of the same labels, one trained well and one a little, by the command line."""
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        # Session fixtures come before the one that gives every test a cache of its own.
        patch.setenv("GLOCAL_CACHE", str(folder / "cache"))
        for seed, epochs in ((0, 40), (1, 4)):
            result = invoke(
                "train", files.train, "--dev", files.dev, "--labels", files.labels,
                "--recipe", "glocalxml", "--out", folder / f"model{seed}", *TINY,
                "-s", f"train.seed={seed}", "-s", f"train.epochs={epochs}",
                "-s", "train.evaluations=2",
            )  # fmt: skip
            assert result.exit_code == 0, result.output
    return [folder / "model0", folder / "model1"]


@pytest.fixture(scope="session")
def model(models):
    return models[0]

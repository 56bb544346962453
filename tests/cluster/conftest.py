"""A model of words and texts to tag, two of which cannot be used."""

import json

import pytest

from glocal.predict.bulk import predict_file
from glocal.predict.predictor import Predictor
from glocal.predict.tag_files import open_writer
from glocal.tagger import Tagger
from tests.tiny import tiny_corpus


@pytest.fixture(scope="session")
def words_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "fast"
    documents = list(tiny_corpus(64).documents())
    Tagger("fast").fit([d.text for d in documents], [d.labels for d in documents]).save(path)
    return path


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    lines = [json.dumps({"id": f"d{i}", "text": f"cat {i} dog red"}) for i in range(50)]
    lines[3], lines[20] = '{"id": "blank", "text": " "}', "not json"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def expected(words_model, texts, tmp_path_factory):
    """The tags that one process writes, in shards of seven rows."""
    output = tmp_path_factory.mktemp("expected") / "tags.jsonl"
    with open_writer(output) as write:
        predict_file(Predictor.load(words_model, device="cpu"), texts, write, k=2, chunk_size=7)
    return output.read_bytes()

"""Similar training texts, where the operator allows them to be shown."""

import time

import pytest

from glocal.data.corpus import Corpus
from glocal.data.writers import write_corpus
from glocal.errors import DataError
from glocal.serve.similar_texts import SimilarTexts
from tests.tiny import tiny_corpus


def of_texts(*texts):
    found = SimilarTexts(Corpus.from_texts(texts, [[f"l{n}"] for n in range(len(texts))]))
    found.wait()
    return found


def test_nearest_first():
    similar = of_texts("a red cat", "a blue dog", "a red dog and a red hen", "nothing")
    found = similar.find("the red dog", k=3)
    assert found[0].labels == ["l2"]
    assert {one.text for one in found} == {"a red cat", "a blue dog", "a red dog and a red hen"}
    assert sorted((one.similarity for one in found), reverse=True) == [
        one.similarity for one in found
    ]
    assert similar.find("unknown words only", k=3) == []
    assert similar.find("", k=3) == []


def test_long_texts_are_cut():
    (found,) = of_texts("cat " * 1000).find("cat", k=1)
    assert len(found.text) == 501
    assert found.text.endswith("…")


def test_texts_by_id():
    similar = of_texts("one", "two")
    assert similar.beginning("1") == "two"
    assert similar.beginning("7") is None


def explained(client, text):
    """The explanation with similar texts, once their index is there."""
    for _ in range(400):
        answer = client.post("/v1/explain", json={"text": text, "k": 1}).json()
        if answer["similar"]:
            return answer
        time.sleep(0.05)
    raise AssertionError("there are no similar texts")


def test_explanations_show_them_only_where_allowed(serving, tmp_path):
    write_corpus(tiny_corpus(96), tmp_path / "train.jsonl")
    client = serving(similar_texts=tmp_path / "train.jsonl")
    answer = explained(client, "the red cat")
    assert len(answer["similar"]) == 10
    best = answer["similar"][0]
    assert "red cat" in best["text"]
    assert {"id": "cat", "name": "the cat"} in best["labels"]
    assert client.get("/v1/models").json()["models"][0]["similar_texts"]
    plain = serving(feedback=tmp_path / "other")
    assert plain.post("/v1/explain", json={"text": "the red cat"}).json()["similar"] == []
    assert not plain.get("/v1/models").json()["models"][0]["similar_texts"]


def test_a_missing_file_is_refused_at_the_start(serving, tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        serving(similar_texts=tmp_path / "nowhere.jsonl")

import pytest

from glocal.log_odds import sigmoid
from tests.serve.conftest import problem


def test_one_text_and_several(client):
    single = client.post("/predict", json={"inputs": "the red cat"}).json()
    assert {entry["label"] for entry in single[:2]} == {"red", "cat"}
    assert len(single) == 10
    several = client.post("/predict", json={"inputs": ["the red cat", "the owl"]}).json()
    assert [entry["label"] for entry in several[0]] == [entry["label"] for entry in single]
    assert several[1][0]["label"] == "owl"
    nested = client.post("/predict", json={"inputs": [["the red cat"], ["the owl"]]}).json()
    assert nested == several


def test_raw_scores_are_log_odds(client):
    body = {"inputs": "the red cat"}
    plain = client.post("/predict", json=body).json()
    raw = client.post("/predict", json={**body, "raw_scores": True}).json()
    for entry, other in zip(plain, raw, strict=True):
        assert sigmoid(other["score"]) == pytest.approx(entry["score"], rel=1e-5)


@pytest.mark.parametrize("inputs", [[], [[]], [["a", "b"]], 1, None])
def test_wrong_inputs(client, inputs):
    assert problem(client.post("/predict", json={"inputs": inputs})).status == 422


def test_truncation(serving):
    client = serving(limits={"max_characters": 20})
    body = {"inputs": "the red cat " * 10}
    assert problem(client.post("/predict", json=body)).status == 413
    assert client.post("/predict", json={**body, "truncate": True}).status_code == 200

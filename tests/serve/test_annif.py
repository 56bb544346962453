"""Annif's interface; `annif_ensemble.py` runs a real Annif against it."""

import json

import pytest

from glocal.data.readers import read_corpus
from tests.serve.conftest import problem


def suggest(client, **form):
    return client.post("/v1/projects/animals/suggest", data=form)


def test_info_projects_and_vocabularies(client):
    assert set(client.get("/v1/").json()) == {"title", "version"}
    (project,) = client.get("/v1/projects").json()["projects"]
    assert project == client.get("/v1/projects/animals").json()
    assert project["project_id"] == "animals"
    assert project["backend"] == {"backend_id": "glocal"}
    assert project["is_trained"]
    assert project["modification_time"].endswith(("Z", "+00:00"))
    assert project["vocab"] == client.get("/v1/vocabs").json()["vocabs"][0]
    assert project["vocab"]["size"] == 15
    assert problem(client.get("/v1/projects/nope")).status == 404


def test_suggest_takes_a_form(client):
    found = suggest(client, text="the red cat", limit=2, project="other", metadata_title="x")
    results = found.json()["results"]
    assert {r["uri"] for r in results} == {"red", "cat"}
    assert set(results[0]) == {"uri", "label", "notation", "score"}
    assert results[0]["label"] == f"the {results[0]['uri']}"
    assert len(suggest(client, text="the red cat").json()["results"]) == 10
    assert suggest(client, text="the red cat", limit=0).json() == {"results": []}
    assert suggest(client, text="the red cat", threshold=1.0).json() == {"results": []}
    assert suggest(client, text="").status_code == 200


def test_suggest_batch(client):
    documents = [{"text": "the red cat", "document_id": "a"}, {"text": "the owl", "metadata": {}}]
    found = client.post(
        "/v1/projects/animals/suggest-batch?limit=1", json={"documents": documents}
    ).json()
    assert [result["document_id"] for result in found] == ["a", None]
    assert found[1]["results"][0]["uri"] == "owl"
    many = {"documents": [{"text": "a"}] * 33}
    assert problem(client.post("/v1/projects/animals/suggest-batch", json=many)).status == 400


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"text": "a", "limit": -1},
        {"text": "a", "limit": "x"},
        {"text": "a", "threshold": "nan"},
    ],
)
def test_wrong_forms(client, form):
    assert problem(suggest(client, **form)).status == 400


def test_language(serving):
    client = serving(language="en")
    assert suggest(client, text="a cat", language="en").status_code == 200
    assert problem(suggest(client, text="a cat", language="fi")).status == 400
    assert client.get("/v1/projects/animals").json()["language"] == "en"


def test_learn_appends_training_rows(client, tmp_path):
    documents = [
        {"text": "a pink hen", "subjects": [{"uri": "hen"}, {"uri": "pink", "label": "Pink"}]},
        {"text": "no subjects"},
    ]
    answer = client.post("/v1/projects/animals/learn", json=documents)
    assert answer.status_code == 204
    assert not answer.content
    assert answer.headers["content-type"] == "application/json"
    (document,) = read_corpus(tmp_path / "feedback" / "animals.jsonl").documents()
    assert list(document.labels) == ["hen", "pink"]


def test_learn_where_feedback_is_off(serving):
    client = serving(feedback=None)
    documents = [{"text": "a hen", "subjects": [{"uri": "hen"}]}]
    assert problem(client.post("/v1/projects/animals/learn", json=documents)).status == 403


def test_detect_language(client):
    body = {"text": "A quick brown fox jumped over the lazy dog.", "languages": ["fi", "en"]}
    best = client.post("/v1/detect-language", json=body).json()["results"][0]
    assert best["language"] == "en"
    assert best["score"] > 0.8
    unknown = client.post("/v1/detect-language", json={**body, "languages": ["xxx"]})
    assert problem(unknown).status == 400


def test_wrong_json_is_a_bad_request(client):
    for body in ([], {"documents": 1}, {"documents": [{"text": 1}]}):
        answer = client.post(
            "/v1/projects/animals/suggest-batch",
            content=json.dumps(body),
            headers={"content-type": "application/json"},
        )
        assert problem(answer).status == 400

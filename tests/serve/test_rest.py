import json

import pytest

from glocal.data.readers import read_corpus
from glocal.errors import ConfigError
from glocal.predict.predictor import Predictor
from glocal.serve.serve_settings import ServeSettings
from tests.serve.conftest import problem, tags_of

TEXTS = ["the red cat", "the blue owl a a a", "the white dog"]


def test_predict_gives_what_the_model_gives(client, model):
    expected = Predictor.load(model).predict(TEXTS, k=2)
    found = client.post("/v1/predict", json={"texts": TEXTS, "k": 2}).json()
    assert found["model"] == "animals"
    for tags, answer in zip(expected, found["results"], strict=True):
        assert [tag.id for tag in tags] == [tag["id"] for tag in answer["tags"]]
        assert [tag.name for tag in tags] == [tag["name"] for tag in answer["tags"]]
        scores = [tag["score"] for tag in answer["tags"]]
        assert scores == pytest.approx([tag.score for tag in tags], abs=1e-6)


def test_the_stored_decision_applies_by_default(client, model):
    predictor = Predictor.load(model)
    expected = predictor.decision(predictor.predict(TEXTS, k=15))
    assert tags_of(client.post("/v1/predict", json={"texts": TEXTS})) == [
        expected.label_ids(row) for row in range(3)
    ]


def test_threshold_alone_gives_every_tag_above_it(client):
    found = client.post("/v1/predict", json={"texts": TEXTS, "threshold": 0.0})
    assert [len(tags) for tags in tags_of(found)] == [15] * 3
    none = client.post("/v1/predict", json={"texts": TEXTS, "threshold": 1.0, "k": 3})
    assert tags_of(none) == [[], [], []]


def test_only_and_exclude(client):
    only = client.post("/v1/predict", json={"texts": TEXTS, "k": 5, "only": ["cat", "dog"]})
    assert [set(tags) for tags in tags_of(only)] == [{"cat", "dog"}] * 3
    rest = client.post("/v1/predict", json={"texts": TEXTS, "k": 15, "exclude": ["cat"]})
    assert all("cat" not in tags and len(tags) == 14 for tags in tags_of(rest))
    unknown = problem(client.post("/v1/predict", json={"texts": TEXTS, "only": ["unicorn"]}))
    assert unknown.status == 404
    assert "unicorn" in unknown.detail


def test_explain_names_the_words(client):
    answer = client.post("/v1/explain", json={"text": "the red cat", "k": 2}).json()
    by_id = {tag["id"]: tag for tag in answer["tags"]}
    assert set(by_id) == {"red", "cat"}
    for tag in answer["tags"]:
        assert tag["spans"][0]["text"] == tag["id"]
        for span in tag["spans"]:
            assert "the red cat"[span["start"] : span["end"]] == span["text"]
        assert sum(expert["share"] for expert in tag["experts"]) == pytest.approx(1)
    assert answer["similar"] == []


def test_models_and_details(client):
    (listed,) = client.get("/v1/models").json()["models"]
    assert listed["id"] == "animals"
    assert listed["n_labels"] == 15
    assert listed["experts"] == ["S"]
    assert not listed["loaded"]
    client.post("/v1/predict", json={"texts": ["a cat"]})
    details = client.get("/v1/models/animals").json()
    assert details["loaded"]
    assert details["card"].startswith("#") or "glocal" in details["card"]
    assert details["recipe"]["experts"] == ["S"]
    assert details["metrics"]["dev"]
    assert problem(client.get("/v1/models/..%2Fanimals")).status == 404


def test_labels_are_found_by_name_and_alternative_name(client):
    def find(**query):
        return client.get("/v1/labels", params=query).json()

    assert [label["id"] for label in find(q="CAT")["labels"]] == ["cat"]
    assert [label["id"] for label in find(q="owllet")["labels"]] == ["owl"]
    assert find(q="the", size=5, page=3)["total"] == 15
    assert len(find(q="the", size=10, page=2)["labels"]) == 5
    cat = find(q="cat")["labels"][0]
    assert cat["alternatives"] == ["catlet"]
    assert cat["parents"] == ["animal"]
    assert cat["count"] > 0


def test_feedback_becomes_training_rows(client, tmp_path):
    correction = {"text": "the pink cat\nand a hen 🐔", "labels": ["cat", "pink", "cat"]}
    answer = client.post("/v1/feedback", json={**correction, "suggested": ["red"], "id": "a1"})
    assert answer.status_code == 201
    assert answer.json() == {"id": "a1", "unknown_labels": ["pink"]}
    (document,) = read_corpus(tmp_path / "feedback" / "animals.jsonl").documents()
    assert document.id == "a1"
    assert document.text == correction["text"]
    assert list(document.labels) == ["cat", "pink"]


def test_feedback_is_refused_where_it_is_not_enabled(serving):
    client = serving(feedback=None)
    refused = problem(client.post("/v1/feedback", json={"text": "a cat", "labels": ["cat"]}))
    assert refused.status == 403
    assert "feedback" in refused.detail


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"texts": "a cat"}, "body.texts"),
        ({"texts": []}, "body.texts"),
        ({"texts": [1]}, "body.texts[0]"),
        ({"texts": ["a"], "k": 0}, "body.k"),
        ({"texts": ["a"], "k": "3"}, "body.k"),
        ({"texts": ["a"], "k": 10**30}, "body.k"),
        ({"texts": ["a"], "threshold": 2}, "body.threshold"),
        ({"texts": ["a"], "treshold": 0.1}, "body.treshold"),
        ({"texts": ["a\ud800"]}, "lone surrogate"),
        ([], "body"),
    ],
)
def test_wrong_requests_say_where(client, body, detail):
    answer = client.post(
        "/v1/predict", content=json.dumps(body), headers={"content-type": "application/json"}
    )
    found = problem(answer)
    assert found.status == 422
    assert detail in found.detail


@pytest.mark.parametrize("body", [b"{", b"", b"\xff\xfe", b'{"texts": ["a"], "threshold": NaN}'])
def test_wrong_json(client, body):
    answer = client.post("/v1/predict", content=body, headers={"content-type": "application/json"})
    assert 400 <= problem(answer).status < 500


def test_long_texts_and_many_texts(serving):
    client = serving(limits={"max_characters": 50, "max_texts": 2})
    long = {"texts": ["the red cat " * 10]}
    assert problem(client.post("/v1/predict", json=long)).status == 413
    assert tags_of(client.post("/v1/predict", json={**long, "truncate": True, "k": 1}))
    assert problem(client.post("/v1/predict", json={"texts": ["a"] * 3})).status == 413


def test_unknown_model(client):
    found = problem(client.post("/v1/predict", json={"texts": ["a"], "model": "animal"}))
    assert found.status == 404
    assert "did you mean 'animals'" in found.detail


def test_health_and_page(client):
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
    assert client.get("/").headers["content-type"].startswith("text/html")
    assert problem(client.get("/static/../app.py")).status == 404
    assert problem(client.get("/static/%2e%2e/app.py")).status == 404
    assert problem(client.get("/v1/predict")).status == 405


def test_the_documentation_needs_nothing_from_outside(client):
    page = client.get("/docs").text
    for path in client.get("/openapi.json").json()["paths"]:
        assert path in page
    assert "Example request" in page
    assert "<script" not in page
    assert "http://" not in page.replace("http://example", "")
    assert "https://" not in page
    assert client.get("/static/docs.css").status_code == 200


def test_a_request_without_a_model_goes_to_that_of_its_language(serving, model, own_model):
    client = serving(model, own_model, routes={"en": model, "de": own_model})
    german, english = "die rote Katze und der Hund", "the red cat and the dog"
    body = {"texts": [german, english, "4711 xyzzy"], "k": 1}
    found = client.post("/v1/predict", json=body).json()
    assert [result["model"] for result in found["results"]] == ["own", "animals", "animals"]
    named = client.post("/v1/predict", json={**body, "model": "own"}).json()
    assert {result["model"] for result in named["results"]} == {"own"}
    assert named["model"] == "own"


def test_routes_to_models_that_are_not_served_are_refused(model, tmp_path):
    settings = ServeSettings(models=(model,), routes={"de": tmp_path / "other"})
    with pytest.raises(ConfigError, match="which is not served"):
        settings.check()

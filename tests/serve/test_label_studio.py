"""Label Studio's requests, as version 1.23 sends them."""

import pytest

from glocal.data.readers import read_corpus
from tests.serve.conftest import problem

CHOICES = (
    '<View><Text name="text" value="$text"/><Choices name="tags" toName="text" choice="multiple">'
    '<Choice value="A small cat" alias="cat"/><Choice value="the red"/><Choice value="unknown"/>'
    "</Choices></View>"
)
TAXONOMY = (
    '<View><Text name="body" value="$body"/><Taxonomy name="tags" toName="body">'
    '<Choice value="animal"><Choice value="cat"/></Choice><Choice value="red"/></Taxonomy></View>'
)
OPEN = '<View><Text name="t" value="$t"/><Taxonomy name="tags" toName="t" apiUrl="x"/></View>'


def predict(client, config, *tasks, model=""):
    body = {
        "tasks": [{"id": 2, "data": data, "meta": {}, "project": 2} for data in tasks],
        "project": "2.1794950945",
        "label_config": config,
        "params": {"login": None, "password": None, "context": None},
    }
    return client.post(f"/label-studio{model}/predict", json=body)


def test_health_setup_and_versions(client):
    assert client.get("/label-studio/health").json()["status"] == "UP"
    assert client.get("/label-studio/animals/health").status_code == 200
    assert problem(client.get("/label-studio/other/health")).status == 404
    body = {
        "project": "2.1794950945",
        "schema": CHOICES,
        "hostname": "http://localhost:8080",
        "access_token": "a" * 40,
        "extra_params": None,
    }
    version = client.post("/label-studio/setup", json=body).json()["model_version"]
    assert version.startswith("animals ")
    assert client.get("/label-studio/versions").json() == {"versions": [version]}


def test_tags_are_filled_in_among_the_choices(client):
    answer = predict(client, CHOICES, {"text": "the red cat"}, {"text": "the blue owl"}).json()
    first = answer["results"][0]
    (part,) = first["result"]
    assert (part["from_name"], part["to_name"], part["type"]) == ("tags", "text", "choices")
    assert set(part["value"]["choices"]) == {"cat", "the red"}
    assert 0 < first["score"] <= 1
    assert len(answer["results"]) == 2


def test_taxonomies_and_open_choices(client):
    (part,) = predict(client, TAXONOMY, {"body": "the red cat"}).json()["results"][0]["result"]
    assert sorted(part["value"]["taxonomy"]) == [["animal", "cat"], ["red"]]
    (part,) = predict(client, OPEN, {"t": "the red cat"}).json()["results"][0]["result"]
    assert sorted(part["value"]["taxonomy"]) == [["the cat"], ["the red"]]


def webhook(client, action="ANNOTATION_CREATED", cancelled=False):
    choices = {"choices": ["cat", "the red", "new"]}
    result = {"from_name": "tags", "to_name": "text", "type": "choices", "value": choices}
    body = {
        "action": action,
        "annotation": {"id": 5, "result": [result], "was_cancelled": cancelled},
        "project": {"id": 2, "label_config": CHOICES, "title": "tags"},
        "task": {"id": 7, "data": {"text": "the red cat"}, "meta": {}},
    }
    return client.post("/label-studio/webhook", json=body)


def test_corrections_come_back_as_training_rows(client, tmp_path):
    assert webhook(client, "TASKS_CREATED").json() == {"status": "ignored"}
    assert webhook(client, cancelled=True).json() == {"status": "ignored"}
    answer = webhook(client)
    assert answer.status_code == 201
    assert answer.json()["status"] == "stored"
    (document,) = read_corpus(tmp_path / "feedback" / "animals.jsonl").documents()
    assert document.id == "label-studio-2-7-5"
    assert document.text == "the red cat"
    assert list(document.labels) == ["cat", "red", "new"]


@pytest.mark.parametrize(
    "config",
    [
        "",
        "<View>",
        "<View/>",
        '<!DOCTYPE x [<!ENTITY a "aaaa">]><View>&a;</View>',
        '<View><Choices name="c" toName="missing"/></View>',
    ],
)
def test_wrong_interfaces(client, config):
    assert problem(predict(client, config, {"text": "a"})).status == 422


def test_tasks_without_a_text(client):
    assert "'text'" in problem(predict(client, CHOICES, {"other": "a"})).detail
    assert problem(predict(client, CHOICES, {"text": 5})).status == 422

import os
import shutil
import threading
import time

from glocal.config import load_recipe
from glocal.serve.served_models import ServedModel, model_ids
from glocal.train.run import fit
from tests.serve.conftest import problem, tags_of
from tests.serve.live import wait_until
from tests.tiny import tiny_corpus

QUICK = {"reload_seconds": 0.05}


def test_ids_are_safe_and_different(tmp_path):
    paths = [tmp_path / name / "model" for name in "abc"] + [tmp_path / "a b\n<x>"]
    assert model_ids(paths) == ["model", "model-2", "model-3", "a-b-x"]


def test_models_side_by_side_are_loaded_on_first_use(serving, model, own_model):
    client = serving(model, own_model)
    assert [m["id"] for m in client.get("/v1/models").json()["models"]] == ["animals", "own"]
    client.post("/v1/predict", json={"texts": ["a cat"], "model": "own"})
    assert [m["loaded"] for m in client.get("/v1/models").json()["models"]] == [False, True]


def test_a_new_version_takes_over_without_a_lost_request(serving, own_model, tmp_path):
    new = tmp_path / "new"
    fit(load_recipe("fast"), tiny_corpus(64, 3), out=new)  # without names
    client = serving(own_model, limits=QUICK)
    body = {"texts": ["the red cat"], "k": 2}
    names, failures, stop = set(), [], threading.Event()

    def ask():
        while not stop.is_set():
            answer = client.post("/v1/predict", json=body)
            if answer.status_code == 200:
                names.update(tag["name"] for tag in answer.json()["results"][0]["tags"])
            else:
                failures.append(answer.text)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: "the cat" in names)
    os.rename(own_model, tmp_path / "old")
    os.rename(new, own_model)
    wait_until(lambda: "cat" in names)
    stop.set()
    asking.join()
    assert not failures


def test_a_damaged_new_version_leaves_the_old_one_in_use(serving, own_model, caplog):
    client = serving(own_model, limits=QUICK)
    before = tags_of(client.post("/v1/predict", json={"texts": ["the red cat"]}))
    (own_model / "labels.parquet").write_bytes(b"damaged")
    wait_until(lambda: "cannot be loaded" in caplog.text)
    time.sleep(0.3)
    assert caplog.text.count("cannot be loaded") == 1  # tried once
    assert tags_of(client.post("/v1/predict", json={"texts": ["the red cat"]})) == before


def test_a_model_that_cannot_be_loaded(serving, own_model):
    client = serving(own_model)
    shutil.rmtree(own_model / "sparse")
    answer = client.post("/v1/predict", json={"texts": ["a"]})
    assert problem(answer).status == 503
    assert client.get("/healthz").status_code == 200


def test_a_request_that_is_given_up_does_not_stop_the_load(serving, monkeypatch):
    client = serving(limits={"request_seconds": 0.2})
    loads, real = [], ServedModel._load

    def slow(self):
        loads.append(self.id)
        time.sleep(0.5)
        return real(self)

    monkeypatch.setattr(ServedModel, "_load", slow)
    body = {"texts": ["the red cat"]}
    wait_until(lambda: client.post("/v1/predict", json=body).status_code == 200)
    assert loads == ["animals"]

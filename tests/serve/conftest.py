"""A small model of words, and the server in this process."""

import shutil
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from glocal.config import load_recipe
from glocal.serve.app import create_app
from glocal.serve.serve_settings import Limits, ServeSettings
from glocal.train.run import fit
from glocal.vocabulary.label_table import LabelEntry, LabelTable
from tests.tiny import ANIMALS, COLOURS, tiny_corpus

TABLE = LabelTable.from_entries(
    [LabelEntry("animal", "Animal"), LabelEntry("colour", "Colour", "What the eye sees.")]
    + [LabelEntry(a, f"the {a}", parents=("animal",), alt_names=(f"{a}let",)) for a in ANIMALS]
    + [LabelEntry(c, f"the {c}", parents=("colour",)) for c in COLOURS]
)


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The directory of a model of words that knows animals and colours."""
    out = tmp_path_factory.mktemp("serve") / "animals"
    fit(load_recipe("fast"), tiny_corpus(96), out=out, dev=tiny_corpus(32, 1), label_table=TABLE)
    return out


@pytest.fixture
def own_model(model, tmp_path):
    """A copy of the model that a test may change."""
    return shutil.copytree(model, tmp_path / "own")


@pytest.fixture
def serving(model, tmp_path):
    """Starts the application; the client has `log`, the lines of the access log."""
    open_clients = []

    def start(*models, limits=None, **settings):
        lines = []
        settings.setdefault("feedback", tmp_path / "feedback")
        app = create_app(
            ServeSettings(models=models or (model,), limits=Limits(**(limits or {})), **settings),
            log=lines.append,
        )
        client = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
        client.__enter__()
        client.log = lines
        open_clients.append(client)
        return client

    yield start
    for client in open_clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(serving):
    return serving()


def tags_of(response):
    """Ids of the tags of each text."""
    assert response.status_code == 200, response.text
    return [[tag["id"] for tag in result["tags"]] for result in response.json()["results"]]


def problem(response):
    """The status and the detail of an error, which must be a problem document."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    document = response.json()
    assert set(document) == {"type", "title", "status", "detail"}
    assert document["status"] == response.status_code
    return SimpleNamespace(**document)

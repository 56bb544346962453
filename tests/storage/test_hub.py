"""Models pushed to a folder and to a hub on loopback, and fetched from it."""

import subprocess
import sys

import pytest

from glocal import Tagger, push_model
from glocal.errors import ConfigError, ModelError
from glocal.storage.hub import is_hub_id
from glocal.storage.integrity import model_integrity
from tests.storage.hub_stub import HubStub

TEXTS, LABELS = ["a red apple", "a blue whale"] * 3, [["fruit"], ["animal"]] * 3


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return Tagger("fast").fit(TEXTS, LABELS).save(tmp_path_factory.mktemp("hub") / "model")


@pytest.fixture(scope="module")
def hub():
    stub = HubStub()
    yield stub
    stub.close()


@pytest.fixture
def settings(hub, tmp_path):
    """Variables of a process that uses the stub; the hub's library reads them when imported."""
    return {
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": hub.token,
        "HF_HOME": str(tmp_path / "home"),
        "GLOCAL_CACHE": str(tmp_path / "cache"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": "0",  # tests are offline by default
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def run(code, *arguments, settings):
    import os

    return subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}", *map(str, arguments)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )


PUSH = "from glocal.cli import main\nsys.argv[0] = 'glocal'\nmain()"
FETCH = """
from glocal import Tagger
print(Tagger.from_pretrained(sys.argv[1]).predict("an apple", k=1))
"""


def test_pushed_to_the_hub_and_fetched(model, hub, settings):
    options = ("--to", "owner/fruits", "--licence", "cc0-1.0", "--private")
    done = run(PUSH, "push", model, *options, settings=settings)
    assert done.returncode == 0, done.stderr
    assert f"to {hub.url}/owner/fruits." in done.stderr
    stored = hub.repositories["owner/fruits"]
    files = {str(p.relative_to(model)) for p in model.rglob("*") if p.is_file()}
    assert files <= set(stored)
    assert hub.private["owner/fruits"]
    card = stored["README.md"].decode()
    assert card.startswith("---\nlibrary_name: glocal\n")
    assert "\nlicense: cc0-1.0\n" in card
    found = run(FETCH, "owner/fruits", settings=settings)
    assert found.stdout == "['fruit']\n", found.stderr


def test_a_damaged_file_on_the_hub_is_noticed(model, hub, settings):
    files = {str(p.relative_to(model)): p.read_bytes() for p in model.rglob("*") if p.is_file()}
    hub.repositories["owner/damaged"] = {**files, "labels.parquet": b"PAR1"}
    failed = run(FETCH, "owner/damaged", settings=settings)
    assert "is damaged: labels.parquet changed" in failed.stderr


def test_problems_of_the_hub_are_one_line(model, settings):
    unknown = run(FETCH, "owner/unknown", settings=settings)
    assert "ModelError: cannot fetch the model 'owner/unknown' from the hub: 404" in unknown.stderr
    wrong = {**settings, "HF_TOKEN": "hf_wrong"}
    refused = run(PUSH, "push", model, "--to", "owner/refused", settings=wrong)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: cannot push the model to 'owner/refused': ")
    assert "401" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_pushed_to_a_folder(model, tmp_path):
    place = push_model(model, tmp_path / "shared")
    assert place == str(tmp_path / "shared")
    assert not model_integrity(place).changed
    assert Tagger.from_pretrained(place).predict("an apple", k=1) == ["fruit"]
    with pytest.raises(ConfigError, match="exists already; pass overwrite=True"):
        push_model(model, tmp_path / "shared")
    card = tmp_path / "shared" / "README.md"
    card.write_text(card.read_text("utf-8") + "\nOur own words.\n", encoding="utf-8")
    again = push_model(tmp_path / "shared", tmp_path / "again", licence="mit")
    text = (tmp_path / "again" / "README.md").read_text("utf-8")
    assert text.count("library_name: glocal") == 1
    assert "license: mit" in text
    assert text.endswith("Our own words.\n")
    assert again == str(tmp_path / "again")


def test_what_cannot_be_pushed(model, tmp_path):
    with pytest.raises(ModelError, match="there is no model directory"):
        push_model(tmp_path / "none", tmp_path / "out")
    with pytest.raises(ConfigError, match="not 'Apache License 2'"):
        push_model(model, tmp_path / "out", licence="Apache License 2")
    with pytest.raises(ConfigError, match="is the model itself"):
        push_model(model, model, overwrite=True)
    assert list(tmp_path.iterdir()) == []


def test_hub_ids_and_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_hub_id("owner/name")
    assert not any(map(is_hub_id, ["name", "./owner/name", "/owner/name", "a/b/c", "../x", "~/x"]))
    (tmp_path / "owner").mkdir()
    assert not is_hub_id("owner/name")

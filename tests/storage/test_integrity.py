"""Checksums of a model directory: checked on load, shown, and kept right by edits."""

import json
import logging

import pytest

from glocal.data.atomic import exclusive, write_json
from glocal.data.checksums import CHECKSUMS_FILE, read_checksums
from glocal.errors import ModelError
from glocal.predict.predictor import Predictor
from glocal.storage.integrity import edit_model, model_integrity, update_checksums
from glocal.storage.model_directory import load_model
from glocal.tagger import Tagger
from glocal.vocabulary.label_space import LabelSpace
from tests.cli.conftest import invoke
from tests.tiny import tiny_corpus


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A words model that a Tagger trained and saved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        corpus = tiny_corpus(64)
        labels = corpus.table.column("labels").to_pylist()
        path = tmp_path_factory.mktemp("model") / "model"
        return Tagger("fast").fit(corpus.texts(), labels).save(path)


@pytest.fixture
def model(trained, tmp_path):
    import shutil

    return shutil.copytree(trained, tmp_path / "model")


def test_every_file_but_the_card_and_the_log_has_a_checksum(model):
    files = {p.relative_to(model).as_posix() for p in model.rglob("*") if p.is_file()}
    unchecked = files - set(read_checksums(model))
    assert unchecked <= {"README.md", "train_log.jsonl", CHECKSUMS_FILE}
    assert {"tagger.json", "sparse/biases.npy", "glocal.toml"} <= set(read_checksums(model))


def test_flipped_bits_are_an_error_and_not_other_tags(model):
    path = model / "sparse" / "biases.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 0b1000
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"biases\.npy changed"):
        load_model(model)
    assert "DAMAGED: sparse/biases.npy" in invoke("info", model).stdout
    assert json.loads(invoke("info", model, "--json").stdout)["integrity"]["changed"] == [
        "sparse/biases.npy"
    ]
    refused = invoke("predict", model, "-", input=b'{"text": "the red fox"}\n')
    assert refused.exit_code == 1
    assert "biases.npy" in refused.stderr


def test_the_card_may_be_edited(model):
    (model / "README.md").write_text("my own words")
    load_model(model)
    assert "intact: all " in invoke("info", model).stdout


def test_a_model_without_checksums_loads_with_a_warning(model, caplog):
    (model / CHECKSUMS_FILE).unlink()
    with caplog.at_level(logging.WARNING):
        load_model(model)
    assert "no checksums" in caplog.text
    assert "no checksums are stored" in invoke("info", model).stdout


def test_an_edit_replaces_files_and_checksums_together(model):
    before = (model / "metrics.json").read_bytes()
    used = Predictor.load(model)
    expected = used.predict(["the red fox"], k=3).scores
    with edit_model(model) as folder:
        write_json(folder / "metrics.json", {"note": "edited"})
        assert (model / "metrics.json").read_bytes() == before
    assert json.loads((model / "metrics.json").read_text()) == {"note": "edited"}
    assert not model_integrity(model).changed
    assert load_model(model).metrics == {"note": "edited"}
    assert (used.predict(["the red fox"], k=3).scores == expected).all()


def test_an_edit_that_fails_changes_nothing(model):
    before = {p: p.read_bytes() for p in model.rglob("*") if p.is_file()}

    def failing():
        with edit_model(model) as folder:
            write_json(folder / "metrics.json", {})
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        failing()
    assert {p: p.read_bytes() for p in model.rglob("*") if p.is_file()} == before
    assert [p.name for p in model.parent.iterdir()] == ["model"]


def test_two_edits_at_once_are_refused(model):
    with exclusive(model), pytest.raises(ModelError, match="another process"), edit_model(model):
        pass


def test_labels_of_another_model_are_refused(model):
    labels = LabelSpace.load(model / "labels.parquet")
    fewer = [values[1:] for values in (labels.ids, labels.names, labels.descriptions)]
    LabelSpace(*fewer, labels.parents[1:], labels.counts[1:], 64).save(model / "labels.parquet")
    update_checksums(model)
    with pytest.raises(ModelError, match="has 15 labels, but the label space has 14"):
        load_model(model)

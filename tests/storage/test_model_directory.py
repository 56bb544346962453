"""The model directory: complete, readable without executing anything, replaced whole or not."""

import errno
import json
import os
import pickle
import pickletools
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from glocal.data.batches import Collator
from glocal.data.tokens import TokenStore
from glocal.errors import ModelError, NewerFormatError
from glocal.predict.topk_documents import score_documents
from glocal.ranking.calibration import Calibration
from glocal.ranking.combination import Combination
from glocal.storage import model_directory as store
from glocal.storage.integrity import update_checksums
from glocal.storage.model_directory import (
    FORMAT_VERSION,
    StoredModel,
    load_model,
    read_labels,
    save_model,
)
from glocal.systems.system import LabelStatistics
from glocal.vocabulary.label_space import LabelSpace
from tests.tiny import build_system, tiny_corpus, tiny_recipe

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"


def model_of(seed=0, **options):
    labels = LabelSpace.build(tiny_corpus(12))
    torch.manual_seed(seed)
    system, tokenizer = build_system(
        tiny_recipe("glocalxml"), LabelStatistics(labels.counts, labels.n_documents)
    )
    metrics = {"steps": 8, "dev": {"P@1": 0.5}}
    return StoredModel(system, system.recipe, labels, tokenizer, metrics=metrics, **options)


@pytest.fixture
def folder(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1, "loss": 2.0}\n')
    save_model(tmp_path / "model", model_of(), log=log)
    return tmp_path / "model"


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def edit(path, change):
    path.write_text(change(path.read_text("utf-8")), encoding="utf-8")
    update_checksums(path.parent)


# --- what is in it ----------------------------------------------------------------------------


def test_it_holds_the_files_that_the_architecture_page_lists(folder):
    paragraph = ARCHITECTURE.read_text("utf-8").split("**Model directory**")[1].split("\n\n")[0]
    listed = re.findall(r"`([\w./]+\.(?:toml|parquet|json|safetensors|jsonl|md))`", paragraph)
    assert len(listed) >= 8
    # A model of one member has no folder of members.
    assert set(files(folder)) == {name for name in listed if not name.startswith("members/")}


def test_no_file_is_a_pickle(folder):
    for name, content in files(folder).items():
        with pytest.raises((pickle.UnpicklingError, ValueError, IndexError)):
            list(pickletools.genops(content))  # parses, executes nothing
        assert not name.endswith((".pt", ".pkl", ".bin", ".npy"))


def test_settings_say_which_version_wrote_it(folder):
    settings = tomllib.loads((folder / "glocal.toml").read_text("utf-8"))
    assert settings["format_version"] == store.FORMAT_VERSION
    assert settings["library_version"]
    assert settings["recipe"]["candidates"]["mode"] == "full"  # what `auto` was resolved to


def test_everything_comes_back(tmp_path):
    saved = model_of(calibration=Calibration(0.75, 1.25, -0.5))
    save_model(tmp_path / "model", saved)
    loaded = load_model(tmp_path / "model")
    assert loaded.recipe == saved.recipe
    assert loaded.calibration == Calibration(0.75, 1.25, -0.5)
    assert loaded.metrics == saved.metrics
    assert loaded.labels.ids == saved.labels.ids
    assert loaded.labels.n_documents == saved.labels.n_documents
    assert loaded.tokenizer.facts == saved.tokenizer.facts
    assert not loaded.system.training
    state = saved.system.state_dict()
    assert all(tensor.equal(state[n]) for n, tensor in loaded.system.state_dict().items())
    assert read_labels(tmp_path / "model").ids == saved.labels.ids


def best_labels(model):
    texts = tiny_corpus(6, seed=2).texts()
    tokens = TokenStore.in_memory(model.tokenizer.encode_batch(texts, 24))
    documents = Collator(tokens, model.tokenizer.facts, chunking=model.system.chunking)
    return score_documents(model.system.eval(), documents, k=5)


def test_the_combination_comes_back(tmp_path):
    saved = model_of()
    saved.system.combination = Combination({"D-last": 0.6, "A-1": 0.4}, 0.1, -0.75)
    save_model(tmp_path / "model", saved)
    loaded = load_model(tmp_path / "model")
    assert loaded.system.combination == saved.system.combination
    before, after = best_labels(saved), best_labels(loaded)
    assert np.array_equal(before.indices, after.indices)
    assert np.array_equal(before.scores, after.scores)


def test_a_model_from_before_the_frequency_term_scores_as_it_did(tmp_path):
    saved = model_of()
    saved.system.combination = Combination({"D-last": 0.6, "A-1": 0.4}, 0.1)
    save_model(tmp_path / "model", saved)
    settings = tmp_path / "model" / "glocal.toml"
    edit(settings, lambda text: text.replace("frequency = 0.0\n", "", 1))
    assert set(tomllib.loads(settings.read_text("utf-8"))["combination"]) == {"bias", "weights"}
    before, after = best_labels(saved), best_labels(load_model(tmp_path / "model"))
    assert np.array_equal(before.indices, after.indices)
    assert np.array_equal(before.scores, after.scores)


def test_the_card_tells_labels_and_scores(folder):
    card = (folder / "README.md").read_text("utf-8")
    assert card.startswith("# glocalxml on random:tiny")
    assert "| P@1 | 0.5000 |" in card
    assert f"{len(read_labels(folder))} labels" in card


def test_files_are_as_readable_as_other_new_files(folder, tmp_path):
    (tmp_path / "other").write_text("")
    expected = (tmp_path / "other").stat().st_mode
    assert {path.stat().st_mode for path in folder.rglob("*") if path.is_file()} == {expected}


# --- reading what is wrong --------------------------------------------------------------------


def test_a_newer_format_asks_for_an_upgrade(folder):
    edit(
        folder / "glocal.toml",
        lambda t: t.replace(f"format_version = {FORMAT_VERSION}", "format_version = 99"),
    )
    with pytest.raises(
        NewerFormatError, match=r"format 99.*up to format \d; upgrade it: pip install -U"
    ):
        load_model(folder)


def test_a_place_that_is_no_model_directory(tmp_path):
    with pytest.raises(ModelError, match="there is no model directory"):
        load_model(tmp_path / "absent")
    with pytest.raises(ModelError, match=r"not a model directory.*no glocal\.toml"):
        load_model(tmp_path)


NEEDED = [
    "glocal.toml",
    "labels.parquet",
    "tokenizer.json",
    "encoder/config.json",
    "model.safetensors",
    "metrics.json",
]


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "noise"])
def test_a_missing_or_damaged_file_is_one_clear_error(folder, name, damage):
    path = folder / name
    if damage == "missing":
        path.unlink()
    else:
        content = path.read_bytes()
        half = content[: len(content) // 2]
        path.write_bytes({"cut": half, "empty": b"", "noise": b"\xff\x00" * 99}[damage])
    with pytest.raises(ModelError) as error:
        load_model(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)
    if damage == "missing" and name != "glocal.toml":
        assert name in str(error.value)


@pytest.mark.parametrize("key", ["format_version", "calibration", "tokenizer", "recipe"])
def test_a_missing_setting_is_one_clear_error(folder, key):
    settings = tomllib.loads((folder / "glocal.toml").read_text("utf-8"))
    del settings[key]
    (folder / "glocal.toml").write_text(store.to_toml(settings), encoding="utf-8")
    update_checksums(folder)
    with pytest.raises(ModelError, match=f"damaged or incomplete.*{key}"):
        load_model(folder)


def test_a_model_from_before_has_a_temperature(folder):
    settings = tomllib.loads((folder / "glocal.toml").read_text("utf-8"))
    del settings["calibration"]
    settings = {"temperature": 2.0, **settings}
    (folder / "glocal.toml").write_text(store.to_toml(settings), encoding="utf-8")
    update_checksums(folder)
    assert load_model(folder).calibration == Calibration(0.5, 0.5)


def test_weights_of_another_model_are_refused(folder):
    save_file({"experts.0.weight": torch.zeros(3, 3)}, folder / "model.safetensors")
    update_checksums(folder)
    with pytest.raises(ModelError, match="does not belong to this model"):
        load_model(folder)


# --- writing ----------------------------------------------------------------------------------


def test_a_new_model_takes_the_place_of_the_old_one(folder):
    before = files(folder)
    (folder / "stray.txt").write_text("left over")
    save_model(folder, model_of(seed=1))
    after = files(folder)
    assert after["model.safetensors"] != before["model.safetensors"]
    assert "stray.txt" not in after
    assert {path.name for path in folder.parent.iterdir()} == {"model", "log.jsonl"}


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "target",
    [
        "glocal.storage.weights.write_tensors",
        "glocal.storage.model_directory.replace_dir",
        "glocal.data.atomic.fsync_tree",
        "shutil.copyfile",
    ],
)
def test_a_full_disk_leaves_the_old_model_untouched(folder, tmp_path, monkeypatch, target):
    before = files(folder)
    with monkeypatch.context() as patch:
        patch.setattr(target, full)
        with pytest.raises(ModelError, match="No space left on device; nothing there was changed"):
            save_model(folder, model_of(seed=1), log=tmp_path / "log.jsonl")
    assert files(folder) == before
    assert {path.name for path in tmp_path.iterdir()} == {"model", "log.jsonl"}


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_rename_that_fails_puts_the_old_model_back(folder, monkeypatch, fails_at):
    before, replace, calls = files(folder), os.replace, []

    def limited(source, target):
        calls.append(source)
        if len(calls) == fails_at:
            full()
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", limited)
        with pytest.raises(ModelError, match="No space left"):
            save_model(folder, model_of(seed=1))
    assert files(folder) == before
    load_model(folder)


@pytest.mark.parametrize("limit", [400, 4000, 60_000])
def test_a_write_the_system_cuts_short_is_one_clear_error(folder, limit):
    # Every file may grow to so many bytes only: what a full disk does, whoever writes.
    resource = pytest.importorskip("resource")  # not on Windows
    before = files(folder)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
    try:
        with pytest.raises(ModelError, match="File too large; nothing there was changed"):
            save_model(folder, model_of(seed=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert files(folder) == before


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="cannot write the model directory"):
        save_model(tmp_path / "file" / "model", model_of())


def test_half_precision_and_odd_layouts_are_stored_as_they_are(tmp_path):
    model = model_of()
    weight = model.system.experts[0].weight
    weight.data = weight.data.T.contiguous().T  # not contiguous
    assert not weight.is_contiguous()
    save_model(tmp_path / "model", model)
    loaded = load_model(tmp_path / "model")
    tokens = TokenStore.in_memory(model.tokenizer.encode_batch(["a red dog", "an owl"], 24))
    documents = Collator(tokens, model.tokenizer.facts)
    found = [score_documents(m.system.eval(), documents, k=3) for m in (model, loaded)]
    np.testing.assert_allclose(found[0].scores, found[1].scores, rtol=1e-6)


def test_metrics_are_plain_json(folder):
    assert json.loads((folder / "metrics.json").read_text("utf-8"))["steps"] == 8


def test_dev_scores_of_all_parts_in_one_table_are_read_apart(folder):
    stored = {"steps": 8, "dev": {"combined": {"P@1": 0.5}, "A-1": {"P@1": 0.4}}}
    (folder / "metrics.json").write_text(json.dumps(stored), encoding="utf-8")
    update_checksums(folder)
    metrics = load_model(folder).metrics
    assert metrics["dev"] == {"P@1": 0.5}
    assert metrics["dev_experts"] == {"A-1": {"P@1": 0.4}}

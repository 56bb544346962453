"""Changes of stored models that are killed (SIGKILL) at given moments."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from glocal.data.corpus import Corpus
from glocal.predict.predictor import Predictor
from glocal.storage.integrity import model_integrity
from glocal.storage.model_directory import read_history, read_labels
from glocal.update.further_training import continue_training
from glocal.update.label_update import add_labels, remove_labels
from glocal.vocabulary.label_table import LabelTable
from tests.tiny import tiny_corpus, tiny_recipe
from tests.train.runs import train as train_tiny

TRAIN, DEV = tiny_corpus(96), tiny_corpus(24, seed=1)
SPARSE = ("sparse.min_words=1", "sparse.min_pairs=1")
NEW = LabelTable(["newt"], ["Newt"])
EXAMPLES = Corpus.from_texts(["a small newt", "two newts and a newt"], [["newt"]] * 2)

PROGRAM = """
import importlib, os, signal, sys
from tests.update.test_killed_changes import change
module, name = sys.argv[3:]
owner = importlib.import_module(module)
work = getattr(owner, name)
def struck(*values, **named):
    work(*values, **named)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, struck)
change(sys.argv[1], sys.argv[2])
"""
WRITING = {
    "model read": ("glocal.vocabulary.label_change", "added"),
    "words written": ("glocal.companions.sparse.sparse_model", "write_model"),
    "files written": ("glocal.storage.model_directory", "_write"),
    "checksums written": ("glocal.storage.integrity", "update_checksums"),
}
REPLACED = ("glocal.data.atomic", "_exchange")


def change(path, command):
    """Make the change that is killed."""
    train = TRAIN if (Path(path) / "model.safetensors").is_file() else None
    if command == "add":
        add_labels(path, NEW, examples=EXAMPLES, train=train, device="cpu")
    else:
        continue_training(path, EXAMPLES, train=train, device="cpu")


def trained(folder, recipe):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(folder / "cache"))
        return train_tiny(recipe, folder / "model", corpus=TRAIN, dev=DEV).path


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    recipe = tiny_recipe("fast", "encoder.name=none", *SPARSE)
    return trained(tmp_path_factory.mktemp("words"), recipe)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("network"), tiny_recipe("balanced", *SPARSE))


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def kill(model, command, moment):
    """Run a change that is killed at the end of a function."""
    words = [sys.executable, "-c", PROGRAM, str(model), command, *moment]
    done = subprocess.run(words, check=False, capture_output=True, cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def leftovers(model):
    return [path.name for path in model.parent.iterdir() if path.name.startswith(f".{model.name}.")]


def usable(model):
    assert not model_integrity(model).changed
    return len(Predictor.load(model, device="cpu").predict(["a red cat"], k=3)[0]) == 3


@pytest.mark.parametrize("moment", WRITING.values(), ids=WRITING)
@pytest.mark.parametrize("command", ["add", "continue"])
def test_old_model_stays(words, tmp_path, command, moment):
    model = Path(shutil.copytree(words, tmp_path / "model"))
    kill(model, command, moment)
    assert files(model) == files(words)
    assert usable(model)
    change(model, command)  # nothing stands in its way, and nothing of the first attempt is left
    assert read_labels(model).ids[-1] == "newt"
    assert leftovers(model) == []


@pytest.mark.parametrize("command", ["add", "continue"])
def test_new_model_is_whole_once_it_is_in_place(words, tmp_path, command):
    model = Path(shutil.copytree(words, tmp_path / "model"))
    kill(model, command, REPLACED)
    assert read_labels(model).ids[-1] == "newt"
    assert len(read_history(model)) == 1
    assert usable(model)
    remove_labels(model, ["newt"])
    assert leftovers(model) == []


@pytest.mark.parametrize("command", ["add", "continue"])
def test_network_stays(network, tmp_path, command, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    model = Path(shutil.copytree(network, tmp_path / "model"))
    kill(model, command, WRITING["checksums written"])
    assert files(model) == files(network)
    assert usable(model)


def test_leftovers_of_other_models_are_not_touched(words, tmp_path):
    model = Path(shutil.copytree(words, tmp_path / "model"))
    (other := tmp_path / ".model2.edited-x.tmp").mkdir()
    (own := tmp_path / ".model.edited-x.tmp").mkdir()
    remove_labels(model, ["cat"])
    assert other.is_dir()
    assert not own.is_dir()

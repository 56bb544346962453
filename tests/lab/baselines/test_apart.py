"""Baselines in another environment, which here is this one with a stub of the library."""

import sys

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from glocal.errors import MissingExtraError, TrainingError
from glocal.lab.baselines import apart, peer_process
from glocal.lab.baselines.baseline_registry import BASELINES, build_baseline
from glocal.vocabulary.label_space import LabelSpace
from tests.tiny import tiny_corpus

STUB = """
import numpy as np
from scipy.sparse import csr_matrix, load_npz, save_npz
print("a library that talks")

class XLinearModel:
    @classmethod
    def train(cls, features, labels, C=None, threads=1, **options):
        if threads == 13:
            raise ValueError("thirteen threads")
        model = cls()
        model.weights = (features.T @ labels).tocsr()
        return model

    def save(self, folder):
        save_npz(folder + ".npz", self.weights)

    @classmethod
    def load(cls, folder, is_predict_only):
        model = cls()
        model.weights = load_npz(folder + ".npz")
        return model

    def predict(self, features, only_topk, threads):
        scores = (features @ self.weights).toarray()
        keep = np.argsort(-scores, axis=1)[:, :only_topk]
        rows = np.repeat(np.arange(len(scores)), only_topk)
        values = scores[rows, keep.ravel()]
        return csr_matrix((values, (rows, keep.ravel())), shape=scores.shape)
"""


@pytest.fixture
def environment(tmp_path, monkeypatch):
    package = tmp_path / "site" / "pecos" / "xmc" / "xlinear"
    package.mkdir(parents=True)
    (package / "model.py").write_text(STUB)
    (package.parent / "__init__.py").write_text("Indexer = LabelEmbeddingFactory = None\n")
    about = tmp_path / "site" / "libpecos-9.8.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: libpecos\nVersion: 9.8\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/site exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("GLOCAL_PECOS", str(python))
    apart.version_apart.cache_clear()
    yield
    apart.version_apart.cache_clear()


def fitted(folder, **options):
    train = tiny_corpus(96)
    labels = LabelSpace.build(train)
    baseline = build_baseline("pecos-ova", BASELINES["pecos-ova"].default, **options)
    baseline.fit(train, labels.encode(train)[:, : len(labels)], folder)
    return baseline, labels


def test_a_library_of_another_environment_learns_and_predicts(environment, tmp_path):
    assert BASELINES["pecos-ova"].version == "9.8"
    baseline, labels = fitted(tmp_path / "model", threads=2)
    assert (tmp_path / "model" / "model.npz").is_file()
    after_training = baseline.elsewhere
    assert after_training.cpu_seconds > 0
    assert after_training.peak_bytes > 1e6
    test = tiny_corpus(32, seed=3)
    found = baseline.predict(test.texts(), 2)
    assert labels.encode(test)[np.arange(32)[:, None], found.indices].sum() > 30
    assert (np.diff(found.scores, axis=1) <= 0).all()
    assert baseline.elsewhere.cpu_seconds > after_training.cpu_seconds
    assert baseline.predict(["zzz"], 100).indices.shape[0] == 1


def test_characters_are_features_beside_words(environment):
    columns = [
        build_baseline(name, BASELINES[name].default).features.fit(tiny_corpus(96)).shape[1]
        for name in ("pecos-tree", "pecos-tree-characters")
    ]
    assert columns[1] > 2 * columns[0]


def test_the_process_ends_with_the_baseline(environment, tmp_path):
    baseline, _ = fitted(tmp_path / "model")
    process = baseline._process
    assert process.poll() is None
    del baseline
    assert process.wait(20) == 0


def test_a_library_that_fails_says_why(environment, tmp_path):
    with pytest.raises(TrainingError, match=r"process of pecos ended with 1: .*thirteen threads"):
        fitted(tmp_path / "model", threads=13)


@pytest.mark.parametrize("python", ["", "/nowhere/python", sys.executable])
def test_an_environment_without_the_library_is_named(python, monkeypatch):
    monkeypatch.setenv("GLOCAL_PECOS", python)
    apart.version_apart.cache_clear()
    with pytest.raises(MissingExtraError, match=r"install libpecos .*GLOCAL_PECOS"):
        build_baseline("pecos-tree", {})
    apart.version_apart.cache_clear()


def test_messages_carry_arrays_of_any_shape(tmp_path):
    sparse = csr_matrix(np.array([[0, 2.5], [0, 0]], np.float32))
    arrays = peer_process.matrix_arrays("m", sparse) | {"none": np.empty((0, 3), np.int8)}
    with (tmp_path / "pipe").open("w+b") as file:
        peer_process.send(file, {"k": 5}, arrays)
        peer_process.send(file, {})
        file.seek(0)
        message, found = peer_process.receive(file)
        assert message == {"k": 5}
        assert found["none"].shape == (0, 3)
        np.testing.assert_array_equal(peer_process.matrix("m", found).toarray(), sparse.toarray())
        assert peer_process.receive(file) == ({}, {})
        with pytest.raises(EOFError):
            peer_process.receive(file)


def test_the_tree_of_libmultilabel_returns_the_best_labels_of_each_row():
    class Model:
        def predict_values(self, features):
            return features.toarray() @ np.arange(12.0).reshape(3, 4)

    method = peer_process.LibMultiLabelTree()
    method.model = Model()
    features = csr_matrix(np.eye(3, dtype=np.float32)[np.arange(300) % 3])
    found = method.predict(features, 2)
    assert found.shape == (300, 4)
    np.testing.assert_array_equal(found[299].toarray(), [[0, 0, 10, 11]])

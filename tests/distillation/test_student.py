"""A student learns from its teacher's probabilities, texts without labels included."""

import json

import numpy as np
import pytest

from glocal.config import load_recipe
from glocal.data.corpus import Corpus
from glocal.distillation.student import distill
from glocal.distillation.teacher_scores import TeacherScorer
from glocal.errors import ConfigError, Interrupted, ModelError
from glocal.predict.predictor import Predictor
from glocal.train.soft_targets import SoftTargets
from glocal.vocabulary.label_space import LabelSpace
from tests.tiny import tiny_corpus, tiny_recipe
from tests.train.runs import Recorder, assert_same_run, train, weights

STUDENT = ("glocalxml", 'experts=["D-last"]', "train.epochs=2", "candidates.mode=full")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A model of words alone: every text of the tiny corpus has its labels in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        path = tmp_path_factory.mktemp("teacher") / "model"
        train(load_recipe("fast"), path, dev=tiny_corpus(32, 5))
        return path


def unlabelled(n=48, seed=9):
    return Corpus.from_texts(tiny_corpus(n, seed).texts())


def taught(teacher, out, *, recipe=None, **options):
    recipe = tiny_recipe(*STUDENT) if recipe is None else recipe
    return distill([teacher], recipe, tiny_corpus(), out=out, device="cpu", **options)


def test_student_of_texts_without_labels(teacher, tmp_path):
    listener = Recorder()
    found = taught(teacher, tmp_path / "student", texts=unlabelled(), listener=listener, top=4)
    facts = json.loads((found.path / "metrics.json").read_text())["distillation"]
    assert facts == {"teachers": ["model"], "weight": 0.5, "top": 4, "unlabelled_texts": 48}
    assert any("48 texts without labels" in message for message in listener.messages)
    # 64 + 48 texts in batches of 16, twice
    assert json.loads((found.path / "metrics.json").read_text())["steps"] == 14
    student = Predictor.load(found.path, device="cpu")
    assert student.labels.n_documents == 64  # texts without labels are not counted
    assert len(student.predict(["the red cat"], k=2)[0]) == 2


def test_without_weight_it_is_a_plain_training(teacher, tmp_path):
    alone = train(tiny_recipe(*STUDENT), tmp_path / "alone")
    student = taught(teacher, tmp_path / "student", weight=0.0)
    for name, tensor in weights(alone.path).items():
        np.testing.assert_allclose(
            tensor.numpy(), weights(student.path)[name].numpy(), atol=2e-5, err_msg=name
        )


def test_a_student_approaches_a_certain_teacher(teacher, tmp_path):
    recipe = tiny_recipe(*STUDENT, "train.epochs=25")
    texts = tiny_corpus(200, 7)
    found = taught(teacher, tmp_path / "student", recipe=recipe, texts=texts, weight=1.0)
    test = tiny_corpus(60, 8)
    scores = [
        Predictor.load(path, device="cpu").evaluate(test, ks=(1, 2)).scores["P@2"]
        for path in (teacher, found.path)
    ]
    assert scores[0] > 0.9
    assert scores[1] > scores[0] - 0.1


@pytest.mark.parametrize("mode", ["full", "shortlist"])
def test_every_mode_and_loss(teacher, tmp_path, mode):
    recipe = tiny_recipe(
        "me-xml", 'experts=["D-last","A-1"]', f"candidates.mode={mode}", "candidates.hard=2",
        "candidates.random=3", "train.epochs=1", "attention.query_init=tokens",
    )  # fmt: skip
    assert taught(
        teacher, tmp_path / "student", recipe=recipe, dev=tiny_corpus(16, 1)
    ).path.is_dir()


def test_held_out_texts_keep_their_targets_apart(teacher, tmp_path):
    made = tiny_corpus(300, 3)
    texts = [f"{text} {number}" for number, text in enumerate(made.texts())]  # none twice
    corpus, listener = Corpus.from_texts(texts, made.labels()), Recorder()
    recipe = tiny_recipe(*STUDENT, "train.epochs=1")
    found = distill(
        [teacher], recipe, corpus, out=tmp_path / "student", device="cpu", listener=listener,
        texts=unlabelled(),
    )  # fmt: skip
    kept = json.loads((found.path / "metrics.json").read_text())
    assert 0 < kept["held_out_texts"] < 60
    assert kept["steps"] == -(-(300 - kept["held_out_texts"] + 48) // 16)


def test_a_stopped_student_resumes(teacher, tmp_path):
    recipe = tiny_recipe(*STUDENT)
    options = {"texts": unlabelled(), "recipe": recipe}
    taught(teacher, tmp_path / "whole", **options)
    with pytest.raises(Interrupted):
        taught(teacher, tmp_path / "parts", listener=Recorder(stop_at=5), **options)
    with pytest.raises(ModelError, match="unfinished run"):
        taught(teacher, tmp_path / "parts", **options)
    taught(teacher, tmp_path / "parts", resume=True, **options)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_scores_are_computed_once(teacher, tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("glocal.distillation.teacher_scores._PART", 20)
    corpus, seen = tiny_corpus(50), []
    scorer = TeacherScorer([teacher], device="cpu")
    first = scorer.best_labels(corpus, top=3, progress=lambda done, total: seen.append(done))
    assert seen == [20, 40, 50]
    expected = Predictor.load(teacher, device="cpu").predict(corpus.texts(), k=3)
    np.testing.assert_array_equal(first[0], expected.indices)
    np.testing.assert_allclose(first[1], expected.scores, atol=1e-6)
    monkeypatch.setattr(Predictor, "load", None)  # whoever calls it fails
    again = TeacherScorer([teacher], device="cpu").best_labels(corpus, top=3)
    np.testing.assert_array_equal(first[1], again[1])


def test_several_teachers_vote(teacher, tmp_path):
    other = train(load_recipe("fast", ["sparse.cost=0.1"]), tmp_path / "other").path
    labels, scores = TeacherScorer([teacher, other], device="cpu").best_labels(
        tiny_corpus(10), top=2
    )
    assert labels.shape == scores.shape == (10, 2)
    assert ((scores > 0) & (scores <= 1)).all()


def test_mixed_targets():
    labels = LabelSpace.build(Corpus.from_texts(["x", "y"], [["a", "b"], ["c"]]))
    soft = SoftTargets(
        ["c", "a", "b"],  # in another order than the student's
        np.array([[0, 1], [2, -1], [1, -1]]),
        np.array([[0.8, 0.4], [0.5, 0.0], [0.3, 0.0]], dtype=np.float32),
        unlabelled=Corpus.from_texts(["z"]),
        weight=0.25,
    )
    joined = soft.joined(Corpus.from_texts(["x", "y"], [["a"], ["c"]]))
    assert joined.texts() == ["x", "y", "z"]
    assert joined.labels() == [["a"], ["c"], []]
    found = soft.matrix(labels, labels.encode(joined)).toarray()
    expected = [[0.85, 0.0, 0.2], [0.0, 0.125, 0.75], [0.3, 0.0, 0.0]]
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_errors_come_before_any_work(teacher, tmp_path):
    out = tmp_path / "student"
    with pytest.raises(ModelError, match="there is no model directory"):
        distill([tmp_path / "nowhere"], tiny_recipe(), tiny_corpus(), out=out)
    others = Corpus.from_texts(["the red cat", "a zebra"], [["cat", "red"], ["zebra"]])
    with pytest.raises(ConfigError, match="known only to the training texts") as error:
        distill([teacher], tiny_recipe(), others, out=out)
    assert "13 of the labels are known only to the teacher (such as ant, bat, bee)" in str(
        error.value
    )
    assert "(such as zebra)" in str(error.value)
    with pytest.raises(ConfigError, match="no network"):
        taught(teacher, out, recipe=load_recipe("fast"))
    with pytest.raises(ConfigError, match="label clusters"):
        taught(teacher, out, recipe=tiny_recipe("aplc"))
    with pytest.raises(ConfigError, match="labels of picked clusters"):
        taught(teacher, out, recipe=tiny_recipe("glocalxml", "candidates.mode=clusters"))
    with pytest.raises(ConfigError, match="between 0 and 1, not 2"):
        taught(teacher, out, weight=2)
    with pytest.raises(ConfigError, match="at least 1 label"):
        taught(teacher, out, top=0)
    assert not out.exists()

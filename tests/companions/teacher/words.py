"""Word vectors and corpora small enough to calculate by hand."""

import numpy as np

from glocal.companions.companion import FitInputs
from glocal.companions.teacher.teacher_model import Teacher
from glocal.config import Recipe, TeacherConfig
from glocal.data.corpus import Corpus
from glocal.encoders.static import StaticVectors
from glocal.encoders.word_lookup import VocabularyLookup
from glocal.vocabulary.label_space import LabelSpace

WORDS = ["cat", "dog", "owl", "fox", "red", "blue"]


def word_vectors(words=WORDS, **options):
    """A direction of its own for each word, so that similarity is overlap."""
    return StaticVectors(VocabularyLookup(words), np.eye(len(words)), **options)


def make_teacher(texts, labels, *, table=None, vectors=None, min_count=1, **settings):
    """The paper's teacher of a few texts; not centred, so that similarities can be read off."""
    corpus = Corpus.from_texts(texts, labels)
    space = LabelSpace.build(corpus, table=table, min_count=min_count)
    plain = {"similarity": "mean", "centre": False, "k": 10, "sharpness": 1.0}
    recipe = Recipe(teacher=TeacherConfig(**{**plain, **settings}))
    vectors = word_vectors() if vectors is None else vectors
    return Teacher.fit(FitInputs(recipe, corpus, space, table, vectors))


def scope_dict(teacher, text):
    """The labels of a text's scope with their weights, in order."""
    scopes = teacher.scopes_of([text])
    pairs = zip(scopes.labels[0].tolist(), scopes.weights[0].tolist(), strict=True)
    return {teacher.known.ids[place]: round(weight, 5) for place, weight in pairs if place >= 0}

"""Families of labels."""

import numpy as np

from glocal.vocabulary import label_families as module
from glocal.vocabulary.label_families import label_families
from glocal.vocabulary.label_space import LabelSpace


def space(parents):
    ids = sorted(parents)
    counts = np.ones(len(ids), dtype=np.int64)
    return LabelSpace(ids, ids, [""] * len(ids), [tuple(parents[i]) for i in ids], counts, 1)


def relatives(labels, label):
    found = label_families(labels)
    near = (found.T @ found)[labels.index[label]].toarray().ravel() > 0
    return {labels.ids[place] for place in np.flatnonzero(near)} - {label}


def test_parents_children_and_siblings_are_relatives():
    labels = space({"a": "", "b": "a", "c": "a", "d": "b", "e": "z", "f": "z", "g": ""})
    assert relatives(labels, "b") == {"a", "c", "d"}
    assert relatives(labels, "d") == {"b"}
    assert relatives(labels, "e") == {"f"}  # of a parent that is no label
    assert relatives(labels, "g") == set()


def test_no_hierarchy_no_families():
    assert label_families(space({"a": "", "b": ""})).shape == (0, 2)


def test_cycles_are_harmless():
    assert relatives(space({"a": "b", "b": "a"}), "a") == {"b"}


def test_very_large_families_are_left_out(monkeypatch):
    monkeypatch.setattr(module, "_LARGEST", 3)
    assert label_families(space({"a": "", "b": "a", "c": "a", "d": "a"})).shape[0] == 0

"""Neighbours, votes and parents; never the text itself; the same in training and prediction."""

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glocal.companions.companion import FitInputs
from glocal.companions.teacher.teacher_model import Teacher
from glocal.companions.teacher.votes import Scopes
from glocal.config import Recipe, TeacherConfig
from glocal.data.corpus import Corpus
from glocal.errors import ModelError
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelEntry, LabelTable
from tests.companions.teacher.words import WORDS, make_teacher, scope_dict, word_vectors

TEXTS = ["cat red", "cat blue", "dog red", "dog blue", "owl"]
LABELS = [["felines", "red"], ["felines", "blue"], ["canines", "red"], ["canines"], ["birds"]]


def table(parents, names=None):
    names = names or {}
    ids = [*parents, *(p for above in parents.values() for p in above)]
    entries = [
        LabelEntry(id_, names.get(id_, id_), parents=tuple(parents.get(id_, ())))
        for id_ in dict.fromkeys(ids)
    ]
    return LabelTable.from_entries(entries)


# --- never the text itself --------------------------------------------------------------------

some_texts = st.lists(
    st.lists(st.sampled_from([*WORDS, "unknown"]), min_size=1, max_size=4).map(" ".join),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(
    texts=some_texts,
    k=st.integers(1, 20),
    centre=st.booleans(),
    similarity=st.sampled_from(["mean", "words"]),
)
def test_a_training_text_never_retrieves_itself_or_a_duplicate(texts, k, centre, similarity):
    labels = [[f"label {number}"] for number in range(len(texts))]
    teacher = make_teacher(texts, labels, k=k, centre=centre, similarity=similarity)
    rows, similarities = teacher.nearest(texts, k)
    for text, found, values in zip(texts, rows, similarities, strict=True):
        neighbours = [texts[int(teacher.texts.ids[row])] for row in found if row >= 0]
        assert text not in neighbours
        assert len(set(neighbours)) == len(neighbours)
        assert np.all(values[found >= 0] > 0)
        assert np.all(np.diff(values) <= 0)
    corpus = Corpus.from_texts(texts, labels)
    together = teacher.scopes(corpus)
    for number, text in enumerate(texts):
        own = {f"label {n}" for n, other in enumerate(texts) if other == text}
        assert not own.intersection(scope_dict(teacher, text))
        alone = teacher.scopes_of([text])
        np.testing.assert_array_equal(alone.labels[0], together.labels[number])
        np.testing.assert_array_equal(alone.weights[0], together.weights[number])


@pytest.mark.parametrize("index", ["ivf", "hnsw"])
def test_not_by_an_approximate_search_either(index):
    pytest.importorskip("faiss")
    texts = [f"{a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS]
    teacher = make_teacher(texts, [[text] for text in texts], index=index)
    for text in texts:
        assert text not in scope_dict(teacher, text)


def test_equal_texts_are_one_neighbour_with_the_labels_of_all():
    teacher = make_teacher(["cat red", "cat red", "dog"], [["a"], ["b"], ["c"]])
    found = teacher.similar_texts("cat")
    assert [(n.id, n.labels) for n in found.neighbours] == [("0", ("a", "b"))]
    assert scope_dict(teacher, "cat red") == {}


def test_training_texts_of_a_single_text_know_nothing_of_it():
    teacher = make_teacher(["cat"], [["a"]], centre=True)
    assert scope_dict(teacher, "cat") == {}
    assert scope_dict(teacher, "cat cat") == {"a": 1.0}


# --- votes ------------------------------------------------------------------------------------


def test_votes_are_shares_of_similarity():
    teacher = make_teacher(TEXTS, LABELS)
    # cosines with "cat": 1/√2 for both texts with cats, 0 for the others.
    assert scope_dict(teacher, "cat") == {"felines": 1.0, "blue": 0.5, "red": 0.5}
    # with "cat red": 1/2 for "cat blue" and "dog red"; the text itself is left out.
    expected = {"blue": 0.5, "canines": 0.5, "felines": 0.5, "red": 0.5}
    assert scope_dict(teacher, "cat red") == expected
    # a new text that is closer to one than to the others
    near, far = 2 / np.sqrt(5 * 2), 1 / np.sqrt(5 * 2)
    total = 3 / np.sqrt(5 * 2) + near + far
    found = scope_dict(teacher, "cat cat red")
    assert list(found) == ["felines", "red", "blue", "canines"]
    assert found["felines"] == pytest.approx((3 / np.sqrt(10) + near) / total, abs=1e-5)
    assert found["canines"] == pytest.approx(far / total, abs=1e-5)


def test_votes_against_a_plain_implementation():
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS, 4)) for _ in range(60)]
    labels = [[str(n) for n in random.integers(0, 12, 3)] for _ in texts]
    teacher = make_teacher(texts, labels, k=5, size=12)
    distinct = dict.fromkeys(texts)
    for query in ["cat dog", "owl owl fox red", "blue", *texts[:5]]:
        vector = word_vectors().embed([query])[0]
        cosines = []
        for text in distinct:
            other = word_vectors().embed([text])[0]
            cosine = vector @ other / np.linalg.norm(vector) / np.linalg.norm(other)
            if text != query and cosine > 1e-9:
                cosines.append((-round(float(cosine), 6), texts.index(text), text))
        votes, nearest = {}, sorted(cosines)[:5]
        for cosine, _, text in nearest:
            of_text = {x for t, ls in zip(texts, labels, strict=True) if t == text for x in ls}
            for label in of_text:
                votes[label] = votes.get(label, 0) + cosine / sum(c for c, *_ in nearest)
        found = scope_dict(teacher, query)
        assert found == pytest.approx(votes, abs=1e-4)
        assert list(found.values()) == sorted(found.values(), reverse=True)


def test_sharp_votes_are_shares_of_a_power_of_similarity():
    teacher = make_teacher(TEXTS, LABELS, sharpness=2.0)
    # cosines with "cat cat red", times √10: 3, 2 ("cat blue") and 1 ("dog red")
    assert scope_dict(teacher, "cat cat red") == pytest.approx(
        {"felines": 13 / 14, "red": 10 / 14, "blue": 4 / 14, "canines": 1 / 14}, abs=1e-5
    )


def test_words_are_compared_by_damped_count_and_the_heaviest_alone():
    weights = np.array([1.0, 1.0, 1.0, 1.0, 0.5, 0.25])  # of cat, dog, owl, fox, red, blue
    texts = ["cat red blue", "dog red blue", "blue", "red"]
    teacher = make_teacher(
        texts,
        [["a"], ["b"], ["c"], ["d"]],
        similarity="words",
        heaviest=2,
        vectors=word_vectors(weights=weights),
    )
    # "cat cat red blue" is its two heaviest words: cat 1 + ln 2, red 0.5.
    cat, red = 1 + np.log(2), 0.5
    length = np.hypot(cat, red)
    found = {
        n.labels[0]: n.similarity for n in teacher.similar_texts("cat cat red blue").neighbours
    }
    assert found == pytest.approx(
        {
            "a": (cat + red * red) / length / np.hypot(1, red),
            "b": red * red / length / np.hypot(1, red),
            "d": red / length,
        },
        abs=1e-5,
    )
    assert list(found) == ["a", "d", "b"]


def test_labels_below_the_minimum_do_not_vote():
    teacher = make_teacher(TEXTS, LABELS, min_count=2)
    assert teacher.known.ids == ["canines", "felines", "red"]
    assert scope_dict(teacher, "owl owl") == {}


def test_more_neighbours_than_texts():
    assert make_teacher(TEXTS, LABELS, k=500).similar_texts("red").neighbours[0].similarity < 1
    assert scope_dict(make_teacher(TEXTS, LABELS, k=500), "cat") == scope_dict(
        make_teacher(TEXTS, LABELS, k=2), "cat"
    )


def test_a_text_without_a_known_word_has_an_empty_scope():
    teacher = make_teacher([*TEXTS, "zebra"], [*LABELS, ["stripes"]], size=4)
    scopes = teacher.scopes_of(["nothing known", "", "zebra"])
    assert scopes.labels.tolist() == [[-1] * 4] * 3
    assert not scopes.weights.any()
    assert teacher.similar_texts("nothing known").to_dict() == {
        "neighbours": (),
        "votes": (),
        "parents": (),
    }
    assert scope_dict(teacher, "zebra zebra") == {}
    assert len(teacher.scopes_of([])) == 0


def test_centring_tells_apart_what_all_texts_share():
    texts = ["cat cat cat red", "cat cat cat blue", "cat cat cat red red"]
    plain = make_teacher(texts, [["a"], ["b"], ["c"]])
    centred = make_teacher(texts, [["a"], ["b"], ["c"]], centre=True)
    assert list(scope_dict(plain, texts[0])) == ["c", "b"]
    assert list(scope_dict(centred, texts[0])) == ["c"]  # "b" lies on the other side


# --- parents ----------------------------------------------------------------------------------

PARENTS = {"felines": ["pets", "carnivores"], "canines": ["carnivores"], "birds": []}


def test_all_direct_parents_are_added_also_those_outside_the_label_space():
    teacher = make_teacher(TEXTS, LABELS, table=table({**PARENTS, "pets": ["animals"]}))
    assert teacher.known.ids[:5] == ["birds", "blue", "canines", "felines", "red"]
    assert sorted(teacher.known.ids[5:]) == ["carnivores", "pets"]  # not the grandparent
    found = scope_dict(teacher, "cat red")
    assert found == {
        "blue": 0.5, "canines": 0.5, "felines": 0.5, "red": 0.5,
        "carnivores": 0.0, "pets": 0.0,
    }  # fmt: skip
    # "carnivores" stands above two labels voted for, "pets" above one
    assert list(found)[-2:] == ["carnivores", "pets"]


def test_a_label_without_a_parent_stays():
    teacher = make_teacher(TEXTS, LABELS, table=table(PARENTS))
    assert scope_dict(teacher, "owl owl") == {"birds": 1.0}


def test_a_parent_that_is_voted_for_keeps_its_vote_and_stands_once():
    labels = [["felines", "carnivores"], ["felines"], ["canines"], ["canines"], ["birds"]]
    teacher = make_teacher(TEXTS, labels, table=table(PARENTS))
    assert scope_dict(teacher, "cat") == {"felines": 1.0, "carnivores": 0.5, "pets": 0.0}


def test_the_cap_takes_parents_first():
    teacher = make_teacher(TEXTS, LABELS, table=table(PARENTS), size=4)
    assert list(scope_dict(teacher, "cat")) == ["felines", "blue", "red", "carnivores"]
    teacher = make_teacher(TEXTS, LABELS, table=table(PARENTS), size=1)
    assert scope_dict(teacher, "cat") == {"felines": 1.0}


def test_parents_can_be_left_out():
    teacher = make_teacher(TEXTS, LABELS, table=table(PARENTS), parents=False)
    assert teacher.known.ids == ["birds", "blue", "canines", "felines", "red"]
    assert "pets" not in scope_dict(teacher, "cat")


def test_a_circle_is_reported_and_does_no_harm(caplog):
    circle = table({"felines": ["pets"], "pets": ["felines"], "birds": ["birds"]})
    with caplog.at_level(logging.WARNING):
        teacher = make_teacher(TEXTS, LABELS, table=circle)
    assert "felines → pets → felines" in caplog.text
    assert scope_dict(teacher, "cat") == {"felines": 1.0, "blue": 0.5, "red": 0.5, "pets": 0.0}
    assert scope_dict(teacher, "owl owl") == {"birds": 1.0}


def test_an_unknown_parent_is_reported_and_left_out(caplog):
    entries = [LabelEntry("felines", "felines", parents=("nowhere", "pets")),
               LabelEntry("pets", "pets")]  # fmt: skip
    with caplog.at_level(logging.WARNING):
        teacher = make_teacher(TEXTS, LABELS, table=LabelTable.from_entries(entries))
    assert "'nowhere', the parent of 'felines'" in caplog.text
    assert teacher.known.ids[5:] == ["pets"]


def test_without_a_table_there_are_no_parents():
    assert "carnivores" not in make_teacher(TEXTS, LABELS).known.ids


# --- explanations -----------------------------------------------------------------------------


def test_neighbours_tells_who_voted_and_what_was_added():
    names = {"felines": "cats big and small", "pets": "animals at home"}
    teacher = make_teacher(TEXTS, LABELS, table=table(PARENTS, names), words=3)
    found = teacher.similar_texts("cat")
    assert [(n.id, n.labels) for n in found.neighbours] == [
        ("0", ("felines", "red")),
        ("1", ("blue", "felines")),
    ]
    assert found.neighbours[0].similarity == pytest.approx(np.sqrt(0.5))
    best = found.votes[0]
    assert (best.label, best.description, best.weight) == ("felines", "cats big and", 1.0)
    assert best.neighbours == ("0", "1")
    assert [(p.label, p.children) for p in found.parents] == [
        ("carnivores", ("felines",)),
        ("pets", ("felines",)),
    ]
    assert {v.label: v.weight for v in found.votes} | {p.label: 0.0 for p in found.parents} == (
        pytest.approx(scope_dict(teacher, "cat"))
    )


# --- caching and storage ----------------------------------------------------------------------


def test_scopes_are_computed_once_and_mapped(monkeypatch):
    teacher, corpus = make_teacher(TEXTS, LABELS), Corpus.from_texts([*TEXTS, "cat", "red dog"])
    seen = []
    first = teacher.scopes(corpus, progress=lambda *done: seen.append(done))
    assert seen == [(7, 7)]
    monkeypatch.setattr(Teacher, "scopes_of", None)
    again = teacher.scopes(corpus)
    assert isinstance(again.labels, np.memmap)
    np.testing.assert_array_equal(again.labels, first.labels)
    np.testing.assert_array_equal(again.weights, first.weights)
    assert again.labels.dtype == np.int32
    assert again.weights.dtype == np.float32


def test_other_labels_or_settings_are_other_scopes():
    names = {make_teacher(TEXTS, LABELS).fingerprint() for _ in range(2)}
    assert len(names) == 1
    names.add(make_teacher(TEXTS, LABELS[::-1]).fingerprint())
    names.add(make_teacher(TEXTS, LABELS, k=2).fingerprint())
    names.add(make_teacher(TEXTS, LABELS, table=table(PARENTS)).fingerprint())
    names.add(make_teacher(TEXTS, LABELS, vectors=word_vectors(WORDS[::-1])).fingerprint())
    assert len(names) == 5


@pytest.mark.parametrize("index", ["exact", "words", "ivf", "hnsw"])
def test_scopes_are_the_same_after_saving(tmp_path, index):
    kind = {} if index == "words" else {"similarity": "mean", "index": index}
    if index in ("ivf", "hnsw"):
        pytest.importorskip("faiss")
    corpus = Corpus.from_texts(TEXTS, LABELS)
    space = LabelSpace.build(corpus, table=table(PARENTS))
    config = TeacherConfig(**kind, size=8)
    recipe = Recipe(teacher=config)
    teacher = Teacher.fit(FitInputs(recipe, corpus, space, table(PARENTS), word_vectors()))
    teacher.save(tmp_path / "teacher")
    loaded = Teacher.load(tmp_path / "teacher", space)
    assert loaded.fingerprint() == teacher.fingerprint()
    assert loaded.known.ids == teacher.known.ids
    assert loaded.known.descriptions == teacher.known.descriptions
    assert loaded.config == config
    queries = [*TEXTS, "cat", "dog owl red", "unknown"]
    for scopes in (loaded.scopes_of(queries), _one_by_one(loaded, queries)):
        np.testing.assert_array_equal(scopes.labels, teacher.scopes_of(queries).labels)
        np.testing.assert_array_equal(scopes.weights, teacher.scopes_of(queries).weights)
    assert loaded.similar_texts("cat") == teacher.similar_texts("cat")
    assert not any(path.suffix in (".pkl", ".pt") for path in (tmp_path / "teacher").iterdir())


def _one_by_one(teacher, texts):
    found = [teacher.scopes_of([text]) for text in texts]
    return Scopes(*(np.concatenate([getattr(s, n) for s in found]) for n in ("labels", "weights")))


def saved(folder, **settings):
    teacher = make_teacher(TEXTS, LABELS, **settings)
    teacher.save(folder)
    return folder, LabelSpace.build(Corpus.from_texts(TEXTS, LABELS))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("teacher.json", b"{"),
        ("teacher.json", b"{}"),
        ("labels.parquet", b"PAR1"),
        ("texts.parquet", None),
        ("vectors.npy", b"\x93NUMPY"),
        ("centre.npy", None),
        ("words.npy", None),
        ("word-places.npy", b"\x93NUMPY"),
    ],
)
def test_a_damaged_teacher_is_one_clear_error(tmp_path, name, content):
    folder, space = saved(tmp_path, similarity="words" if name.startswith("word") else "mean")
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match="damaged"):
        Teacher.load(folder, space)


def test_words_of_another_type_are_refused(tmp_path):
    folder, space = saved(tmp_path, similarity="words")
    np.save(folder / "words.npy", np.load(folder / "words.npy").astype(np.float16))
    with pytest.raises(ModelError, match=r"incomplete: words\.npy holds float16 values"):
        Teacher.load(folder, space)


def test_a_teacher_of_other_texts_labels_or_vectors_is_refused(tmp_path):
    folder, space = saved(tmp_path / "teacher")
    with pytest.raises(ModelError, match="no teacher"):
        Teacher.load(tmp_path, space)
    others = LabelSpace.build(Corpus.from_texts(["x"], [["y"]]))
    with pytest.raises(ModelError, match="other labels"):
        Teacher.load(folder, others)
    own = word_vectors()
    word_vectors(WORDS[::-1]).save(folder / "vectors")
    with pytest.raises(ModelError, match="other word vectors"):
        Teacher.load(folder, space)
    own.save(folder / "vectors")
    np.save(folder / "vectors.npy", np.zeros((2, len(WORDS)), dtype=np.float32))
    with pytest.raises(ModelError, match="2 vectors, 5 texts"):
        Teacher.load(folder, space)

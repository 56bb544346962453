import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from glocal.companions.sparse import sparse_training as training_module
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.companions.sparse.sparse_scoring import LabelGroups, LinearScorer
from glocal.companions.sparse.sparse_training import LinearTrainer
from glocal.data.corpus import Corpus
from glocal.errors import DataError, ModelError, NewerFormatError
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable
from tests.companions.sparse.made_up import SMALL, corpus, explained, label_space, log_odds


@pytest.fixture(autouse=True)
def several_levels(monkeypatch):
    """Train as with many labels: clusters, a matcher, sampled texts."""
    monkeypatch.setattr(training_module, "DIRECT_LABELS", 3)


@pytest.fixture(scope="module")
def model(train, labels):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_module, "DIRECT_LABELS", 3)
        return SparseModel.fit(train, labels, SMALL, threads=1)


def precision_at_1(model, labels, test):
    indices, _ = model.topk(test.texts(), 1)
    gold = labels.encode(test)
    return np.mean([gold[row, label] for row, (label,) in enumerate(indices.tolist())])


def test_finds_the_labels_of_new_texts(model, labels):
    assert precision_at_1(model, labels, corpus(100, seed=1)) > 0.95


def test_every_text_for_every_label_when_labels_are_few(train, labels, monkeypatch):
    monkeypatch.setattr(training_module, "DIRECT_LABELS", 100)
    model = SparseModel.fit(train, labels, SMALL)
    assert precision_at_1(model, labels, corpus(100, seed=1)) > 0.95


def test_texts_are_drawn_where_memory_is_short(train, labels, monkeypatch):
    gold = labels.encode(train)[:, : len(labels)]
    features = csr_matrix(gold.toarray())
    monkeypatch.setattr(training_module, "CELL_BYTES", 0)
    monkeypatch.setattr(training_module, "MOST_BYTES", 40.5 * 24 * gold.nnz / len(train))
    monkeypatch.setattr(training_module, "LEAST_OWN_TEXTS", 5)
    trainer = LinearTrainer(features, gold, replace(SMALL, negatives="matched"))
    for cluster, own in enumerate(trainer._clusters):
        texts = trainer._texts(cluster)
        assert (np.diff(texts) > 0).all()
        assert 40 <= len(texts) <= 40 + 5 * len(own)
        found = trainer._positives(own, texts)
        there = np.zeros((len(texts), len(own)), np.float32)
        there[found.rows, found.columns] = 1
        np.testing.assert_array_equal(there, gold[texts][:, own].toarray())
        assert (there.sum(axis=0) >= 5).all()
    model = SparseModel.fit(train, labels, SMALL)
    assert precision_at_1(model, labels, corpus(100, seed=1)) > 0.7  # of the few texts


@pytest.mark.parametrize(
    ("n_features", "sample", "steps"), [(400, 20, 6), (200, 20, 6), (160, 25, 7), (50, 80, 12)]
)
def test_short_texts_have_more_random_texts_and_steps(
    train, labels, monkeypatch, n_features, sample, steps
):
    gold = labels.encode(train)[:, : len(labels)]
    features = csr_matrix(gold.toarray())
    usual = training_module.USUAL_FEATURES * gold.nnz / len(train) / n_features
    monkeypatch.setattr(training_module, "USUAL_FEATURES", usual)
    monkeypatch.setattr(training_module, "DIRECT_LABELS", 1)
    config = replace(SMALL, negatives="matched", iterations=6, beam=1)
    found = LinearTrainer(features, gold, config)._config
    assert (found.sample, found.iterations) == (sample, steps)


@pytest.mark.parametrize("at_a_time", [7, 100])
def test_the_matcher_reads_the_most_frequent_features(monkeypatch, at_a_time):
    monkeypatch.setattr(training_module, "ROWS_AT_A_TIME", at_a_time)
    rng = np.random.default_rng(0)
    dense = rng.random((50, 30), dtype=np.float32) * (rng.random((50, 30)) < rng.random(30))
    dense[3] = 0
    columns = np.sort(np.argsort(-np.count_nonzero(dense, axis=0), kind="stable")[:8])
    found = training_module._most_frequent(csr_matrix(dense), 8)
    np.testing.assert_array_equal(found.toarray(), dense[:, columns])


def test_matchers_of_matchers(train, labels):
    model = SparseModel.fit(train, labels, replace(SMALL, cluster_size=2, beam=1))
    assert precision_at_1(model, labels, corpus(100, seed=1)) > 0.95


@pytest.fixture(scope="module")
def grouped(train, labels):
    """A model of labels that share the weights of their clusters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_module, "DIRECT_LABELS", 3)
        return SparseModel.fit(train, labels, replace(SMALL, negatives="random", beam=1))


def test_random_negatives_and_the_scores_of_clusters(grouped, labels):
    assert grouped.scorer.groups is not None
    assert precision_at_1(grouped, labels, corpus(100, seed=1)) > 0.95


def test_matched_negatives_need_no_clusters_at_prediction(model, train, labels):
    assert model.scorer.groups is None
    matched = SparseModel.fit(train, labels, replace(SMALL, negatives="matched"))
    np.testing.assert_array_equal(matched.scorer.weights.data, model.scorer.weights.data)


@pytest.mark.parametrize(("trusted", "is_grouped"), [(0.0, False), (1.01, True)])
def test_clusters_of_held_out_texts_decide(monkeypatch, train, labels, trusted, is_grouped):
    monkeypatch.setattr(training_module, "TRUSTED_RECALL", trusted)
    model = SparseModel.fit(train, labels, SMALL)
    assert (model.scorer.groups is not None) == is_grouped


def test_the_recall_of_clusters(train, labels):
    gold = labels.encode(train)[:, : len(labels)]
    features = csr_matrix(gold.toarray())  # a text's features are its labels
    config = replace(SMALL, negatives="matched", beam=1)
    trainer = LinearTrainer(features, gold, config, held_out=(features, gold))
    of = trainer._group_of(trainer._clusters)
    perfect = csr_matrix((of[:, None] == np.arange(of.max() + 1)).astype(np.float32))
    scorer = LinearScorer(perfect, np.zeros(of.max() + 1, np.float32))
    expected = []
    for own in np.split(of[gold.indices], gold.indptr[1:-1]):
        votes = np.bincount(own, minlength=of.max() + 1)
        expected += (own == votes.argmax()).tolist()
    assert trainer._recall(scorer) == pytest.approx(np.mean(expected))


def test_a_grouped_model_is_the_same_when_saved(grouped, tmp_path):
    grouped.save(tmp_path / "sparse")
    loaded = SparseModel.load(tmp_path / "sparse")
    texts = corpus(9, seed=5).texts()
    for before, after in zip(grouped.topk(texts, 5), loaded.topk(texts, 5), strict=True):
        np.testing.assert_array_equal(before, after)
    np.save(tmp_path / "sparse" / "groups-of.npy", np.full(12, 99, np.int32))
    with pytest.raises(ModelError, match=r"groups-of\.npy has values from 99"):
        SparseModel.load(tmp_path / "sparse")


def test_a_model_of_the_first_format_is_read(model, tmp_path):
    model.save(tmp_path / "sparse")
    path = tmp_path / "sparse" / "sparse.json"
    about = json.loads(path.read_text())
    del about["n_groups"], about["config"]["negatives"]
    path.write_text(json.dumps(about | {"format": 1}))
    texts = corpus(9, seed=5).texts()
    loaded = SparseModel.load(tmp_path / "sparse")
    for before, after in zip(model.topk(texts, 5), loaded.topk(texts, 5), strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_model_of_the_second_format_is_read(grouped, tmp_path):
    narrow = LabelGroups(grouped.scorer.groups.weights, grouped.scorer.groups.of[:, :1])
    model = SparseModel(grouped.vectoriser, replace(grouped.scorer, groups=narrow), grouped.config)
    model.save(tmp_path / "sparse")
    path = tmp_path / "sparse" / "sparse.json"
    about = json.loads(path.read_text())
    del about["group_levels"]
    path.write_text(json.dumps(about | {"format": 2}))
    texts = corpus(9, seed=5).texts()
    loaded = SparseModel.load(tmp_path / "sparse")
    for before, after in zip(model.topk(texts, 5), loaded.topk(texts, 5), strict=True):
        np.testing.assert_array_equal(before, after)


def test_threads_do_not_change_a_grouped_model(grouped, train, labels):
    config = replace(SMALL, negatives="random", beam=1)
    other = SparseModel.fit(train, labels, config, threads=2)
    np.testing.assert_array_equal(other.scorer.weights.data, grouped.scorer.weights.data)
    np.testing.assert_array_equal(
        other.scorer.groups.weights.data, grouped.scorer.groups.weights.data
    )


def test_a_grouped_explanation_sums_to_the_log_odds(grouped):
    text = "Title Sign4a\nsign4a, sign4b and common5, nothing else"
    for label in range(grouped.n_labels):
        total = explained(grouped, text, label)
        assert total == pytest.approx(log_odds(grouped, text, label), abs=1e-4)


def test_grouped_labels_without_training_texts_come_last(train, tmp_path):
    labels = label_space(train, unseen=True)
    config = replace(SMALL, negatives="random", beam=1, name_weight=0.0)
    model = SparseModel.fit(train, labels, config)
    unseen = labels.index["L99"]
    assert (model.scorer.groups.of[unseen] == -1).all()
    indices, _ = model.topk(["wholly unknown"], len(labels))
    assert indices[0, -1] == unseen
    model.save(tmp_path / "sparse")
    again, _ = SparseModel.load(tmp_path / "sparse").topk(["wholly unknown"], len(labels))
    np.testing.assert_array_equal(indices, again)


def test_labels_without_any_training_text_at_all():
    train = Corpus.from_texts(["on fish and milk", "on fish and wine"], [[], []])
    table = LabelTable(["a", "b"], ["fish", "wine trade"])
    labels = LabelSpace.build(train, table=table, score_unseen=True)
    model = SparseModel.fit(train, labels, replace(SMALL, min_words=1))
    indices, scores = model.topk(["fish", "wine"], 2)
    assert indices.tolist() == [[0, 1], [1, 0]]
    assert (scores[:, 0] > scores[:, 1]).all()


def test_probabilities_are_about_right(model, labels):
    test = corpus(200, seed=2)
    _, scores = model.topk(test.texts(), 12)
    assert ((scores > 0) & (scores < 1)).all()
    n_gold = labels.encode(test).sum()
    assert scores.sum() == pytest.approx(n_gold, rel=0.25)


def test_empty_and_unknown_texts_are_scored_by_the_biases(model):
    indices, scores = model.topk(["", "altogether unknown wording"], 3)
    np.testing.assert_array_equal(indices[0], indices[1])
    for label, score in zip(indices[0], scores[0], strict=True):
        assert score == pytest.approx(1 / (1 + np.exp(-model.scorer.biases[label])), rel=1e-5)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_change_the_model(model, train, labels, threads):
    other = SparseModel.fit(train, labels, SMALL, threads=threads)
    np.testing.assert_array_equal(other.scorer.weights.data, model.scorer.weights.data)
    np.testing.assert_array_equal(other.scorer.weights.indices, model.scorer.weights.indices)
    np.testing.assert_array_equal(other.scorer.biases, model.scorer.biases)
    texts = corpus(30, seed=4).texts()
    for one, many in zip(model.topk(texts, 4), other.topk(texts, 4, threads=threads), strict=True):
        np.testing.assert_array_equal(one, many)


def test_a_saved_model_is_the_same(model, tmp_path):
    model.save(tmp_path / "sparse")
    loaded = SparseModel.load(tmp_path / "sparse")
    assert loaded.config == SMALL
    texts = corpus(9, seed=5).texts()
    for before, after in zip(model.topk(texts, 5), loaded.topk(texts, 5), strict=True):
        np.testing.assert_array_equal(before, after)
    assert loaded.explain(texts[0], 2) == model.explain(texts[0], 2)
    assert isinstance(loaded.scorer.weights.entries, np.memmap)


def test_an_explanation_sums_to_the_log_odds(model):
    text = "Title Sign4a\nsign4a, sign4b and common5, nothing else"
    for label in range(model.n_labels):
        total = explained(model, text, label)
        assert total == pytest.approx(log_odds(model, text, label), abs=1e-4)
        for part in model.explain(text, label):
            for start, stop in part.spans:
                words = text[start:stop].lower().replace(",", "").split()
                assert " ".join(words) == part.phrase


def test_an_explanation_names_the_words_behind_a_label(model, labels):
    text = "Title Sign4a\nsign4a, sign4b and common5, nothing else"
    parts = model.explain(text, labels.index["L04"])
    assert {part.phrase for part in parts[:3]} <= {"sign4a", "sign4b", "sign4a sign4b"}
    assert [abs(p.weight) for p in parts] == sorted((abs(p.weight) for p in parts), reverse=True)
    title = next(part for part in parts if (part.part, part.phrase) == ("title", "sign4a"))
    assert title.spans == ((6, 12),)


def test_pieces_of_words(train, labels, tmp_path):
    model = SparseModel.fit(train, labels, replace(SMALL, pieces="on"))
    text = "Title Sign4a\nsign4a, sign4b and common5, nothing else"
    words = {"title", "sign4a", "sign4b", "and", "common5", "nothing", "else"}
    for label in range(model.n_labels):
        parts = model.explain(text, label)
        total = model.scorer.biases[label] + sum(part.weight for part in parts)
        assert total == pytest.approx(log_odds(model, text, label), abs=1e-4)
        by_pieces = {p.phrase: p.spans for p in parts if p.part == "pieces"}
        assert by_pieces.keys() <= words  # whole words, not pieces
        for word, spans in by_pieces.items():
            assert {text[start:stop].lower() for start, stop in spans} == {word}
    # A word never seen is told by what it shares with those that were.
    assert model.topk(["xsign4ab"], 1)[0].tolist() == [[labels.index["L04"]]]
    model.save(tmp_path / "sparse")
    loaded = SparseModel.load(tmp_path / "sparse")
    assert loaded.explain(text, 4) == model.explain(text, 4)


def test_labels_without_training_texts_come_last(train):
    labels = label_space(train, unseen=True)
    unseen = labels.index["L99"]
    assert labels.counts[unseen] == 0
    texts = corpus(20, seed=6).texts()
    nameless = SparseModel.fit(train, labels, replace(SMALL, name_weight=0.0))
    assert unseen not in nameless.topk(texts, 5)[0]
    named = SparseModel.fit(train, labels, SMALL)
    without = [text for text in texts if not re.search(r"common3\b", text)]
    assert 0 < len(without) < len(texts)
    assert unseen not in named.topk(without, 5)[0]
    assert unseen not in named.topk(texts, 1)[0]
    assert log_odds(named, "common3 common3", unseen) > log_odds(named, "common4", unseen) + 2.3


def test_numbers_are_no_names():
    texts = ["regulation 17 of 2004", "regulation 18 of 2004", "on fish 17", "on fish 18"]
    train = Corpus.from_texts(texts, [["a"], ["a"], ["b"], ["b"]])
    labels = LabelSpace.build(train, table=LabelTable(["17", "b"], ["17", "b"]), score_unseen=True)
    model = SparseModel.fit(train, labels)
    assert "17" in labels.ids
    assert model.explain("regulation 17", labels.index["17"]) == []


def test_an_explanation_sums_up_with_names_too(train):
    labels = label_space(train, unseen=True)
    model = SparseModel.fit(train, labels, replace(SMALL, name_weight=1.0))
    for label in (labels.index["L99"], 3):
        total = explained(model, "sign3a common3 common7", label)
        assert total == pytest.approx(log_odds(model, "sign3a common3 common7", label), abs=1e-4)


def test_one_label_and_few_texts():
    train = Corpus.from_texts(["good day", "good night", "bad day"], [["a"], ["a"], []])
    model = SparseModel.fit(train, LabelSpace.build(train))
    indices, scores = model.topk(["good", "bad"], 2)
    assert indices.tolist() == [[0, -1], [0, -1]]
    assert scores[0, 0] > scores[1, 0] > scores[0, 1] == 0


def test_progress_names_what_is_done(train, labels):
    seen = []
    SparseModel.fit(
        train, labels, SMALL, progress=lambda stage: lambda *done: seen.append((stage, *done))
    )
    assert list(dict.fromkeys(what for what, _, _ in seen)) == [
        *("reading words", "matching texts", "training label groups")
    ]
    assert all(0 < done <= total for _, done, total in seen)


def test_texts_without_words_are_refused():
    train = Corpus.from_texts(["!!!", "???"], [["a"], ["b"]])
    with pytest.raises(DataError, match=r"none of the 2 texts has a word; add texts"):
        SparseModel.fit(train, LabelSpace.build(train))
    train = Corpus.from_texts(["one", "two"], [["a"], ["b"]])
    with pytest.raises(DataError, match=r"in 2 of them; lower sparse\.min_words or add texts"):
        SparseModel.fit(train, LabelSpace.build(train), SMALL)


def test_damaged_folders_are_refused(model, tmp_path):
    with pytest.raises(ModelError, match="not a readable sparse model"):
        SparseModel.load(tmp_path)
    folder = tmp_path / "sparse"
    model.save(folder)
    np.save(folder / "biases.npy", np.zeros(3, np.float32))
    with pytest.raises(ModelError, match="do not belong together"):
        SparseModel.load(folder)
    model.save(folder)
    (folder / "weights-entries.npy").write_bytes(b"no array")
    with pytest.raises(ModelError, match="not a readable sparse model"):
        SparseModel.load(folder)
    about = json.loads((folder / "sparse.json").read_text())
    (folder / "sparse.json").write_text(json.dumps(about | {"format": 99}))
    with pytest.raises(NewerFormatError, match="format 99"):
        SparseModel.load(folder)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("weights-entries", lambda a: np.where(np.arange(len(a)) == 3, 10**9, a)),
        ("weights-entries", lambda a: np.where(np.arange(len(a)) == 3, -5, a)),
        ("weights-entries", lambda a: a[:-1]),
        ("weights-entries", lambda a: a.astype(np.float64)),
        ("weights-scales", lambda a: a[:-1]),
        ("weights-scales", lambda a: np.where(np.arange(len(a)) == 3, np.nan, a)),
        ("weights-indptr", lambda a: np.where(np.arange(len(a)) == 1, 10**12, a)),
        ("weights-indptr", lambda a: a[::-1]),
        ("weights-indptr", lambda a: a.astype(np.float64)),
        ("weights-scales", lambda a: a[:, None]),
        ("biases", lambda a: a.astype(str)),
    ],
)
def test_arrays_are_validated_before_compiled_code_reads_them(model, tmp_path, file, damage):
    model.save(tmp_path / "sparse")
    path = tmp_path / "sparse" / f"{file}.npy"
    array = np.load(path)
    damaged = damage(array)
    kept = damaged.dtype if damaged.dtype.kind != array.dtype.kind else array.dtype
    np.save(path, damaged.astype(kept))
    with pytest.raises(ModelError, match=r"do not belong together|not a readable sparse model"):
        SparseModel.load(tmp_path / "sparse")

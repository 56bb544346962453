"""Static word vectors: means and weights by hand, sources, files with every kind of fault."""

import gzip
import sys

import numpy as np
import pytest

from glocal.config import EncoderConfig, TeacherConfig
from glocal.data.corpus import Corpus
from glocal.encoders.loading import load_pretrained
from glocal.encoders.static import StaticVectors, build_vectors
from glocal.encoders.word_lookup import EncoderLookup, VocabularyLookup
from glocal.encoders.word_vectors import read_word_vectors, train_word_vectors, words_of
from glocal.errors import DataError, MissingExtraError, ModelError

WORDS = ["cat", "dog", "state-owned", "state", "US", "us"]
MATRIX = np.arange(12, dtype=np.float32).reshape(6, 2)
TEXTS = ["Cat, cat dog", "the cat", "", "nothing known", "state-owned (state-run) US us."]


def words(**options):
    return StaticVectors(VocabularyLookup(WORDS), MATRIX, **options)


# --- from words to vectors --------------------------------------------------------------------


def test_words_are_found_bare_in_lower_case_or_in_parts():
    ids = [tokens.tolist() for tokens in words().token_ids(TEXTS)]
    assert ids == [[0, 0, 1], [0], [], [], [2, 3, 4, 5]]
    assert words().token_ids([]) == []


def test_a_text_is_the_mean_of_its_words():
    found = words().embed(TEXTS)
    np.testing.assert_allclose(found[0], MATRIX[[0, 0, 1]].mean(axis=0))
    np.testing.assert_allclose(found[4], MATRIX[[2, 3, 4, 5]].mean(axis=0))
    assert not found[2:4].any()
    assert found.dtype == np.float32
    assert words().embed([]).shape == (0, 2)


def test_only_the_first_words_are_read():
    assert [
        t.tolist() for t in words(max_words=2).token_ids(["  cat the\tdog", "dog\ncat cat"])
    ] == ([[0], [1, 0]])
    assert words().token_ids(["cat cat cat dog"], max_words=1)[0].tolist() == [0]


def test_rare_words_weigh_more():
    frequencies = np.array([9, 1, 0, 0, 0, 0])
    weighted = words().weighted("idf", frequencies=frequencies, n_texts=9)
    cat, dog = np.log(10 / 9.5), np.log(10 / 1.5)
    expected = (2 * cat * MATRIX[0] + dog * MATRIX[1]) / (2 * cat + dog)
    np.testing.assert_allclose(weighted.embed(["cat dog cat"])[0], expected, rtol=1e-5)
    damped = words().weighted("tfidf", frequencies=frequencies, n_texts=9)
    twice = 1 + np.log(2)
    expected = (twice * cat * MATRIX[0] + dog * MATRIX[1]) / (twice * cat + dog)
    np.testing.assert_allclose(damped.embed(["cat dog cat"])[0], expected, rtol=1e-5)
    plain = words().weighted("mean", frequencies=frequencies, n_texts=9)
    assert plain.fingerprint() == words().fingerprint()
    assert len({v.fingerprint() for v in (plain, weighted, damped, words(max_words=3))}) == 4


def test_a_vector_does_not_depend_on_the_other_texts(monkeypatch):
    random = np.random.default_rng(0)
    names = [f"w{n}" for n in range(50)]
    vectors = StaticVectors(
        VocabularyLookup(names), random.standard_normal((50, 33)), weights=random.random(50)
    )
    texts = [" ".join(random.choice(names, 40)) for _ in range(30)]
    together = vectors.embed(texts)
    alone = np.concatenate([vectors.embed([text]) for text in reversed(texts)])[::-1]
    np.testing.assert_array_equal(together, alone)
    monkeypatch.setattr("glocal.encoders.static.BATCH_TEXTS", 7)
    monkeypatch.setattr("glocal.encoders.static.MOST_CACHED_WORDS", 3)
    monkeypatch.setattr("glocal.encoders.static.LONGEST_CACHED_WORD", 2)
    np.testing.assert_array_equal(vectors.embed(texts), together)


# --- an encoder's token embeddings ------------------------------------------------------------


def test_token_embeddings_of_an_encoder():
    model, tokenizer = load_pretrained(EncoderConfig(name="random:tiny"))
    vectors = StaticVectors.of_encoder(model, tokenizer)
    table = model.get_input_embeddings().weight.detach().numpy()
    assert vectors.dimensions == table.shape[1]
    np.testing.assert_array_equal(vectors.matrix, table)
    text = "two words"
    ids = tokenizer.encode_batch([text], 100)[0][1:-1]  # without [CLS] and [SEP]
    assert vectors.token_ids([text])[0].tolist() == ids
    np.testing.assert_allclose(vectors.embed([text])[0], table[ids].mean(axis=0), atol=1e-6)
    assert not vectors.embed(["§ ☃"]).any()  # unknown pieces have no vector
    tokenizer.encode_batch([text], 3)  # cuts what the encoder reads, not what the vectors read
    assert vectors.token_ids(["a longer text"])[0].size == len("alongertext")


@pytest.mark.parametrize("folder", ["roberta", "xlnet"])
def test_pieces_that_know_of_blanks_are_those_of_the_whole_text(request, folder):
    _, tokenizer = load_pretrained(EncoderConfig(name=f"random:{request.getfixturevalue(folder)}"))
    lookup = EncoderLookup(tokenizer.backend, tokenizer.vocab_size)
    whole = tokenizer.encode_batch([" the red fox"], 100)[0]
    pieces = [piece for word in lookup(["the", "red", "fox"]) for piece in word]
    assert pieces == [i for i in whole if i in pieces]
    assert len(pieces) >= 3


def test_tokens_without_a_vector_are_left_out():
    _, tokenizer = load_pretrained(EncoderConfig(name="random:tiny"))
    everything = EncoderLookup(tokenizer.backend, tokenizer.vocab_size)(["azb"])
    assert EncoderLookup(tokenizer.backend, 5)(["azb"]) == [everything[0][:1]]


# --- storage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["words", "encoder"])
def test_saved_vectors_give_the_same(tmp_path, kind):
    if kind == "words":
        vectors = words(weights=np.arange(1, 7), damped=True, max_words=7)
    else:
        vectors = StaticVectors.of_encoder(*load_pretrained(EncoderConfig(name="random:tiny")))
    vectors.save(tmp_path / "deep" / "folder")
    loaded = StaticVectors.load(tmp_path / "deep" / "folder")
    np.testing.assert_array_equal(loaded.embed(TEXTS), vectors.embed(TEXTS))
    assert loaded.fingerprint() == vectors.fingerprint()
    assert loaded.max_words == vectors.max_words


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("vectors.json", b"{}"),
        ("vectors.json", None),
        ("vectors.safetensors", b"12345678"),
        ("words.parquet", b"PAR1"),
    ],
)
def test_damaged_vectors_are_one_clear_error(tmp_path, name, content):
    words().save(tmp_path)
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match="cannot read the word vectors"):
        StaticVectors.load(tmp_path)


def test_words_and_vectors_must_be_as_many(tmp_path):
    words().save(tmp_path)
    VocabularyLookup(WORDS[:3]).save(tmp_path)
    with pytest.raises(ModelError, match="3 words but 6 vectors"):
        StaticVectors.load(tmp_path)


# --- files ------------------------------------------------------------------------------------

PLAIN = "cat 1 2 3\ndog -1 0.5 1e-2\n. . . 4 5 6\ncat 9 9 9\n"


@pytest.mark.parametrize("header", ["", "4 3\n"])
@pytest.mark.parametrize("zipped", [False, True])
def test_word2vec_and_glove_files(tmp_path, header, zipped):
    path = tmp_path / ("vectors.txt.gz" if zipped else "vectors.txt")
    content = (header + PLAIN).encode()
    path.write_bytes(gzip.compress(content) if zipped else content)
    vectors = read_word_vectors(path, max_words=9)
    assert vectors.lookup.vocabulary == ["cat", "dog", ". . ."]
    np.testing.assert_allclose(vectors.matrix, [[1, 2, 3], [-1, 0.5, 0.01], [4, 5, 6]])
    assert vectors.max_words == 9
    kept = read_word_vectors(path, keep={"dog", "other"})
    assert kept.lookup.vocabulary == ["dog"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("cat 1 2\ndog 1\n", r":2: 'dog 1' has 1 numbers; expected a word and 2 numbers"),
        ("2 3\ncat 1 2 3\ndog 1 2 x\n", r":3: not a line of a word and numbers: .*'x'"),
        ("cat 1 nan\n", r":1: a number of the vector is not finite"),
        ("3 2\ncat 1 2\ndog 1 2\n", r"promises 3 words, and 2 follow; the file may be cut off"),
        ("cat\n", r":1: 'cat' has 0 numbers; expected a word and its numbers"),
        ("", "has no word vectors"),
        ("2 3\n", "promises 2 words"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(tmp_path, content, message):
    path = tmp_path / "vectors.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_word_vectors(path)


def test_other_files_that_cannot_be_used(tmp_path):
    (tmp_path / "v.bin").write_bytes(b"1 2\ncat \x00\x00")
    with pytest.raises(DataError, match="binary format"):
        read_word_vectors(tmp_path / "v.bin")
    (tmp_path / "v.txt").write_bytes(b"cat 1 2\nd\x81g 1 2\n")
    with pytest.raises(DataError, match=r":2: byte 0x81"):
        read_word_vectors(tmp_path / "v.txt")
    (tmp_path / "ok.txt").write_text("cat 1 2\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no word of these texts"):
        read_word_vectors(tmp_path / "ok.txt", keep={"dog"})


def test_every_form_of_a_word_is_kept():
    corpus = Corpus.from_texts(["The (Cat's) state-owned den never"])
    found = words_of(corpus, ["Extra, word"], max_words=4)
    assert {"The", "the", "Cat's", "cat", "state-owned", "state", "owned", "extra"} <= found
    assert "never" not in found


# --- what a recipe asks for -------------------------------------------------------------------


def test_sources_of_a_recipe(tmp_path):
    train = Corpus.from_texts(["cat dog", "cat cat", "cat owl"])
    path = tmp_path / "vectors.txt"
    path.write_text("cat 1 0\nzebra 5 5\ndog 0 1\nname 2 2\n", encoding="utf-8")
    tiny = EncoderConfig(name="random:tiny")
    of_file = build_vectors(TeacherConfig(vectors=str(path)), tiny, train, extra=["a name"])
    assert of_file.lookup.vocabulary == ["cat", "dog", "name"]
    np.testing.assert_allclose(of_file.weights, np.log(4 / (0.5 + np.array([3, 1, 0]))), rtol=1e-6)
    plain = build_vectors(TeacherConfig(vectors=str(path), weighting="mean"), tiny, train)
    assert plain.weights.tolist() == [1, 1]
    default = build_vectors(TeacherConfig(text_words=3), tiny, train)
    assert isinstance(default.lookup, EncoderLookup)
    assert default.max_words == 3
    named = build_vectors(TeacherConfig(vectors="random:tiny"), EncoderConfig(name="none"), train)
    assert named.dimensions == default.dimensions


def test_a_missing_file_is_not_taken_for_an_encoder():
    with pytest.raises(DataError, match="no such file"):
        build_vectors(
            TeacherConfig(vectors="/no/glove.txt"), EncoderConfig(), Corpus.from_texts([""])
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_vectors_trained_on_the_texts():
    pytest.importorskip("gensim")
    train = Corpus.from_texts(["The cat, the dog!", "cat dog", "an owl"] * 5)
    seen = []
    vectors = build_vectors(
        TeacherConfig(vectors="corpus", dimensions=8),
        EncoderConfig(),
        train,
        progress=lambda *done: seen.append(done),
    )
    assert sorted(vectors.lookup.vocabulary) == ["an", "cat", "dog", "owl", "the"]
    assert vectors.dimensions == 8
    assert seen == [(n, 5) for n in range(1, 6)]
    again = train_word_vectors(train, dimensions=8)
    np.testing.assert_array_equal(again.matrix, vectors.matrix)
    with pytest.raises(DataError, match="no word occurs 1 times"):
        train_word_vectors(Corpus.from_texts(["…"]), dimensions=8)


def test_without_gensim_training_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gensim.models.word2vec", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'glocal\[vectors\]'"):
        train_word_vectors(Corpus.from_texts(["cat"]))

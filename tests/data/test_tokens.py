import numpy as np
import pytest

from glocal.data.atomic import replace_dir
from glocal.data.checksums import write_checksums
from glocal.data.corpus import Corpus
from glocal.data.tokens import TOKENS_FILE, TokenStore, tokenise
from glocal.errors import DataError


class LengthTokenizer:
    """Encodes a text as the lengths of its words, and counts how often it is asked."""

    def __init__(self, vocab_size=1000):
        self.fingerprint = "lengths"
        self.vocab_size = self.id_bound = vocab_size
        self.calls = 0

    def encode_batch(self, texts, max_length):
        self.calls += 1
        return [[len(word) for word in text.split()][:max_length] for text in texts]


@pytest.fixture
def entries(tmp_path, monkeypatch):
    """The folder of entries of a cache of its own."""
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path))
    return tmp_path / "tokens"


CORPUS = Corpus.from_texts(["a bb ccc dddd", "", "ee"])
EXPECTED = [[1, 2, 3], [], [2]]


def lists(store):
    return [store[i].tolist() for i in range(len(store))]


@pytest.mark.parametrize(("vocab_size", "dtype"), [(1 << 16, np.uint16), (1 << 17, np.uint32)])
def test_tokenises_cuts_and_maps(entries, vocab_size, dtype):
    store = tokenise(CORPUS, LengthTokenizer(vocab_size), max_length=3)
    assert lists(store) == EXPECTED
    assert store.lengths.tolist() == [3, 0, 1]
    assert store[0].dtype == dtype
    assert isinstance(store[0], np.memmap)
    assert store[-1].tolist() == [2]
    with pytest.raises(IndexError):
        store[3]


def test_second_call_reads_the_cache(private_cache):
    tokenizer = LengthTokenizer()
    tokenise(CORPUS, tokenizer, max_length=3)
    same_texts = Corpus.from_texts(CORPUS.texts(), [["x"]] * 3, ["p", "q", "r"])
    assert lists(tokenise(same_texts, tokenizer, max_length=3)) == EXPECTED
    assert tokenizer.calls == 1
    assert len(list((private_cache / "tokens").iterdir())) == 1


def test_key_holds_texts_tokenizer_and_length(entries):
    tokenizer = LengthTokenizer()
    tokenise(CORPUS, tokenizer, max_length=3)
    tokenise(CORPUS, tokenizer, max_length=2)
    tokenise(CORPUS.take([0, 2]), tokenizer, max_length=3)
    tokenizer.fingerprint = "other"
    tokenise(CORPUS, tokenizer, max_length=3)
    assert len(list(entries.iterdir())) == 4


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokens.bin", b"\0"),
        ("offsets.npy", b""),
        ("offsets.npy", b"\x93NUMPY"),
        ("offsets.npy", np.array([0, 9, 3, 4])),
        ("offsets.npy", np.array([0, 3, 4])),
        ("tokens.bin", None),
    ],
)
def test_damaged_entry_is_built_again(entries, name, content):
    tokenizer = LengthTokenizer()
    tokenise(CORPUS, tokenizer, max_length=3)
    damaged = next(entries.iterdir()) / name
    if content is None:
        damaged.unlink()
    elif isinstance(content, bytes):
        damaged.write_bytes(content)
    else:
        np.save(damaged, content)
    assert lists(tokenise(CORPUS, tokenizer, max_length=3)) == EXPECTED
    assert tokenizer.calls == 2
    assert len(list(entries.iterdir())) == 1


def test_full_disk_is_one_clear_error_and_leaves_nothing(entries, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glocal.data.cache.replace_dir", full)
    with pytest.raises(DataError, match=r"No space left on device.*set GLOCAL_CACHE"):
        tokenise(CORPUS, LengthTokenizer(), max_length=3)
    assert list(entries.iterdir()) == []


def test_losing_a_race_uses_the_winners_entry(entries, monkeypatch):
    def other_process_wins(*_):
        monkeypatch.setattr("glocal.data.cache.replace_dir", replace_dir)
        tokenise(CORPUS, LengthTokenizer(), max_length=3)
        raise OSError(39, "Directory not empty")

    monkeypatch.setattr("glocal.data.cache.replace_dir", other_process_wins)
    store = tokenise(CORPUS, LengthTokenizer(), max_length=3)
    assert lists(store) == EXPECTED


def test_interrupted_tokenising_leaves_nothing(entries):
    class Interrupting(LengthTokenizer):
        def encode_batch(self, texts, max_length):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenise(CORPUS, Interrupting(), max_length=3)
    assert list(entries.iterdir()) == []


def test_progress_reaches_the_total(entries):
    seen = []
    corpus = Corpus.from_texts(["a b"] * 2500)
    tokenise(
        corpus,
        LengthTokenizer(),
        max_length=3,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1024, 2500), (2048, 2500), (2500, 2500)]


def test_texts_without_any_token(entries):
    store = tokenise(Corpus.from_texts(["", ""]), LengthTokenizer(), max_length=3)
    assert lists(store) == [[], []]


def test_in_memory():
    store = TokenStore.in_memory([[1, 2], [], [70_000]])
    assert lists(store) == [[1, 2], [], [70_000]]
    assert store.lengths.tolist() == [2, 0, 1]
    assert len(TokenStore.in_memory([])) == 0


def test_token_ids_outside_the_vocabulary_are_built_again(entries):
    tokenise(CORPUS, LengthTokenizer(), max_length=3)
    (entry,) = entries.iterdir()
    np.full(4, 1001, np.uint16).tofile(entry / TOKENS_FILE)
    write_checksums(entry)  # so that only the validation can tell
    assert lists(tokenise(CORPUS, LengthTokenizer(), max_length=3)) == EXPECTED

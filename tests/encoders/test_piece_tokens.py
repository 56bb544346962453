import pickle
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from glocal.encoders import piece_tokens as module
from glocal.encoders.piece_tokens import piece_tokens
from glocal.encoders.tokenizer import TextTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ODD = "é–\u0301\u200b\x0b\x00\u00a0中ΣßİÀ\ufffd…"


def bert(*, lowercase=True, pre=None):
    """A tokenizer of BERT's kind that knows ASCII characters and a few words."""
    words = [*SPECIAL, *string.printable.strip(), "the", "##s", "##e", "cat", "中", "é", "–"]
    words += [f"##{letter}" for letter in "abcdt1"]
    vocab = {word: place for place, word in enumerate(dict.fromkeys(words))}
    backend = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=12))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre or pre_tokenizers.BertPreTokenizer()
    backend.add_special_tokens(SPECIAL)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    return backend


def whole(backend, texts, max_length):
    backend.enable_truncation(max_length)
    return [encoding.ids for encoding in backend.encode_batch(texts)]


characters = st.one_of(
    st.sampled_from(" \n\tabcstheTHE12.,-[]" + ODD), st.characters(codec="utf-8")
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(characters, max_size=30), max_size=5), st.integers(2, 12), st.booleans())
def test_pieces_have_the_tokens_of_the_whole_text(texts, max_length, lowercase):
    backend = bert(lowercase=lowercase)
    found = piece_tokens(backend.to_str()).encode_batch(texts, max_length)
    assert found == whole(backend, texts, max_length)


def test_texts_with_special_tokens_surrogates_and_no_room_are_left_to_the_tokenizer():
    pieces = piece_tokens(bert().to_str())
    assert pieces.encode_batch(["the cat", "a [SEP] b"], 8) is None
    assert pieces.encode_batch(["\ud800"], 8) is None
    assert pieces.encode_batch(["the cat"], 1) is None
    assert pieces.encode_batch(["the cat"], 2) == whole(bert(), ["the cat"], 2)
    assert pieces.encode_batch([], 8) == []


def test_memory_starts_again_when_it_is_full(monkeypatch):
    monkeypatch.setattr(module, "_MOST_PIECES", 2)
    backend = bert()
    pieces = piece_tokens(backend.to_str())
    for texts in (["a b c d"], ["cats the", "b"], ["a.b-c"]):
        assert pieces.encode_batch(texts, 9) == whole(backend, texts, 9)
    assert len(pieces._memory) <= 5


def test_other_kinds_of_tokenizers_have_none():
    assert piece_tokens(bert(pre=pre_tokenizers.Whitespace()).to_str()) is None
    bare = Tokenizer(models.BPE())
    assert piece_tokens(bare.to_str()) is None


def test_many_texts_have_the_tokens_of_few():
    tokenizer = TextTokenizer(bert())
    texts = [f"The cat {n}, cats" for n in range(100)]
    expected = tokenizer.encode_batch(texts[:50], 7) + tokenizer.encode_batch(texts[50:], 7)
    assert "_pieces" not in vars(tokenizer)
    assert tokenizer.encode_batch(texts, 7) == expected
    assert len(tokenizer._pieces._memory) > 50


@pytest.mark.parametrize("n_texts", [10, 100])
def test_a_copy_in_another_process_tokenises_alike(n_texts):
    tokenizer = TextTokenizer(bert())
    texts = ["the cats"] * n_texts
    expected = tokenizer.encode_batch(texts, 9)
    assert pickle.loads(pickle.dumps(tokenizer)).encode_batch(texts, 9) == expected

"""Word vectors in the place of an encoder."""

import numpy as np
import pytest

from glocal.encoders.encoder import Encoder
from glocal.encoders.static import StaticVectors
from glocal.encoders.word_encoder import WordVectorModel
from glocal.encoders.word_lookup import VocabularyLookup
from glocal.encoders.word_tokenizer import WordTokenizer, load_tokenizer
from tests.collating import collate

WORDS = ["red", "cat", "state", "owned"]
MATRIX = np.arange(8, dtype=np.float32).reshape(4, 2)


@pytest.fixture
def tokenizer():
    return WordTokenizer(VocabularyLookup(WORDS), len(WORDS))


def test_texts_become_the_words_that_have_a_vector(tokenizer):
    texts = ["A red Cat, unknown!", "nothing known", "", "state-owned red cat"]
    assert tokenizer.encode_batch(texts, 10) == [[0, 1], [4], [4], [2, 3, 0, 1]]
    assert tokenizer.encode_batch(["red cat red cat"], 3) == [[0, 1, 0]]
    assert tokenizer.vocab_size == 5
    assert tokenizer.facts.pad_id == 4


def test_offsets_point_at_whole_words(tokenizer):
    text = "my state-owned  cat"
    ids, spans, words = tokenizer.encode_with_offsets(text, 10)
    assert ids == tokenizer.encode_batch([text], 10)[0]
    assert [text[a:b] for a, b in spans] == ["state-owned", "state-owned", "cat"]
    assert words == [1, 1, 2]
    assert tokenizer.encode_with_offsets("nothing", 10) == ([4], [(0, 0)], [None])


def test_saved_and_loaded_it_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path, tokenizer.facts_mapping())
    assert isinstance(loaded, WordTokenizer)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode_batch(["red cat"], 5) == [[0, 1]]
    other = WordTokenizer(VocabularyLookup([*WORDS, "more"]), 5)
    assert other.fingerprint != tokenizer.fingerprint


def test_the_model_is_layer_0_of_an_encoder_and_starts_at_the_vectors():
    model, tokenizer = WordVectorModel.of(StaticVectors(VocabularyLookup(WORDS), MATRIX))
    encoder = Encoder(model, {0})
    tokens = [np.array(ids) for ids in tokenizer.encode_batch(["red cat", "nothing known"], 9)]
    batch = collate(tokens, np.arange(2), pad_id=tokenizer.facts.pad_id, left=False, multiple=1)
    features = encoder(batch)
    assert features.hidden[0].tolist() == [[[0, 1], [2, 3]], [[0, 0], [0, 0]]]
    assert features.mask.tolist() == [[True, True], [True, False]]
    assert encoder.total_layers == 0
    assert encoder.hidden_size == 2

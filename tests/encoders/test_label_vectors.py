import numpy as np
import pytest
import torch

from glocal.config import EncoderConfig
from glocal.data.cache import cache_dir
from glocal.encoders.encoder import Encoder
from glocal.encoders.label_vectors import label_vectors, mean_tokens
from glocal.encoders.loading import load_pretrained

TEXTS = ["cat", "", "a red fox (animal)", "owl"]


@pytest.fixture
def parts(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path))
    torch.manual_seed(0)
    model, tokenizer = load_pretrained(EncoderConfig(name="random:tiny"))
    return Encoder(model, {0, 2}), tokenizer


def test_vectors_are_the_mean_of_the_words_tokens(parts):
    encoder, tokenizer = parts
    found = mean_tokens(encoder, tokenizer, TEXTS, max_length=24)
    for place in (0, 2, 3):
        (ids,) = tokenizer.encode_batch([TEXTS[place]], 24)
        with torch.no_grad():
            states = encoder.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        for layer in (0, 2):
            expected = states[layer][0, 1:-1].mean(0)
            np.testing.assert_allclose(found[layer][place], expected, atol=1e-5)
    assert not found[0][1].any()
    assert not found[2][1].any()


def test_known_texts_come_from_the_cache(parts):
    encoder, tokenizer = parts
    calls = []
    first = label_vectors(
        encoder, tokenizer, TEXTS, max_length=24, progress=lambda *a: calls.append(a)
    )
    assert calls[-1] == (4, 4)
    again = label_vectors(
        encoder, tokenizer, TEXTS, max_length=24, progress=lambda *a: calls.append(a)
    )
    assert len(calls) == 1
    np.testing.assert_array_equal(first[2], again[2])


def test_other_texts_and_other_weights_are_encoded_again(parts):
    encoder, tokenizer = parts
    first = label_vectors(encoder, tokenizer, TEXTS, max_length=24)
    label_vectors(encoder, tokenizer, ["dog"], max_length=24)
    with torch.no_grad():
        next(encoder.model.parameters()).mul_(0.5)
    changed = label_vectors(encoder, tokenizer, TEXTS, max_length=24)
    assert not np.allclose(first[0], changed[0])
    assert len(list(cache_dir("label-text").iterdir())) == 3


def test_a_damaged_entry_is_made_again(parts):
    encoder, tokenizer = parts
    first = np.array(label_vectors(encoder, tokenizer, TEXTS, max_length=24)[2])
    (entry,) = cache_dir("label-text").iterdir()
    (entry / "layer-2.npy").write_bytes(b"nothing")
    again = label_vectors(encoder, tokenizer, TEXTS, max_length=24)
    np.testing.assert_array_equal(first, again[2])
    assert np.load(entry / "layer-2.npy").shape == first.shape

import numpy as np
import torch

from glocal.config import EncoderConfig
from glocal.encoders.encoder import Encoder
from glocal.encoders.loading import load_pretrained
from tests.collating import collate


def tiny(layers, **options):
    torch.manual_seed(0)
    model, tokenizer = load_pretrained(EncoderConfig(name="random:tiny"))
    return Encoder(model, layers, **options).eval(), tokenizer


def batch_of(tokenizer, texts):
    tokens = [np.array(t) for t in tokenizer.encode_batch(texts, 16)]
    return collate(tokens, np.arange(len(texts)), pad_id=0, left=False)


def test_layers_above_the_highest_one_are_neither_run_nor_kept():
    whole, tokenizer = tiny([0, 1, 2])
    cut, _ = tiny([1])
    batch = batch_of(tokenizer, ["a red dog", "an owl"])
    everything, part = whole(batch), cut(batch)
    assert list(part.hidden) == [1]
    torch.testing.assert_close(part.hidden[1], everything.hidden[1])
    assert len(cut.model.encoder.layer) == 1
    assert cut.model.config.num_hidden_layers == 1
    assert cut.total_layers == 2


def test_compute_dtype_keeps_weights_and_reaches_their_gradients():
    encoder, tokenizer = tiny([2])
    batch = batch_of(tokenizer, ["a red dog", "an owl"])
    exact = encoder(batch).hidden[2]
    encoder.compute_dtype = torch.bfloat16
    rounded = encoder(batch).hidden[2]
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), exact, rtol=0.05, atol=0.05)
    rounded.float().square().sum().backward()
    embedding = encoder.model.embeddings.word_embeddings.weight
    assert embedding.dtype == embedding.grad.dtype == torch.float32
    assert embedding.grad.abs().sum() > 0


def test_padding_does_not_change_hidden_states():
    encoder, tokenizer = tiny([2])
    alone = encoder(batch_of(tokenizer, ["an owl"]))
    padded = encoder(batch_of(tokenizer, ["an owl", "a red dog and a fox"]))
    length = alone.hidden[2].shape[1]
    torch.testing.assert_close(
        padded.hidden[2][0, :length], alone.hidden[2][0], rtol=1e-4, atol=1e-5
    )

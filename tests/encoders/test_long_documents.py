"""Chunks of a long document against the same model run on them by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from transformers import ModernBertConfig, ModernBertModel

from glocal.config import EncoderConfig
from glocal.data.chunks import Chunking
from glocal.encoders.encoder import Encoder, LongDocuments
from glocal.encoders.loading import load_pretrained
from glocal.encoders.tokenizer import TextTokenizer
from glocal.errors import ConfigError
from tests.collating import collate

WINDOW, OVERLAP = 12, 3
TEXTS = [
    "the red cat and a black dog and the blue owl " * 2,
    "an owl",
    "a bee or a hen in the green",
]


def modern_bert():
    """An encoder with a norm after its last layer."""
    config = ModernBertConfig(
        vocab_size=80, hidden_size=32, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=64, pad_token_id=0, cls_token_id=2, sep_token_id=3,
        bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    return ModernBertModel(config)


def load(kind, request):
    torch.manual_seed(0)
    name = "random:tiny" if kind in {"bert", "modernbert"} else None
    name = name or f"random:{request.getfixturevalue(kind)}"
    model, tokenizer = load_pretrained(EncoderConfig(name=name))
    if kind == "modernbert":
        model = modern_bert()
    with torch.no_grad():  # weights of a trained size, so that tokens take note of one another
        for parameter in model.parameters():
            parameter.mul_(5 if parameter.dim() > 1 else 1)
    return model.eval(), tokenizer


def encoder_of(kind, request, *, layers, further_layers, mean_document=False, **options):
    model, tokenizer = load(kind, request)
    chunking = Chunking(WINDOW, OVERLAP, *tokenizer.special_tokens())
    facts = tokenizer.facts
    encoder = Encoder(
        model,
        layers,
        cls_last=facts.cls_last,
        cls_type_id=facts.cls_type_id,
        long_documents=LongDocuments(chunking, further_layers, mean_document=mean_document),
        **options,
    )
    return encoder.eval(), tokenizer


def batch_of(encoder, tokenizer, texts, **options):
    tokens = [np.array(ids) for ids in tokenizer.encode_batch(texts, 64)]
    facts = tokenizer.facts
    batch = collate(
        tokens, np.arange(len(texts)), pad_id=facts.pad_id, left=facts.cls_last,
        chunking=encoder.chunking, **options,
    )  # fmt: skip
    return batch, tokens


def by_hand(model, chunk, facts):
    """All hidden states of the uncut model on one chunk, (T, H) each."""
    ids = torch.from_numpy(np.array(chunk, dtype=np.int64))[None]
    segments = {}
    if facts.cls_type_id:
        segments = {"token_type_ids": torch.zeros_like(ids)}
        segments["token_type_ids"][:, -1 if facts.cls_last else 0] = facts.cls_type_id
    with torch.no_grad():
        states = model(input_ids=ids, output_hidden_states=True, **segments).hidden_states
    return [layer[0] for layer in states]


KINDS = ["bert", "roberta", "xlnet", "modernbert"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_tokens_are_those_of_the_model_run_on_each_chunk(kind, layer, request):
    encoder, tokenizer = encoder_of(kind, request, layers=[layer, 2], further_layers=(layer,))
    model, _ = load(kind, request)  # the same weights, uncut
    Encoder(model, [2])  # `hidden_states` of an encoder that goes no higher than layer 2
    batch, tokens = batch_of(encoder, tokenizer, TEXTS)
    with torch.no_grad():
        features = encoder(batch)
        states, mask = features.tokens(layer)
    assert batch.continuation is not None
    for row, document in enumerate(tokens):
        first = encoder.chunking.first(document)
        expected = [by_hand(model, first, tokenizer.facts)[layer]]
        for chunk, new in encoder.chunking.beyond(document):
            found = by_hand(model, chunk, tokenizer.facts)[layer]
            end = WINDOW - encoder.chunking.after
            expected.append(found[end - new : end])
        expected = torch.cat(expected)
        assert len(expected) == len(document)
        torch.testing.assert_close(states[row][mask[row]], expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            features.document(2)[row],
            by_hand(model, first, tokenizer.facts)[2][-1 if tokenizer.facts.cls_last else 0],
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_chunk_is_what_the_tokenizer_cuts(kind, request):
    encoder, tokenizer = encoder_of(kind, request, layers=[1], further_layers=(1,))
    whole = [np.array(ids) for ids in tokenizer.encode_batch(TEXTS, 64)]
    cut = tokenizer.encode_batch(TEXTS, WINDOW)
    assert [encoder.chunking.first(tokens).tolist() for tokens in whole] == cut
    assert max(map(len, whole)) > 2 * WINDOW


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_document_can_be_the_mean_of_its_chunks(kind, pooling, request):
    encoder, tokenizer = encoder_of(
        kind, request, layers=[1, 2], further_layers=(1, 2), mean_document=True, pooling=pooling
    )
    batch, tokens = batch_of(encoder, tokenizer, TEXTS)
    with torch.no_grad():
        found = encoder(batch).document(2)
    for row, document in enumerate(tokens):
        chunks = [encoder.chunking.first(document)]
        chunks += [chunk for chunk, _ in encoder.chunking.beyond(document)]
        states = [by_hand(encoder.model, chunk, tokenizer.facts)[2] for chunk in chunks]
        place = -1 if tokenizer.facts.cls_last else 0
        vectors = [s.mean(0) if pooling == "mean" else s[place] for s in states]
        expected = torch.stack(vectors).mean(0)
        torch.testing.assert_close(found[row], expected, rtol=1e-4, atol=1e-4)


def test_only_the_layers_needed_are_run_on_the_continuation(request):
    encoder, tokenizer = encoder_of("bert", request, layers=[1, 2], further_layers=(1,))
    ran = []
    for number, layer in enumerate(encoder.model.encoder.layer):
        layer.register_forward_hook(
            lambda _, args, __, number=number: ran.append((number, len(args[0])))
        )
    batch, _ = batch_of(encoder, tokenizer, TEXTS[:2])
    n_chunks = len(batch.continuation.input_ids)
    encoder(batch)
    assert n_chunks != 2
    assert ran == [(0, 2), (1, 2), (0, n_chunks)]
    assert len(encoder.model.encoder.layer) == 2  # the model itself is as it was
    names = [name for name, _ in encoder.named_parameters()]
    assert len(names) == len(set(names))
    assert all(name.startswith("model.") for name in names)


def test_gradients_of_the_continuation_reach_the_shared_weights(request):
    encoder, tokenizer = encoder_of("bert", request, layers=[1, 2], further_layers=(1,))
    batch, _ = batch_of(encoder, tokenizer, TEXTS)
    more, there = encoder(batch).continuation.tokens(1)
    more[there].square().sum().backward()
    lower, upper = encoder.model.encoder.layer
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in lower.parameters())
    assert all(p.grad is None for p in upper.parameters())


def test_bf16_throughout_holds_for_the_continuation_too(request):
    encoder, tokenizer = encoder_of("bert", request, layers=[1, 2], further_layers=(1,))
    batch, _ = batch_of(encoder, tokenizer, TEXTS)
    exact, mask = encoder(batch).tokens(1)
    encoder.compute_dtype = torch.bfloat16
    rounded, _ = encoder(batch).tokens(1)
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact)[mask].abs().mean() < 0.05
    rounded.float().sum().backward()
    assert encoder.model.embeddings.word_embeddings.weight.grad.dtype == torch.float32


@pytest.mark.parametrize(
    ("kind", "expected"), [("bert", (1, 1)), ("roberta", (1, 1)), ("xlnet", (0, 2))]
)
def test_special_tokens_before_and_after_a_text(kind, expected, request):
    _, tokenizer = load(kind, request)
    assert isinstance(tokenizer, TextTokenizer)
    assert tokenizer.special_tokens() == expected


class CountsItsLayers(nn.Module):
    """An encoder whose lowest states change with what lies above them."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(num_hidden_layers=3, hidden_size=4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, input_ids, **_):
        states = [torch.ones(*input_ids.shape, 4) * len(self.layers)]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return SimpleNamespace(hidden_states=tuple(states))


def test_an_encoder_that_cannot_be_run_in_part_is_refused():
    chunking = Chunking(WINDOW, OVERLAP, 1, 1)
    with pytest.raises(ConfigError, match="CountsItsLayers cannot be run up to layer 1 alone"):
        Encoder(CountsItsLayers(), [1, 3], long_documents=LongDocuments(chunking, (1,)))
    Encoder(CountsItsLayers(), [1, 3], long_documents=LongDocuments(chunking, (1, 3)))


@pytest.mark.parametrize(("kind", "depth"), [("bert", 1), ("xlnet", 1), ("modernbert", 2)])
def test_one_layer_more_is_run_where_the_last_states_are_normed(kind, depth, request):
    encoder, _ = encoder_of(kind, request, layers=[1, 2], further_layers=(1,))
    assert encoder.continuation_depth == depth

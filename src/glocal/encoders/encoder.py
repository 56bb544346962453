"""Any Hugging Face encoder as a source of hidden states.

- Only the requested layers are computed: layers above the highest one are removed at load time.
- The document vector is [CLS] (first or last), or the mean of the tokens.
- A batch without padding passes no mask, so that the fused attention kernels apply; in bf16 on a
  GPU, BERT and its kin never need one (`ragged_attention.py`).
- Further chunks of long documents are run only up to the layer that is needed of them.
- `compute_dtype` runs it in bf16 throughout, on fp32 weights.
- Layer n is Hugging Face's `hidden_states[n]`: 0 are the embeddings, N is the last layer.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.data.batches import Batch
from glocal.data.chunks import Chunking, Continuation
from glocal.encoders.lean_gradients import cast_together, use_lean_gradients
from glocal.encoders.ragged_attention import use_ragged_attention, without_mask
from glocal.encoders.residual_norm import fuse_residual_norms
from glocal.errors import ConfigError


@dataclass(frozen=True)
class Embedded:
    """The start of an encoder's computation, with a graph to what follows, (B, T, H) each."""

    tokens: Tensor | None  # the tokens' own vectors; None where an encoder does not take them
    layer: Tensor  # layer 0; some encoders return a copy of it, which nothing follows from


_TRACED: ContextVar[list[Embedded] | None] = ContextVar("traced embeddings", default=None)


@contextlib.contextmanager
def trace_embeddings() -> Iterator[list[Embedded]]:
    """Collect the embeddings of everything that this thread encodes meanwhile."""
    traced: list[Embedded] = []
    token = _TRACED.set(traced)
    try:
        yield traced
    finally:
        _TRACED.reset(token)


@dataclass(frozen=True)
class LongDocuments:
    """The use of tokens beyond the first chunk.

    Args:
        chunking: The way documents are cut.
        layers: The layers whose hidden states are also needed of further chunks.
        mean_document: Whether the document vector is the mean of all chunks' vectors.
    """

    chunking: Chunking
    layers: tuple[int, ...]
    mean_document: bool = False


@dataclass
class ContinuationFeatures:
    """Hidden states of the further chunks of a batch's documents."""

    hidden: dict[int, Tensor]  # layer → (N, C, H)
    continuation: Continuation
    mean_document: bool

    def tokens(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return the hidden states of each document, (B, S, H), and their mask, (B, S)."""
        places = self.continuation.places
        states = self.hidden[layer].flatten(0, 1)  # (N · C, H)
        # An embedding lookup: its backward pass sums the gradients of equal places in parallel.
        return functional.embedding(places.clamp(min=0), states), places >= 0


@dataclass
class Features:
    """Hidden states of one batch, by layer.

    `hidden` and `mask` belong to the first chunk; `tokens` returns those of the whole document.
    """

    hidden: dict[int, Tensor]  # layer → (B, T, H)
    mask: Tensor | None  # (B, T) bool; None where nothing is padded
    cls_last: bool = False
    pooling: str = "cls"
    companion_features: Mapping[str, Tensor] = field(default_factory=dict)  # see `Batch`
    continuation: ContinuationFeatures | None = None  # None where no document goes on

    def tokens(self, layer: int) -> tuple[Tensor, Tensor | None]:
        """Return the hidden states of the whole document, (B, T + S, H), and their mask."""
        states = self.hidden[layer]
        if self.continuation is None:
            return states, self.mask
        more, there = self.continuation.tokens(layer)
        mask = there.new_ones(states.shape[:2]) if self.mask is None else self.mask
        return torch.cat([states, more], 1), torch.cat([mask, there], 1)

    def document(self, layer: int) -> Tensor:
        """Return the document vector of a layer, (B, H): of the first chunk, or the chunks' mean.

        In the mean every chunk has the same weight: all chunks of a long document have the same
        length.
        """
        first = self._vectors(self.hidden[layer], self.mask)
        if self.continuation is None or not self.continuation.mean_document:
            return first
        chunks = self.continuation.continuation.chunks  # (B, K)
        there = (chunks >= 0).unsqueeze(-1).to(first.dtype)
        vectors = self._vectors(self.continuation.hidden[layer], None)  # (N, H)
        further = functional.embedding(chunks.clamp(min=0), vectors)  # (B, K, H)
        return (first + (further * there).sum(1)) / (1 + there.sum(1))

    def _vectors(self, states: Tensor, mask: Tensor | None) -> Tensor:
        if self.pooling == "cls":
            return states[:, -1] if self.cls_last else states[:, 0]
        if mask is None:
            return states.mean(1)
        weights = mask.unsqueeze(-1).to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1)


class Encoder(nn.Module):
    """A transformer cut at the highest requested layer.

    Args:
        model: A Hugging Face encoder without its task head.
        layers: The layers whose hidden states are returned.
        cls_last: Whether [CLS] is the last token (then padding is on the left).
        cls_type_id: Segment id of [CLS].
        pooling: `cls` or `mean`.
        total_layers: Number of layers before the model was cut, if it is already cut.
        long_documents: The use of tokens beyond the first chunk; None to ignore them.
    """

    def __init__(
        self,
        model: Any,
        layers: Iterable[int],
        *,
        cls_last: bool = False,
        cls_type_id: int = 0,
        pooling: str = "cls",
        total_layers: int | None = None,
        long_documents: LongDocuments | None = None,
    ) -> None:
        super().__init__()
        found = int(model.config.num_hidden_layers)
        self.total_layers = found if total_layers is None else total_layers
        self.layers = sorted(set(layers))
        self.cls_last, self.cls_type_id, self.pooling = cls_last, cls_type_id, pooling
        self.long_documents = long_documents
        _cut(model, self.layers[-1])
        if getattr(model.config, "model_type", "") == "mpnet":
            from glocal.encoders.mpnet import adapt_mpnet

            adapt_mpnet(model)
        use_lean_gradients(model)
        fuse_residual_norms(model)
        self.ragged = use_ragged_attention(model)
        self.model = model
        self.continuation_depth = self.layers[-1]
        if long_documents is not None and long_documents.layers[-1] < self.layers[-1]:
            self.continuation_depth = _depth_of(model, long_documents.layers[-1])
        self.compute_dtype: torch.dtype | None = None
        self.hidden_size = int(model.config.hidden_size)

    @property
    def chunking(self) -> Chunking | None:
        """The way documents must be cut; None if only the first tokens are read."""
        return None if self.long_documents is None else self.long_documents.chunking

    def forward(self, batch: Batch) -> Features:
        """Return the hidden states of the requested layers."""
        mask = batch.attention_mask if batch.padded else None
        weights = self._cast_weights(batch.input_ids.device)
        states = self._run(self.model, batch.input_ids, mask, weights)
        return Features(
            {layer: states[layer] for layer in self.layers},
            mask,
            cls_last=self.cls_last,
            pooling=self.pooling,
            companion_features=batch.companion_features,
            continuation=self._continuation(batch, weights),
        )

    def _continuation(
        self, batch: Batch, weights: dict[str, Tensor] | None
    ) -> ContinuationFeatures | None:
        """Return the hidden states of further chunks; first chunks must have been run before."""
        wanted, continuation = self.long_documents, batch.continuation
        if wanted is None or continuation is None:
            return None
        whole = self.continuation_depth == self.layers[-1]
        model = self.model if whole else _lower_part(self.model, self.continuation_depth)
        # Nothing is padded, but a recorded step needs a mask, see `train/graphs.py`.
        mask = torch.ones_like(continuation.input_ids, dtype=torch.bool) if batch.padded else None
        states = self._run(model, continuation.input_ids, mask, weights)
        hidden = {layer: states[layer] for layer in wanted.layers}
        return ContinuationFeatures(hidden, continuation, wanted.mean_document)

    def _run(
        self, model: Any, input_ids: Tensor, mask: Tensor | None, weights: dict[str, Tensor] | None
    ) -> tuple[Tensor, ...]:
        """Return the hidden states of all layers; gradients flow to the fp32 weights."""
        inputs: dict[str, Any] = {"input_ids": input_ids}
        traced = _TRACED.get()
        if traced is not None and hasattr(model, "get_input_embeddings"):
            inputs = {"inputs_embeds": model.get_input_embeddings()(input_ids)}
        ragged = mask is not None and self._can_go_without_mask(input_ids.device)
        # Integers, as tokenizers return them: some encoders (XLNet) calculate with the mask.
        inputs["attention_mask"] = None if mask is None or ragged else mask.long()
        if self.cls_type_id:
            inputs["token_type_ids"] = self._segments(input_ids)
        inputs["output_hidden_states"] = True
        with without_mask(mask) if mask is not None and ragged else contextlib.nullcontext():
            if weights is None:
                output = model(**inputs)
            else:
                own = {name: weights[name] for name, _ in model.named_parameters()}
                with torch.autocast(input_ids.device.type, enabled=False):
                    output = torch.func.functional_call(model, own, kwargs=inputs)
        states: tuple[Tensor, ...] = output.hidden_states
        if traced is not None:
            traced.append(Embedded(inputs.get("inputs_embeds"), states[0]))
        return states

    def _can_go_without_mask(self, device: torch.device) -> bool:
        half = device.type == "cuda" and self._dtype(device) is torch.bfloat16
        # Layers that are computed again in the backward pass would not find the ends then.
        return self.ragged and half and not self.model.is_gradient_checkpointing

    def _dtype(self, device: torch.device) -> torch.dtype | None:
        """Return the type to compute in: `compute_dtype`, or autocast's in prediction on a GPU."""
        compiled = self._compiled_call_impl is not None  # which casts by itself
        if self.compute_dtype is not None or compiled or torch.is_grad_enabled():
            return self.compute_dtype
        if device.type != "cuda":
            return None
        return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None

    def _cast_weights(self, device: torch.device) -> dict[str, Tensor] | None:
        """Return the weights in another type, cast once for all chunks; None to use them as is.

        All activations stay in that type. Autocast would keep the residual stream in
        fp32 and cast it before every product, which costs a small encoder a third of its time.
        """
        dtype = self._dtype(device)
        if dtype is None:
            return None
        named = dict(self.model.named_parameters())
        cast = cast_together(list(named.values()), dtype)
        return dict(zip(named, cast, strict=True))

    def _segments(self, input_ids: Tensor) -> Tensor:
        segments = torch.zeros_like(input_ids)
        segments[:, -1 if self.cls_last else 0] = self.cls_type_id
        return segments


def _cut(model: Any, highest: int) -> None:
    """Remove the layers above the highest requested one, and the pooler."""
    total = int(model.config.num_hidden_layers)
    assert highest <= total, "the rules of a recipe check its layers"
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    if highest == total:
        return
    owner, _, name = _found_layers(model).rpartition(".")
    module = model.get_submodule(owner)
    setattr(module, name, getattr(module, name)[:highest])
    model.config.num_hidden_layers = highest


def _lower_part(model: Any, depth: int) -> Any:
    """Return a view of the model up to a layer, at least the first, with shared weights.

    The modules that contain the list of layers are copied without their content, so that the model
    itself is never changed, even for another thread. It must have been run before: transformers
    hooks into the layers at the first run, and would do so again.
    """
    *outer, name = _found_layers(model).split(".")
    view = inner = _shell(model)
    for step in outer:
        inner._modules[step] = _shell(inner._modules[step])
        inner = inner._modules[step]
    inner._modules[name] = inner._modules[name][:depth]
    return view


def _depth_of(model: Any, layer: int) -> int:
    """Return the number of layers to run for the hidden states of one.

    It is usually the layer's own number. Encoders with a norm after their last layer return normed
    states for the last one, so that one more layer is needed; the model itself is tried.

    Raises:
        ConfigError: No part of the encoder gives the same states as the whole.
    """
    was_training = model.training
    model.eval()
    with torch.no_grad():
        expected = _trial(model)[layer]
        parts = range(max(1, layer), layer + 2)
        if expected.is_meta:  # a stored model is checked: shapes alone
            return parts[0]
        equal = [torch.allclose(_trial(_lower_part(model, n))[layer], expected) for n in parts]
    model.train(was_training)
    if any(equal):
        return parts[equal.index(True)]
    raise ConfigError(
        f"{type(model).__name__} cannot be run up to layer {layer} alone, which long texts "
        "need; set encoder.document_length=0"
    )


def _trial(model: Any) -> tuple[Tensor, ...]:
    states: tuple[Tensor, ...] = model(
        input_ids=torch.arange(1, 5)[None], output_hidden_states=True
    ).hidden_states
    return states


def _shell(module: Any) -> Any:
    shell = copy.copy(module)
    shell._modules = dict(module._modules)
    return shell


def layers_path(model: Any) -> str | None:
    """Return the name of the list of layers inside a model; None where it is not found."""
    total = int(model.config.num_hidden_layers)
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == total:
            return str(name)
    return None


def _found_layers(model: Any) -> str:
    path = layers_path(model)
    assert path is not None, "the rules of a recipe refuse to cut an encoder without it"
    return path

"""Any Hugging Face encoder as a source of hidden states.

- only the layers asked for are run: what lies above the highest one is cut off at load time;
- knows where the document vector is ([CLS] first, last, or the mean of the tokens);
- a batch without padding passes no mask, so that the fused attention kernels apply;
- `compute_dtype` runs it in bf16 throughout, on fp32 weights;
- `layer n` is Hugging Face's `hidden_states[n]`: 0 are the embeddings, N is the last layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from glocal.data.batches import Batch
from glocal.errors import ConfigError

__all__ = ["Encoder", "Features"]


@dataclass
class Features:
    """Hidden states of one batch, by layer, and how to read them."""

    hidden: dict[int, Tensor]  # layer → (B, T, H)
    mask: Tensor | None  # (B, T) bool; None where nothing is padded
    cls_last: bool = False
    pooling: str = "cls"
    extra: Mapping[str, Tensor] = field(default_factory=dict)  # the batch's own, see `Batch`

    def document(self, layer: int) -> Tensor:
        """The document vector of a layer, (B, H)."""
        states = self.hidden[layer]
        if self.pooling == "cls":
            return states[:, -1] if self.cls_last else states[:, 0]
        if self.mask is None:
            return states.mean(1)
        weights = self.mask.unsqueeze(-1).to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1)


class Encoder(nn.Module):
    """A transformer cut at the highest layer asked for.

    Args:
        model: A Hugging Face encoder without its task head.
        layers: The layers whose hidden states are returned.
        cls_last: Whether [CLS] is the last token (then padding is on the left).
        cls_type_id: The segment id of [CLS], where it is not 0.
        pooling: `cls` or `mean`.
        total_layers: Layers of the encoder before it was cut, where it was cut already.
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
    ) -> None:
        super().__init__()
        found = int(model.config.num_hidden_layers)
        self.total_layers = found if total_layers is None else total_layers
        self.layers = sorted(set(layers))
        self.cls_last, self.cls_type_id, self.pooling = cls_last, cls_type_id, pooling
        _cut(model, self.layers[-1])
        self.model = model
        self.compute_dtype: torch.dtype | None = None
        self.hidden_size = int(model.config.hidden_size)

    def forward(self, batch: Batch) -> Features:
        """Hidden states of the layers asked for."""
        mask = batch.attention_mask if batch.padded else None
        inputs: dict[str, Any] = {"input_ids": batch.input_ids}
        # Numbers, as tokenizers give them: some encoders (XLNet) calculate with the mask.
        inputs["attention_mask"] = None if mask is None else mask.long()
        if self.cls_type_id:
            inputs["token_type_ids"] = self._segments(batch.input_ids)
        inputs["output_hidden_states"] = True
        states = self._run(inputs).hidden_states
        hidden = {layer: states[layer] for layer in self.layers}
        return Features(
            hidden, mask, cls_last=self.cls_last, pooling=self.pooling, extra=batch.extra
        )

    def _run(self, inputs: dict[str, Any]) -> Any:
        """The model on weights cast to `compute_dtype`; gradients reach the fp32 weights.

        Everything between two layers stays in that type. Autocast would keep the residual stream in
        fp32 and cast it before every product, which costs a small encoder a third of its time.
        """
        if self.compute_dtype is None:
            return self.model(**inputs)
        weights = {n: p.to(self.compute_dtype) for n, p in self.model.named_parameters()}
        with torch.autocast(inputs["input_ids"].device.type, enabled=False):
            return torch.func.functional_call(self.model, weights, kwargs=inputs)

    def _segments(self, input_ids: Tensor) -> Tensor:
        segments = torch.zeros_like(input_ids)
        segments[:, -1 if self.cls_last else 0] = self.cls_type_id
        return segments


def _cut(model: Any, highest: int) -> None:
    """Remove the layers above the highest one asked for, and the pooler."""
    total = int(model.config.num_hidden_layers)
    if highest > total:
        raise ConfigError(f"layer {highest} was asked for, but the encoder has {total} layers")
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    if highest == total:
        return
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == total:
                setattr(module, name, child[:highest])
                model.config.num_hidden_layers = highest
                return
    raise ConfigError(
        f"the layers of {type(model).__name__} were not found, so it cannot be cut at layer "
        f"{highest}; ask for layer {total} (`last`) among the experts"
    )

"""The logarithms of p = σ(a)·σ(b) and of 1 − p, accurate for logits of any size.

For small p, 1 − p rounds to 1; for p near 1 it rounds to 0. Hence (APLC-XLNet Eq. 2 and 5)

- `log p = logσ(a) + logσ(b)`;
- `log(1 − p) = log1p(−exp(log p))` where p < 1/2;
- elsewhere `1 − p = (1 + e^a + e^b) / ((1 + e^a)(1 + e^b))`, and with m = min(a, b), M = max(a, b)
  `log(1 − p) = softplus(m − softplus(M)) − softplus(m)`, a difference without cancellation there;
- one formula gives the derivative everywhere, `−∂/∂b log(1 − p) = σ(b)·σ(a − softplus(b))`, a value
  between 0 and 1. Autograd never sees the two branches, so a NaN in one cannot reach the other.

Half-precision logits are converted to fp32 first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_LOG_HALF = -math.log(2.0)


def log_product(a: Tensor, b: Tensor) -> Tensor:
    """Return `log(σ(a)·σ(b))`, broadcast."""
    return functional.logsigmoid(_exact(a)) + functional.logsigmoid(_exact(b))


def log_one_minus_product(a: Tensor, b: Tensor) -> Tensor:
    """Return `log(1 − σ(a)·σ(b))`, broadcast."""
    apply: Callable[..., Tensor] = _LogOneMinusProduct.apply
    return apply(_exact(a), _exact(b))


def product_bce(gates: Tensor, logits: Tensor, gold: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of the BCE of p = σ(gate)·σ(logit) against sparse positives.

    Args:
        gates: (n,) gate logit of each document.
        logits: (n, C) logits of a chunk of the cluster's labels.
        gold: (n, G) gold labels as columns of the chunk; labels elsewhere are outside `0 … C`.
        weights: (n,) weight of each document.
    """
    width = logits.shape[1]
    inside = (gold >= 0) & (gold < width)
    gates = gates.unsqueeze(1)
    negative = log_one_minus_product(gates, logits).sum(1)
    positive = logits.gather(1, gold.clamp(0, width - 1))  # (n, G)
    gained = log_product(gates, positive) - log_one_minus_product(gates, positive)
    return -((negative + (gained * inside).sum(1)) * weights).sum()


class _LogOneMinusProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        log_p = functional.logsigmoid(a) + functional.logsigmoid(b)
        likely = log_p >= _LOG_HALF
        value = log_p.clamp_(max=_LOG_HALF).exp_().neg_().log1p_()
        if value.is_cuda:  # avoid a device sync
            return torch.where(likely, _log_rest_of_likely(a, b), value)
        places = likely.nonzero(as_tuple=True)  # few, so compute only these
        chosen = (tensor.expand_as(value)[places] for tensor in (a, b))
        value[places] = _log_rest_of_likely(*chosen)
        return value

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (grad,) = grad_outputs
        a, b = ctx.saved_tensors
        needs_a, needs_b = ctx.needs_input_grad
        return (
            _slope(a, b).mul_(grad).sum_to_size(a.shape) if needs_a else None,
            _slope(b, a).mul_(grad).sum_to_size(b.shape) if needs_b else None,
        )


def _log_rest_of_likely(a: Tensor, b: Tensor) -> Tensor:
    """Return `log(1 − p)` for p of at least 1/2."""
    low, high = torch.minimum(a, b), torch.maximum(a, b)
    return functional.softplus(low - functional.softplus(high)) - functional.softplus(low)


def _slope(x: Tensor, other: Tensor) -> Tensor:
    """Return `∂/∂x log(1 − σ(x)·σ(other))`."""
    return (other - functional.softplus(x)).sigmoid_().mul_(-torch.sigmoid(x))


def _exact(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype in {torch.float16, torch.bfloat16} else logits

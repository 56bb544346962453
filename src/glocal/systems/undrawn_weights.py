"""Builds systems whose weights are loaded afterwards, without drawing random ones first.

Drawing the 22 million weights of a small encoder takes longer than everything else that loading a
model does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

# By name: transformers wraps torch's functions in its own.
_DRAWS = frozenset(
    {
        "normal_",
        "uniform_",
        "trunc_normal_",
        "kaiming_normal_",
        "kaiming_uniform_",
        "xavier_normal_",
        "xavier_uniform_",
    }
)


class UndrawnWeights(TorchFunctionMode):
    """Writes zeros where random values would be drawn.

    Not left as they are: an encoder that is checked by running it must not meet what is not a
    number.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Replace draws, and call everything else."""
        del types
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in _DRAWS:
            tensor: Tensor = args[0] if args else kwargs["tensor"]
            with torch.no_grad():
                return tensor.zero_()
        return func(*args, **kwargs)

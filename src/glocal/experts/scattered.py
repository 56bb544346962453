"""Values known for a few labels of each document, looked up at any labels."""

from __future__ import annotations

from torch import Tensor, where

__all__ = ["at_labels"]


def at_labels(known: Tensor, values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Values of known labels (B, S) at labels: consecutive ones (C,), or candidates (B, C).

    Args:
        known: Labels of each document, each once, −1 for none.
        values: Theirs.
        labels: Where they are asked for.

    Returns:
        (B, C) bool, where there are any, and (B, C) values, 0 where there is none.
    """
    return (_spread if labels.dim() == 1 else _look_up)(known, values, labels)


def _spread(known: Tensor, values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """At consecutive labels, (C,).

    What lies outside the chunk goes to a column that is cut off, so that no shape depends on the
    data and nothing waits for the device.
    """
    width = len(labels)
    places = known - labels[0]
    places = where((known >= 0) & (places >= 0) & (places < width), places, width)
    blank = values.new_zeros(len(known), width + 1)
    found = blank.scatter(1, places, values)[:, :width]
    inside = blank.bool().scatter(1, places, True)[:, :width]
    return inside, found


def _look_up(known: Tensor, values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """At candidates of each document, (B, C)."""
    same = labels.unsqueeze(2) == known.unsqueeze(1)  # (B, C, S)
    return same.any(2), (same * values.unsqueeze(1)).sum(2)

"""Look-up of values that are known for a few labels of each document."""

from __future__ import annotations

from torch import Tensor, where


def at_labels(known: Tensor, values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values at labels: consecutive ones (C,), or candidates of each document (B, C).

    Args:
        known: (B, S) labels with a value, without repeats, −1 for none.
        values: (B, S) their values.
        labels: The labels to look up.

    Returns:
        (B, C) bool, whether a label has a value, and (B, C) values, 0 where it has none.
    """
    return (_spread if labels.dim() == 1 else _look_up)(known, values, labels)


def _spread(known: Tensor, values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Look up consecutive labels, (C,).

    Values outside the chunk go to an extra column that is cut off, so that no shape depends on the
    data and no device sync is needed.
    """
    documents, width = known.shape[0], labels.shape[0]  # not `len`: an exported graph has any
    places = known - labels[0]
    places = where((known >= 0) & (places >= 0) & (places < width), places, width)
    blank = values.new_zeros(documents, width + 1)
    found = blank.scatter(1, places, values)[:, :width]
    inside = blank.bool().scatter(1, places, True)[:, :width]
    return inside, found


def _look_up(known: Tensor, values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Look up candidates of each document, (B, C)."""
    same = labels.unsqueeze(2) == known.unsqueeze(1)  # (B, C, S)
    return same.any(2), (same * values.unsqueeze(1)).sum(2)

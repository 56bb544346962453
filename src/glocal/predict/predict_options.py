"""Options of prediction, checked: labels to choose from, texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glocal.data.corpus import surrogate_in
from glocal.errors import ConfigError, DataError, Remedy
from glocal.vocabulary.label_space import LabelSpace


def allowed_labels(
    labels: LabelSpace, only: Sequence[str] | None, exclude: Sequence[str] | None
) -> np.ndarray | None:
    """Return a mask of the labels that may be predicted; None for all.

    Args:
        labels: The label space.
        only: Ids of labels that may be predicted; by default all.
        exclude: Ids of labels that may not.

    Raises:
        ConfigError: An id is not known, or no label is left.
    """
    if only is None and exclude is None:
        return None
    allowed = np.full(len(labels), only is None)
    allowed[label_positions(labels, only or (), "only")] = True
    allowed[label_positions(labels, exclude or (), "exclude")] = False
    if not allowed.any():
        raise ConfigError(
            "no label is left to predict: none was chosen that is not also excluded",
            remedies=[Remedy("only", "choose others", value="…")],
        )
    return allowed


def label_positions(labels: LabelSpace, ids: Sequence[str], argument: str) -> list[int]:
    """Return the columns of labels given by their ids as an argument of this name.

    Raises:
        ConfigError: An id is not known.
    """
    unknown = [i for i in ids if i not in labels.index]
    if unknown:
        shown = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        raise ConfigError(
            f"the model does not know {len(unknown)} of the labels given: {shown}",
            remedies=[Remedy(argument, "give labels it knows", value="…")],
        )
    return [labels.index[i] for i in ids]


def check_unicode(texts: Sequence[str]) -> None:
    """Refuse texts that are not valid Unicode.

    Raises:
        DataError: A text has a lone surrogate; the message says which.
    """
    for number, text in enumerate(texts, 1):
        if problem := surrogate_in(text):
            raise DataError(f"text {number}: {problem}")

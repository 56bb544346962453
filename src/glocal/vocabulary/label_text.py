"""Label text: names and descriptions of labels, as text for an encoder or the model of words.

A label's text is its name, its description, and in brackets the names of the labels right above it:
`pear (pome fruit)`. A name without a letter is a bare number or id, a web address is an id; neither
is used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from glocal.errors import ConfigError, Remedy
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable

_LETTER = re.compile(r"[^\W\d_]")


def telling_name(name: str) -> str:
    """Return a name, or an empty string if it has no letter or is a web address."""
    return name if _LETTER.search(name) and "://" not in name else ""


def names_labels(table: LabelTable | None) -> bool:
    """Return whether a label table has a name that can be read."""
    return table is not None and any(map(telling_name, table.names))


def all_names(labels: LabelSpace) -> list[list[str]]:
    """Return the names of each label that can be read: its name and its alternative names."""
    return [
        list(filter(None, map(telling_name, (name, *others))))
        for name, others in zip(labels.names, labels.alt_names, strict=True)
    ]


def label_texts(labels: LabelSpace, table: LabelTable | None = None) -> list[str]:
    """Return the text of each label; an empty string if neither name nor description is known.

    Args:
        labels: The label space.
        table: Names of parents that are not in the label space.

    Raises:
        ConfigError: No label has a text.
    """
    texts = [
        _text(telling_name(name), description, _parent_names(parents, labels, table))
        for name, description, parents in zip(
            labels.names, labels.descriptions, labels.parents, strict=True
        )
    ]
    if not any(texts):
        raise ConfigError(
            f"'labels.text' needs names of labels, but none of the {len(labels):,} labels has one "
            f"(the first is called {labels.names[0]!r}); set labels.text=off",
            remedies=[Remedy("label_table", "give their names", value="…")],
        )
    return texts


def _text(name: str, description: str, above: Sequence[str]) -> str:
    own = ". ".join(filter(None, (name, description.strip())))
    return f"{own} ({', '.join(above)})" if own and above else own


def _parent_names(
    parents: Sequence[str], labels: LabelSpace, table: LabelTable | None
) -> list[str]:
    names = []
    for parent in parents:
        if parent in labels.index:
            names.append(telling_name(labels.names[labels.index[parent]]))
        elif table is not None and parent in table:
            names.append(telling_name(table.names[table.index[parent]]))
    return [name for name in names if name]

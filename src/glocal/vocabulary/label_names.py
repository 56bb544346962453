"""Labels of texts that are given by their names rather than their ids.

Annif's `.key` files, and many a spreadsheet, name the subjects of a text. With a label table, a
label that is none of its ids but the name of exactly one of its labels stands for that label.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from glocal.data.corpus import Corpus

if TYPE_CHECKING:
    from glocal.vocabulary.label_space import LabelSpace
    from glocal.vocabulary.label_table import LabelTable


NamedLabels: TypeAlias = "LabelTable | LabelSpace"  # a label table, or the labels of a model


def with_label_ids(corpus: Corpus, labels: NamedLabels) -> tuple[Corpus, list[str]]:
    """Replace labels that are given by name with their ids.

    Names are compared exactly first, then without regard to case. A name that several labels have
    stays as it is.

    Args:
        corpus: Texts with labels.
        labels: The labels that are known.

    Returns:
        The texts with ids, and the names that were replaced.
    """
    given = pc.unique(pc.list_flatten(corpus.table.column("labels"))).to_pylist()
    known = set(labels.ids)
    unknown = [label for label in given if label not in known]
    if not unknown:
        return corpus, []
    exact = _only(zip(labels.names, labels.ids, strict=True))
    loose = _only(
        (name.casefold(), id_) for name, id_ in zip(labels.names, labels.ids, strict=True)
    )
    ids = {label: exact.get(label) or loose.get(label.casefold()) for label in unknown}
    ids = {label: id_ for label, id_ in ids.items() if id_}
    if not ids:
        return corpus, []
    rows = [list(dict.fromkeys(ids.get(x) or x for x in row)) for row in corpus.labels()]
    column = corpus.table.schema.get_field_index("labels")
    table = corpus.table.set_column(column, "labels", pa.array(rows, pa.list_(pa.string())))
    replaced = Corpus(table, source=corpus.source, skipped=corpus.skipped)
    replaced.detected = corpus.detected
    return replaced, list(ids)


def _only(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the id of each name; names of several labels have an empty one."""
    found: dict[str, str] = {}
    for name, id_ in pairs:
        found[name] = "" if found.get(name, id_) != id_ else id_
    return found

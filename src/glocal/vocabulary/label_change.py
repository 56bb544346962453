"""A change of the labels a trained model knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glocal.data.corpus import Corpus
from glocal.errors import DataError, did_you_mean
from glocal.vocabulary.label_space import DESCRIBED, LabelSpace
from glocal.vocabulary.label_table import LabelEntry, LabelTable

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_MOST_OTHERS = 10_000  # training texts that are kept to compare examples with, or four for each


@dataclass(frozen=True)
class LabelChange:
    """The labels before and after a change, and where the new ones come from.

    Args:
        before: The label space before the change.
        after: The label space after it; new labels come last.
        columns: (before, after − new) CSR matrix: the shares of old labels in each label that is
            not new. Each column sums to one.
        examples: Texts that have the new labels; none by default.
        train: Training texts to fit new labels against; by default what the model keeps of them.
        continues: Whether labels that stay learn from the examples as well.
    """

    before: LabelSpace
    after: LabelSpace
    columns: csr_matrix
    examples: Corpus | None = None
    train: Corpus | None = None
    continues: bool = False

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return 0 if self.examples is None else len(self.examples)

    @property
    def n_new(self) -> int:
        """Number of new labels."""
        return len(self.after) - int(self.columns.shape[1])

    @property
    def keeps_columns(self) -> bool:
        """Whether every label from before stays as it is, in its place."""
        shares, n_labels = self.columns, len(self.before)
        if shares.shape[1] != n_labels or shares.nnz != n_labels:
            return False
        return bool((shares.indices == np.arange(n_labels)).all() and (shares.data == 1).all())

    @cached_property
    def example_labels(self) -> Any:
        """(examples, new) CSR matrix of the new labels that each example has."""
        return self.known_labels(self.examples)[:, len(self.after) - self.n_new :]

    def known_labels(self, corpus: Corpus | None) -> Any:
        """Return (texts, after) the labels of texts as a CSR matrix of ones."""
        from scipy.sparse import csr_matrix

        if corpus is None:
            return csr_matrix((0, len(self.after)), dtype=np.float32)
        return self.after.encode(corpus)[:, : len(self.after)]


def added(
    labels: LabelSpace,
    table: LabelTable,
    *,
    examples: Corpus | None = None,
    train: Corpus | None = None,
) -> LabelChange:
    """Return the change that adds the labels of a table.

    Raises:
        DataError: A label exists already, or an example has a label that is neither new nor known.
    """
    known = [id_ for id_ in table.ids if id_ in labels.index]
    if known:
        raise DataError(
            f"{_listed(known)} already in the model; remove {_them(known)} from the list",
            path=table.source,
        )
    if examples is not None:
        _check_examples(labels, table, examples)
    both: dict[str, Any] = {c: [*getattr(labels, c), *getattr(table, c)] for c in DESCRIBED}
    counts = np.concatenate([labels.counts, _counts(table.ids, examples)])
    after = replace(labels, **both, counts=counts, n_added=labels.n_added + len(table))
    columns = _shares(labels, range(len(labels)))
    change = LabelChange(labels, after, columns, examples, _others(train, examples))
    return replace(change, train=_some(change.train, max(_MOST_OTHERS, 4 * change.n_examples)))


def _others(train: Corpus | None, examples: Corpus | None) -> Corpus | None:
    """Return training texts that are not among the examples, whose labels replace theirs."""
    if train is None or examples is None:
        return train
    import pyarrow.compute as pc

    shown = examples.table.column("text").combine_chunks()
    same = pc.is_in(train.table.column("text"), value_set=shown).to_numpy()
    return train.take(np.flatnonzero(~same)) if same.any() else train


def _some(train: Corpus | None, most: int) -> Corpus | None:
    """Return at most this many training texts, drawn at random: no expert compares with more."""
    if train is None or len(train) <= most:
        return train
    return train.take(np.sort(np.random.default_rng(0).permutation(len(train))[:most]))


def continued(
    labels: LabelSpace,
    examples: Corpus,
    *,
    table: LabelTable | None = None,
    train: Corpus | None = None,
) -> LabelChange:
    """Return the change by which a model learns further texts, and the new labels they have.

    Args:
        labels: The labels of the model.
        examples: The further texts.
        table: Names, descriptions and parents of labels.
        train: Texts the model was trained on; by default what it keeps of them.

    Raises:
        DataError: No text has a label.
    """
    ids = sorted({id_ for row in examples.labels() for id_ in row} - set(labels.ids))
    known = LabelTable([], []) if table is None else table
    entries = [known.get(id_) or LabelEntry(id_, id_) for id_ in ids]
    change = added(
        labels, LabelTable.from_entries(entries, source=examples.source), examples=examples
    )
    counts = _counts(labels.ids, examples)
    if not counts.any() and not ids:
        raise DataError(
            f"none of the {len(examples)} texts has labels to learn; check the labels column",
            path=examples.source,
        )
    after = change.after
    after.counts[: len(labels)] += counts
    # From now on all labels are trained alike.
    after = replace(after, n_documents=after.n_documents + len(examples), n_added=0)
    # Labels look for texts of their own among all of them.
    return replace(change, after=after, train=_others(train, examples), continues=True)


def removed(labels: LabelSpace, ids: Sequence[str]) -> LabelChange:
    """Return the change that removes labels.

    Raises:
        DataError: A label is not in the model, or none would be left.
    """
    gone = set(_known(labels, ids))
    kept = [place for place in range(len(labels)) if place not in gone]
    if not kept:
        raise DataError(f"all {len(labels)} labels would be removed; a model needs at least one")
    return LabelChange(labels, _taken(labels, kept), _shares(labels, kept))


def renamed(labels: LabelSpace, ids: Mapping[str, str], names: Mapping[str, str]) -> LabelChange:
    """Return the change that gives labels other ids and names.

    Args:
        labels: The labels.
        ids: New id of each old id.
        names: New names by old id.

    Raises:
        DataError: A label is not in the model, a new id is already another label's, or every label
            has its new id and name already.
    """
    _known(labels, [*ids, *names])
    same = [old for old, new in ids.items() if old == new]
    if len(same) == len(ids) and all(
        labels.names[labels.index[id_]] == name for id_, name in names.items()
    ):
        raise DataError(
            f"{_listed(list(dict.fromkeys([*same, *names])))} called so already; give another id "
            "or name"
        )
    new_ids = [ids.get(id_, id_) for id_ in labels.ids]
    taken = [id_ for id_ in dict.fromkeys(ids.values()) if new_ids.count(id_) > 1]
    if taken:
        raise DataError(f"{_listed(taken)} already in the model; choose another id, or merge")
    after = replace(
        labels,
        ids=new_ids,
        names=[
            names.get(id_, ids.get(id_, name) if name == id_ else name)
            for id_, name in zip(labels.ids, labels.names, strict=True)
        ],
        parents=[tuple(ids.get(p, p) for p in above) for above in labels.parents],
    )
    return LabelChange(labels, after, _shares(labels, range(len(labels))))


def merged(labels: LabelSpace, ids: Sequence[str], into: str) -> LabelChange:
    """Return the change that merges labels into another one.

    The label that is left is scored by the mean of all of them, weighted by their training texts,
    and takes their names as other names.

    Raises:
        DataError: A label is not in the model, or is to be merged into itself.
    """
    if into in ids:
        raise DataError(f"the label {into!r} cannot be merged into itself; name other labels")
    (target,), gone = _known(labels, [into]), _known(labels, ids)
    kept = [place for place in range(len(labels)) if place not in set(gone)]
    together = [target, *gone]
    after = _taken(labels, kept)
    place = kept.index(target)
    after.counts[place] = labels.counts[together].sum()
    names = (
        n for t in gone for n in (labels.names[t], *labels.alt_names[t]) if n not in labels.index
    )
    own = {labels.names[target]}
    after.alt_names[place] = tuple(
        name for name in dict.fromkeys([*labels.alt_names[target], *names]) if name not in own
    )
    weights = np.maximum(labels.counts[together], 1).astype(np.float64)
    shares = _shares(labels, kept).tolil()
    shares[together, place] = (weights / weights.sum())[:, None]
    return LabelChange(labels, after, shares.tocsr().astype(np.float32))


def _taken(labels: LabelSpace, kept: Sequence[int]) -> LabelSpace:
    some: dict[str, Any] = {c: [getattr(labels, c)[place] for place in kept] for c in DESCRIBED}
    counts, n_added = np.array(labels.counts)[list(kept)], int(labels.added[list(kept)].sum())
    return replace(labels, **some, counts=counts, n_added=n_added)


def _shares(labels: LabelSpace, kept: Sequence[int]) -> Any:
    from scipy.sparse import csr_matrix

    ones = np.ones(len(kept), np.float32)
    return csr_matrix((ones, (list(kept), np.arange(len(kept)))), (len(labels), len(kept)))


def _known(labels: LabelSpace, ids: Sequence[str]) -> list[int]:
    for id_ in ids:
        if id_ not in labels.index:
            raise DataError(
                f"there is no label {id_!r} in the model{did_you_mean(id_, labels.ids)}"
            )
    return [labels.index[id_] for id_ in dict.fromkeys(ids)]


def _check_examples(labels: LabelSpace, table: LabelTable, examples: Corpus) -> None:
    for document in examples.documents():
        for label in document.labels:
            if label not in table and label not in labels.index:
                raise DataError(
                    f"the example {document.id!r} has the label {label!r}, which is neither new "
                    "nor in the model; add it, or remove it from the example",
                    path=examples.source,
                )


def _counts(ids: Sequence[str], examples: Corpus | None) -> NDArray[np.int64]:
    rows = () if examples is None else examples.labels()
    counts = Counter(label for row in rows for label in set(row))
    return np.array([counts[id_] for id_ in ids], dtype=np.int64)


def _listed(ids: Sequence[str]) -> str:
    if len(ids) == 1:
        return f"the label {ids[0]!r} is"
    shown = ", ".join(repr(id_) for id_ in ids[:3])
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return f"the labels {shown}{more} are"


def _them(ids: Sequence[str]) -> str:
    return "it" if len(ids) == 1 else "them"

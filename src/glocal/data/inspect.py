"""A report on the contents and problems of a data set.

- For each split: documents, labels, labels per document, lengths, duplicates, every bad row.
- Also for each split: the number of labels in each frequency band, and the label frequency curve
  (rank against number of texts, as in APLC-XLNet's Figure 2).
- Also for each split: what was detected about its files, and warnings about its labels.
- Between each later split and the first: texts and near-duplicates that occur in both, labels
  without training texts.

Reading does not stop at the first problem: all bad rows are listed with file and line, and so are
the problems of a label table, if one is given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glocal.arrays import Ints
from glocal.data.corpus import Corpus
from glocal.data.duplicates import text_keys
from glocal.data.label_checks import label_warnings, missing_table_hint
from glocal.data.readers import read_corpus
from glocal.errors import DataError

if TYPE_CHECKING:
    from glocal.vocabulary.bands import Bands
    from glocal.vocabulary.label_table import LabelTable

PERCENTILES = (5, 25, 50, 75, 95, 99)
CURVE_POINTS = 60


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of a number over documents.

    Args:
        mean: Its mean.
        min: Its smallest value.
        max: Its largest value.
        percentiles: Values by percentile.
    """

    mean: float
    min: int
    max: int
    percentiles: dict[int, float]

    @classmethod
    def of(cls, values: NDArray[np.integer]) -> Distribution:
        """Summarise an array that is not empty."""
        points = np.percentile(values, PERCENTILES)
        named = {p: round(float(v), 1) for p, v in zip(PERCENTILES, points, strict=True)}
        return cls(round(float(values.mean()), 2), int(values.min()), int(values.max()), named)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReport:
    """A report on one split.

    Args:
        source: Its file or name.
        n_documents: Usable documents.
        n_without_labels: Usable documents without labels.
        n_labels: Distinct labels.
        n_labels_once: Labels of a single document.
        labels_per_document: Distribution of the number of labels.
        words: Distribution of the number of words, separated by white space.
        characters: Distribution of the number of characters.
        n_duplicates: Documents with the text of an earlier one.
        n_near_duplicates: Documents that are near-duplicates of an earlier one.
        bands: Number of labels in each frequency band.
        curve: Points (rank, number of documents) of the label frequency curve, from rank 1.
        problems: Every row that could not be used.
        detected: For each file, its format, encoding, fields and separators.
    """

    source: str
    n_documents: int
    n_without_labels: int
    n_labels: int
    n_labels_once: int
    labels_per_document: Distribution
    words: Distribution
    characters: Distribution
    n_duplicates: int
    n_near_duplicates: int
    bands: dict[str, int] = field(default_factory=dict)
    curve: list[tuple[int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    detected: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapReport:
    """The overlap of a later split with the first.

    Args:
        train: The first split.
        other: The later one.
        n_duplicates: Documents of the later split whose text is in the first.
        n_near_duplicates: Documents of the later split with a near-duplicate in the first.
        n_unseen_labels: Labels of the later split that the first does not have.
        n_unseen_uses: Number of times such labels are used.
    """

    train: str
    other: str
    n_duplicates: int
    n_near_duplicates: int
    n_unseen_labels: int
    n_unseen_uses: int


@dataclass(frozen=True, slots=True)
class InspectReport:
    """A report on a data set.

    Args:
        splits: One report for each split, the training part first.
        overlaps: One report for each later split against the first.
        label_problems: Problems of the label table, and labels it does not have.
        warnings: Labels that look wrong, and a label table that is missing.
    """

    splits: list[SplitReport]
    overlaps: list[OverlapReport]
    label_problems: list[str] = field(default_factory=list)
    warnings: list[DataError] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Every row of every split that could not be used, and the problems of the label table."""
        of_rows = [problem for split in self.splits for problem in split.problems]
        return of_rows + self.label_problems

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain objects for JSON."""
        plain = dataclasses.asdict(dataclasses.replace(self, warnings=[]))
        return {**plain, "warnings": [warning.message for warning in self.warnings]}


@dataclass(frozen=True, slots=True)
class _Facts:
    """A split's report, and the keys it is compared with others by."""

    report: SplitReport
    exact: NDArray[np.void]
    near: NDArray[np.void]
    labels: pa.ChunkedArray


def inspect_corpora(
    corpora: Sequence[Corpus | str | Path],
    *,
    bands: Bands | None = None,
    label_table: LabelTable | None = None,
    **read_options: Any,
) -> InspectReport:
    """Describe one or several splits of a data set.

    Args:
        corpora: The splits, as corpora or files; the first is the training part.
        bands: Frequency bands to count labels by.
        label_table: A label table to check as well.
        read_options: How to read files; see `read_corpus`.

    Raises:
        DataError: A file cannot be read at all, or has no usable row.
    """
    read = [
        item
        if isinstance(item, Corpus)
        else read_corpus(item, skip_bad_rows=True, unique_ids=True, announce=False, **read_options)
        for item in corpora
    ]
    facts = [_facts(corpus, bands) for corpus in read]
    overlaps = [_overlap(facts[0], other) for other in facts[1:]]
    label_problems = [] if label_table is None else _label_problems(facts, label_table)
    warnings = [warning for corpus in read for warning in label_warnings(corpus)]
    if label_table is None and (hint := missing_table_hint(read[0])) is not None:
        warnings.append(hint)
    return InspectReport([fact.report for fact in facts], overlaps, label_problems, warnings)


def _facts(corpus: Corpus, bands: Bands | None) -> _Facts:
    flat = pc.list_flatten(corpus.table.column("labels"))
    counts = np.sort(pc.value_counts(flat).field("counts").to_numpy())[::-1]
    label_lengths = pc.list_value_length(corpus.table.column("labels")).to_numpy()
    texts = (text for block in corpus.iter_texts() for text in block)
    words = np.fromiter((len(text.split()) for text in texts), np.int64, len(corpus))
    exact, near = text_keys(corpus, near=False), text_keys(corpus, near=True)
    report = SplitReport(
        source=corpus.source,
        n_documents=len(corpus),
        n_without_labels=int((label_lengths == 0).sum()),
        n_labels=len(counts),
        n_labels_once=int((counts == 1).sum()),
        labels_per_document=Distribution.of(label_lengths),
        words=Distribution.of(words),
        characters=Distribution.of(pc.utf8_length(corpus.table.column("text")).to_numpy()),
        n_duplicates=len(exact) - len(np.unique(exact)),
        n_near_duplicates=len(near) - len(np.unique(near)),
        bands=_band_sizes(counts, bands),
        curve=_curve(counts),
        problems=corpus.skipped,
        detected=corpus.detected,
    )
    return _Facts(report, exact, near, flat)


def _label_problems(facts: list[_Facts], table: LabelTable) -> list[str]:
    known = pa.array(table.ids, pa.string())
    problems = table.problems()
    for fact in facts:
        used = fact.labels.unique()
        nameless = used.filter(pc.invert(pc.is_in(used, value_set=known))).to_pylist()
        problems += [
            f"{fact.report.source}: the label {label!r} is not in the label table {table.source}"
            for label in sorted(nameless)
        ]
    return problems


def _band_sizes(counts: Ints, bands: Bands | None) -> dict[str, int]:
    if bands is None:
        return {}
    sizes = np.bincount(bands.assign(counts), minlength=len(bands.names))
    return dict(zip(bands.names, sizes.tolist(), strict=True))


def _curve(counts: Ints) -> list[tuple[int, int]]:
    """Return points of the descending `counts`, evenly spaced in the logarithm of the rank."""
    if not len(counts):
        return []
    ranks = np.unique(np.geomspace(1, len(counts), CURVE_POINTS).round().astype(np.int64))
    return [(int(rank), int(counts[rank - 1])) for rank in ranks]


def _overlap(train: _Facts, other: _Facts) -> OverlapReport:
    unseen = other.labels.filter(pc.invert(pc.is_in(other.labels, value_set=train.labels.unique())))
    return OverlapReport(
        train=train.report.source,
        other=other.report.source,
        n_duplicates=int(np.isin(other.exact, train.exact).sum()),
        n_near_duplicates=int(np.isin(other.near, train.near).sum()),
        n_unseen_labels=len(unseen.unique()),
        n_unseen_uses=len(unseen),
    )

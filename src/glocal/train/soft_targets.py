"""Soft targets: a teacher's probabilities of its best labels, for every text of a student.

They are kept sparse, a few labels for each text. A labelled text's target mixes them with its gold
labels, `(1 − w) y + w p`, which is the same loss as the two apart, since the BCE is linear in its
targets. A text without labels has the teacher's probabilities alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from glocal.arrays import Floats32, Ints
from glocal.config import Recipe
from glocal.config.published_systems import CLUSTERS, PUBLISHED_SYSTEMS
from glocal.data.corpus import Corpus
from glocal.errors import ConfigError
from glocal.vocabulary.label_space import LabelSpace


@dataclass(frozen=True, eq=False)
class SoftTargets:
    """A teacher's probabilities for the training texts, then for texts without labels.

    Attributes:
        label_ids: Ids of the teacher's labels.
        labels: (n, m) the teacher's best labels of each text, −1 for none.
        probabilities: (n, m) their probabilities.
        unlabelled: Further texts, the last of the n; None without any.
        weight: Weight w of the teacher beside the gold labels.
        facts: About the teacher, stored with the student.
    """

    label_ids: Sequence[str]
    labels: Ints
    probabilities: Floats32
    unlabelled: Corpus | None = None
    weight: float = 0.5
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_labelled(self) -> int:
        """Number of training texts."""
        return len(self.labels) - (0 if self.unlabelled is None else len(self.unlabelled))

    def take(self, kept: Ints) -> SoftTargets:
        """Return the targets of some training texts and of all texts without labels."""
        rows = np.concatenate([kept, np.arange(self.n_labelled, len(self.labels))])
        return replace(self, labels=self.labels[rows], probabilities=self.probabilities[rows])

    def joined(self, train: Corpus) -> Corpus:
        """Return the training texts followed by the texts without labels."""
        assert len(train) == self.n_labelled, "the teacher has scored these texts"
        if self.unlabelled is None:
            return train
        table = self.unlabelled.table
        nothing = pa.array([[]] * len(table), train.table.schema.field("labels").type)
        place = table.schema.get_field_index("labels")
        blank = table.set_column(place, train.table.schema.field("labels"), nothing)
        return Corpus(pa.concat_tables([train.table, blank]), source=train.source)

    def matrix(self, labels: LabelSpace, gold: Any) -> Any:
        """Return the targets of all texts, a float32 CSR matrix (n, L).

        Args:
            labels: The student's label space, with the same labels as the teacher's.
            gold: CSR matrix (n, columns ≥ L) of gold labels, without any for unlabelled texts.
        """
        from scipy.sparse import csr_matrix, diags

        check_same_labels(self.label_ids, labels)
        column = np.array([labels.index[label] for label in self.label_ids], dtype=np.int64)
        there = self.labels >= 0
        rows, places = np.nonzero(there)
        soft = csr_matrix(
            (self.probabilities[there], (rows, column[self.labels[rows, places]])),
            shape=(len(self.labels), len(labels)),
        )
        weights = np.where(np.arange(len(self.labels)) < self.n_labelled, self.weight, 1.0)
        mixed = diags(weights) @ soft + diags(1.0 - weights) @ gold[:, : len(labels)]
        return csr_matrix(mixed, dtype=np.float32)


def check_same_labels(teacher: Sequence[str], student: LabelSpace) -> None:
    """Check that a teacher and a student know the same labels.

    Raises:
        ConfigError: They do not; names some of the difference.
    """
    apart = {
        "only to the teacher": sorted(set(teacher) - set(student.ids)),
        "only to the training texts": sorted(set(student.ids) - set(teacher)),
    }
    parts = [
        f"{len(ids):,} of the labels are known {where} (such as {', '.join(ids[:3])})"
        for where, ids in apart.items()
        if ids
    ]
    if parts:
        raise ConfigError(
            f"teacher and student have different labels: {'; '.join(parts)}. Give the texts the "
            "teacher was trained on, and the same label table and labels.min_count; texts with "
            "other labels can be given as texts without labels"
        )


def check_student(recipe: Recipe) -> None:
    """Check that a recipe's losses can learn soft targets.

    Raises:
        ConfigError: They cannot.
    """
    clustered = PUBLISHED_SYSTEMS[recipe.system].family == CLUSTERS
    rules = {
        "the recipe has no network, and its words model learns gold labels alone; choose one "
        "with an encoder, such as balanced": recipe.reads_words_alone,
        "label clusters (system aplc-xlnet, document.head=aplc) cannot learn a teacher's "
        "probabilities; choose document.head=flat or another recipe, such as balanced": (
            clustered or recipe.document.head == "aplc"
        ),
        "labels of picked clusters (candidates.mode=clusters) cannot learn a teacher's "
        "probabilities; set candidates.mode=full or shortlist": (
            recipe.candidates.mode == "clusters"
        ),
    }
    ConfigError.raise_any([problem for problem, breaks in rules.items() if breaks])

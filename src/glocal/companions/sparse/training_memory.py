"""The part of the training that a sparse model keeps; read with every model: imports little."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.sparse_rows import as_csr

FEWEST_TEXTS = 2  # of a label when a scaling is fitted; rarer labels are treated alike


def rarity(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how rare labels are by their training texts: 1 for up to two, 0.1 for two hundred."""
    rare: NDArray[np.float64] = np.sqrt(FEWEST_TEXTS / np.maximum(counts, FEWEST_TEXTS))
    return rare


def frequency_terms(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return (L, 2) the logarithm of each label's texts and its square."""
    logs = np.log(np.maximum(counts, FEWEST_TEXTS))
    return np.stack([logs, logs**2], axis=1)


@dataclass(frozen=True)
class Scaling:
    """Turns margins into log-odds.

        slope · margin + likeness · (likeness to the label's mean text) + constant

    Slope and likeness of a label lie between those of frequent and of rare labels (`rarity`). At a
    margin of -1, which training starts from, the slope does not count.

    Args:
        slope: Factor of the margin, of frequent labels.
        shift: Constant added to it.
        likeness: Factor of the likeness to a label's mean text, of frequent labels.
        frequency: Factors of the logarithm of a label's texts and its square.
        rare_slope: Factor of the margin of the rarest labels; None for that of all others.
        rare_likeness: The same for the likeness.
    """

    slope: float
    shift: float
    likeness: float = 0.0
    frequency: tuple[float, float] = (0.0, 0.0)
    rare_slope: float | None = None
    rare_likeness: float | None = None

    def slopes(self, counts: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the factor of each label's margin, by its number of training texts."""
        return _between(self.slope, self.rare_slope, counts)

    def likenesses(self, counts: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the factor of each label's likeness, by its number of training texts."""
        return _between(self.likeness, self.rare_likeness, counts)

    def constants(self, counts: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return what is added to each label's log-odds, by its number of training texts."""
        often = frequency_terms(counts) @ np.array(self.frequency)
        constants: NDArray[np.float32] = (self.shift + often).astype(np.float32)
        return constants + (self.slopes(counts) - np.float32(self.slope))


def _between(frequent: float, rare: float | None, counts: NDArray[np.int64]) -> NDArray[np.float32]:
    more = 0.0 if rare is None else rare - frequent
    values: NDArray[np.float32] = (frequent + more * rarity(counts)).astype(np.float32)
    return values


@dataclass(frozen=True)
class LabelledTexts:
    """Features and labels of texts.

    Args:
        features: (n, F) float32 CSR matrix.
        gold: (n, L) CSR matrix of ones.
    """

    features: Any
    gold: Any

    def __len__(self) -> int:
        return int(self.features.shape[0])

    def as_csr(self) -> LabelledTexts:
        """Return the same texts as scipy's matrices, which the other methods need."""
        return LabelledTexts(as_csr(self.features), as_csr(self.gold))

    def take(self, rows: NDArray[np.int64]) -> LabelledTexts:
        """Return some of the texts."""
        return LabelledTexts(self.features[rows], self.gold[rows])

    def of_labels(self, count: int) -> LabelledTexts:
        """Return the texts with the first labels alone."""
        return LabelledTexts(self.features, self.gold[:, :count])

    def with_labels(self, columns: Any, n_new: int) -> LabelledTexts:
        """Return the texts with other labels; they have none of the new ones.

        Args:
            columns: (L, kept) CSR matrix of shares, see `LabelChange`.
            n_new: Number of labels after those.
        """
        from scipy.sparse import csr_matrix, hstack

        kept = (self.gold @ columns).tocsr()
        kept.data[:] = 1
        none = csr_matrix((len(self), n_new), dtype=np.float32)
        return LabelledTexts(self.features, hstack([kept, none], format="csr", dtype=np.float32))

    def joined(self, others: LabelledTexts) -> LabelledTexts:
        """Return these texts and others after them."""
        from scipy.sparse import vstack

        return LabelledTexts(
            vstack([self.features, others.features], format="csr"),
            vstack([self.gold, others.gold], format="csr"),
        )


@dataclass(frozen=True)
class TrainingMemory:
    """The part of its training that a model keeps, to fit labels that are added later.

    Args:
        margins: Scaling of the trained labels' margins.
        names: Scaling of name matches of labels without texts.
        n_texts: Number of training texts.
        sample: Features of a sample of them, and their labels; it may be empty.
        has_labels: Whether the labels are known; older models keep the features alone.
    """

    margins: Scaling
    names: Scaling
    n_texts: int
    sample: LabelledTexts
    has_labels: bool = True

    def with_texts(self, texts: LabelledTexts, *, size: int) -> TrainingMemory:
        """Return the memory after further texts were learnt, each text as likely kept as others.

        Args:
            texts: The further texts.
            size: Number of texts to keep.
        """
        total = self.n_texts + len(texts)
        n_new = min(len(texts), max(size - len(self.sample), round(size * len(texts) / total)))
        rng = np.random.default_rng([total, 4])
        old = rng.permutation(len(self.sample))[: max(0, size - n_new)]
        new = rng.permutation(len(texts))[: min(n_new, size)]
        kept = self.sample.take(np.sort(old)).joined(texts.take(np.sort(new)))
        return replace(self, n_texts=total, sample=kept)

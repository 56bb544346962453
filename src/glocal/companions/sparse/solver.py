"""Training of linear scorers for many labels at once: squared hinge loss by conjugate gradients.

Each label has its own problem, that of liblinear's L2-loss support vector machine,

    min ½‖w − w₀‖² + ½b² + C Σ max(0, 1 − y (w·(x − μ) + w₀·x + b))²,

with μ the mean of the texts x. All labels of a block share the texts, so that a step is two
products of a sparse matrix with a dense one as wide as the block. For each byte it reads, this does
many times the arithmetic of coordinate descent, which visits one label's texts one by one.

- The solution is a sum of texts, w = w₀ + Σ a x. Everything is computed on the coefficients a,
  (texts, labels), which stay in the processor's cache; there are far more features than texts.
- Subtracting the mean from the texts decouples the bias from frequent words; a dozen steps are then
  enough.
- Directions are Polak and Ribière's. The loss along one is piecewise quadratic: the step
  length comes from a few Newton steps on one number per label, without reading the texts.
- The start is w₀ with bias −1, where a text without the label costs nothing yet.
- Arrays are numpy's, or torch's on a GPU (`device_solver`): the steps below are the same for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

START_BIAS = -1.0
_LINE_STEPS = 3
_TINY = 1e-30
# A label has converged once its squared gradient shrinks by this factor; the rest is rounding.
_CONVERGED = 1e-7
# Features per partial product: one megabyte with 64 labels.
_CHUNK_FEATURES = 4096


class InnerProducts(Protocol):
    """Products with the matrix of inner products of texts, XXᵀ."""

    n_texts: int

    def zeros(self, *shape: int) -> Any:
        """Return an array of zeros of the kind that products are computed with."""

    def __call__(self, factor: Any) -> Any:
        """Return XXᵀ times a factor (n, k)."""


@dataclass(frozen=True)
class Positives:
    """The labels of a block that each text has, as (row, column) pairs of numpy's or torch's."""

    rows: Any
    columns: Any
    n_labels: int

    def flip(self, values: Any) -> None:
        """Negate `values` (texts, labels) in place where a text has the label."""
        values[self.rows, self.columns] *= -1


class TextProducts:
    """Products with the matrix of inner products of texts, XXᵀ, which is never stored.

    The matrix is stored feature by feature, so that the factor, which is read out of order, fits
    into the cache. A feature of a single text only adds to that text's product with itself.

    Args:
        features: (n, F) float32 CSR matrix of the texts.

    Attributes:
        by_feature: (F, n) the same matrix feature by feature.
    """

    def __init__(self, features: Any) -> None:
        self.by_feature = features.T.tocsr()
        self.n_texts = features.shape[0]
        self._own, shared = split_features(self.by_feature)
        self._keep(shared)

    def _keep(self, shared: Any) -> None:
        """Keep the features that several texts have, a CSR matrix (shared, n)."""
        self._chunks = [
            shared[start : start + _CHUNK_FEATURES]
            for start in range(0, shared.shape[0], _CHUNK_FEATURES)
        ]

    def zeros(self, *shape: int) -> Floats:
        """Return an array of zeros."""
        return np.zeros(shape, np.float32)

    def __call__(self, factor: Floats) -> Floats:
        """Return XXᵀ times a factor (n, k)."""
        product = self._own * factor
        for chunk in self._chunks:
            product += chunk.T @ (chunk @ factor)
        return product


def split_features(by_feature: Any) -> tuple[Floats, Any]:
    """Return the parts of XXᵀ: of features of a single text, and of the others.

    Args:
        by_feature: (F, n) float32 CSR matrix of the texts, feature by feature.

    Returns:
        (n, 1) squares of each text's own features; the CSR matrix (shared, n) of the features that
        several texts have.
    """
    n_texts = np.diff(by_feature.indptr)
    alone = by_feature.indptr[:-1][n_texts == 1]
    squares = np.bincount(
        by_feature.indices[alone], by_feature.data[alone] ** 2, minlength=by_feature.shape[1]
    )
    return squares.astype(np.float32)[:, None], by_feature[np.flatnonzero(n_texts > 1)]


def solve_block(
    products: InnerProducts,
    positives: Positives,
    *,
    cost: float,
    iterations: int,
    start_scores: Any = None,
) -> tuple[Any, Any]:
    """Train the scorers of a block of labels on the same texts.

    Args:
        products: Products with the texts' inner products.
        positives: The labels of each text.
        cost: SVM cost C.
        iterations: Number of steps.
        start_scores: (n, k) w₀·x; zero by default.

    Returns:
        Coefficients a (n, k), with w = w₀ + Xᵀa, and biases (k,), with scores w·x + b.
    """
    bias = products.zeros(positives.n_labels) + START_BIAS
    slack = _first_slack(products, positives, start_scores)  # 1 − y·score, (n, k)
    state = _Descent(products, positives.n_labels, cost)
    for _ in range(iterations):
        errors = slack.clip(min=0)
        positives.flip(errors)
        errors *= 2 * cost
        along, bias_along = state.direction(errors, bias)
        change = along + bias_along  # of the scores
        change *= -1
        positives.flip(change)  # of y·score
        slope, curvature = state.quadratic(bias)
        length = _line_search(slack, change, cost, slope=slope, curvature=curvature)
        length *= state.open_labels
        state.advance(length)
        bias += length * bias_along
        change *= length
        slack -= change
    return state.coefficients, bias - state.mean_score


@dataclass(frozen=True)
class _Gradient:
    """A gradient of the loss: coefficients of texts, biases, squared length."""

    coefficients: Any  # (n, k)
    bias: Any  # (k,)
    norm: Any  # (k,)


class _Descent:
    """The state of the descent.

    `coefficients` is the current point, `_toward` the direction, `_toward_scores` its centred
    product with the texts, and `_mean_toward` what centring took off. `mean_score` is w·μ of the
    current point without w₀, which the bias absorbs when texts are not centred. `open_labels` marks
    labels that have not converged yet.
    """

    def __init__(self, products: InnerProducts, n_labels: int, cost: float) -> None:
        shape = (products.n_texts, n_labels)
        self._products = products
        self.coefficients = products.zeros(*shape)
        self.open_labels = products.zeros(n_labels) == 0
        # The bias is a feature of value one in every text: scale its direction accordingly.
        self._bias_scale = 1 / (1 + 2 * cost * products.n_texts)
        self._toward, self._toward_scores = products.zeros(*shape), products.zeros(*shape)
        self._bias_toward, self._mean_toward = products.zeros(n_labels), products.zeros(n_labels)
        self.mean_score = products.zeros(n_labels)
        self._last: _Gradient | None = None
        self._first_norm = products.zeros(n_labels)

    def direction(self, errors: Any, bias: Any) -> tuple[Any, Any]:
        """Return the next direction's change of scores and bias; `errors` is overwritten."""
        bias_gradient = errors.sum(axis=0) + bias
        errors += self.coefficients
        errors -= errors.mean(axis=0)
        scores = self._products(errors)
        means = scores.mean(axis=0)
        scores -= means  # of centred texts, since the columns of errors sum to zero
        bias_scaled = bias_gradient * self._bias_scale
        norm = (_dots(errors, scores) + bias_gradient * bias_scaled).clip(min=0)
        gradient = _Gradient(errors, bias_gradient, norm)
        keep = self._share_kept(gradient, scores, bias_scaled)
        for old, new in ((self._toward, errors), (self._toward_scores, scores)):
            old *= keep
            old -= new
        self._bias_toward = keep * self._bias_toward - bias_scaled
        self._mean_toward = keep * self._mean_toward - means
        self._last = gradient
        return self._toward_scores, self._bias_toward

    def _share_kept(self, gradient: _Gradient, scores: Any, bias_scaled: Any) -> Any:
        """Return the share of the last direction that the next one keeps."""
        if self._last is None:
            self._first_norm = gradient.norm
            return gradient.norm * 0
        self.open_labels = gradient.norm > _CONVERGED * self._first_norm
        overlap = _dots(self._last.coefficients, scores) + self._last.bias * bias_scaled
        # Polak-Ribière, kept between 0 and Fletcher-Reeves: near the minimum, where the difference
        # is rounding noise, the former alone can grow without bound.
        change = (gradient.norm - overlap).clip(gradient.norm * 0, gradient.norm)
        return change / self._last.norm.clip(min=_TINY)

    def quadratic(self, bias: Any) -> tuple[Any, Any]:
        """Return the first and second derivative of the regulariser along the direction."""
        slope = _dots(self.coefficients, self._toward_scores) + bias * self._bias_toward
        curvature = _dots(self._toward, self._toward_scores) + self._bias_toward**2
        return slope, curvature

    def advance(self, length: Any) -> None:
        """Move this far along the direction."""
        self.coefficients += length * self._toward
        self.mean_score += length * self._mean_toward


def _first_slack(products: InnerProducts, positives: Positives, start_scores: Any) -> Any:
    scores = products.zeros(products.n_texts, positives.n_labels)
    scores += START_BIAS
    if start_scores is not None:
        scores += start_scores
    positives.flip(scores)  # −y·score
    scores += 1
    return scores


def _line_search(slack: Any, change: Any, cost: float, *, slope: Any, curvature: Any) -> Any:
    """Return the step length of each label, where the derivative of its loss is zero."""
    length = slope * 0
    for _ in range(_LINE_STEPS):
        active = change * (slack > length * change)
        towards = 2 * cost * _dots(active, slack) - slope
        resistance = 2 * cost * _dots(active, change) + curvature
        length = towards / resistance.clip(min=_TINY)
    return length


def _dots(left: Any, right: Any) -> Any:
    """Return the dot product of each column of `left` with that of `right`."""
    if isinstance(left, np.ndarray):
        return np.einsum("ij,ij->j", left, right)
    return (left * right).sum(0)

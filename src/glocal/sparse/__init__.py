"""The sparse linear model: words and word pairs weighed by TF-IDF, one linear scorer per label."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glocal._lazy import lazy_names

if TYPE_CHECKING:
    from glocal.sparse.explain import Contribution
    from glocal.sparse.model import SparseModel
    from glocal.sparse.vectoriser import Vectoriser

_MODULES = {
    "Contribution": "explain",
    "SparseModel": "model",
    "Vectoriser": "vectoriser",
}

__all__ = ["Contribution", "SparseModel", "Vectoriser"]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)

"""The built-in data sets, by name.

A split is named like a file, `icd10cm:train`, and a label table by the set's name, `icd10cm`, so
that they can be used wherever a path is expected. A file of the same name takes precedence.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

from glocal.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True, slots=True)
class BuiltinData:
    """A data set that comes with the library.

    Args:
        train: Training documents.
        dev: Documents to choose settings by.
        test: Documents to report on.
        label_rows: The rows of its label table: `id`, `name` and `parents`.
    """

    train: Corpus
    dev: Corpus
    test: Corpus
    label_rows: list[dict[str, Any]]


def _icd10cm(level: Literal["category", "full"]) -> BuiltinData:
    from glocal.data.icd10cm import load_icd10cm

    return load_icd10cm(level=level)


_LOADERS: dict[str, Callable[[], BuiltinData]] = {
    "icd10cm": partial(_icd10cm, "category"),
    "icd10cm-full": partial(_icd10cm, "full"),
}

BUILTIN_NAMES = tuple(_LOADERS)


@lru_cache(maxsize=2)
def load_builtin(name: str) -> BuiltinData:
    """Load a built-in data set.

    Args:
        name: One of `BUILTIN_NAMES`.

    Raises:
        DataError: There is no such set.
    """
    if name not in _LOADERS:
        hint = did_you_mean(name, BUILTIN_NAMES)
        raise DataError(
            f"no built-in data set '{name}'{hint}; there are {', '.join(BUILTIN_NAMES)}"
        )
    return _LOADERS[name]()


def builtin_corpus(path: str) -> Corpus | None:
    """Return the split of a built-in set that `path` names, or None."""
    name, colon, split = path.partition(":")
    if not colon or name not in _LOADERS or os.path.exists(path):
        return None
    if split not in SPLITS:
        raise DataError(
            f"{path!r} names no split of the built-in set {name!r}; expected "
            f"{', '.join(f'{name}:{known}' for known in SPLITS)}"
        )
    corpus: Corpus = getattr(load_builtin(name), split)
    return corpus


def builtin_label_rows(path: str) -> list[dict[str, Any]] | None:
    """Return the label rows of the built-in set that `path` names, or None."""
    if path not in _LOADERS or os.path.exists(path):
        return None
    return load_builtin(path).label_rows

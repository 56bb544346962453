"""Names of labels that have training texts, found in texts.

Training starts from the words of a label's name, but their weight in a text falls with the length
of the text, and the words of a rare label are weighed on few texts. A name that is found as a whole
is evidence of its own. It counts for less the more texts have it: `history` is in many titles that
are not about it, `beekeeping` is in few.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.name_features import name_matcher
from glocal.companions.sparse.name_matcher import NameMatcher
from glocal.companions.sparse.threads import ordered_map
from glocal.companions.sparse.training_memory import rarity
from glocal.companions.sparse.vectoriser import Vectoriser
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_text import all_names

_CHUNK_TEXTS = 64


def found_names(
    vectoriser: Vectoriser,
    labels: LabelSpace,
    features: Any,
    counts: NDArray[np.int64],
    *,
    threads: int = 1,
) -> NameMatcher:
    """Return the matcher of the names of labels with training texts.

    Args:
        vectoriser: Turns names into features.
        labels: The labels and their names.
        features: (n, F) CSR matrix of the training texts.
        counts: (L,) how many of them have each label.
        threads: Number of threads.

    Returns:
        The matcher; the slope of a label is `rarity` of the training texts that have its name.
    """
    own = [names if n else [] for names, n in zip(all_names(labels), counts, strict=True)]
    matcher = name_matcher(vectoriser, own, trained=True)

    def found(start: int) -> NDArray[np.int64]:
        _, chosen, _ = matcher.gains(features[start : start + _CHUNK_TEXTS])
        return np.bincount(chosen, minlength=len(labels))

    n_found = np.zeros(len(labels), np.int64)
    for some in ordered_map(found, range(0, features.shape[0], _CHUNK_TEXTS), threads=threads):
        n_found += some
    return replace(matcher, slopes=rarity(n_found[matcher.labels]).astype(np.float32))

"""The probabilities of a teacher for every text of a student, computed once and cached.

Texts are scored in parts, and each part is an entry of the cache: an interrupted run continues
after the last finished part, and another student of the same teacher finds all of them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from glocal._version import __version__
from glocal.arrays import Floats32, Ints
from glocal.data.cache import Arrays, cached_arrays
from glocal.data.checksums import file_checksum, read_checksums
from glocal.data.corpus import Corpus
from glocal.predict.ensemble import ensemble_labels, ensemble_predict
from glocal.predict.predictor import Predictor
from glocal.progress import Progress, report
from glocal.ranking.predictions import Predictions
from glocal.vocabulary.label_space import LabelSpace

_PART = 8192  # texts of one cache entry


class TeacherScorer:
    """One trained model, or several that vote.

    Args:
        paths: Model directories with the same labels.
        device: The device to compute on.
        batch_size: Texts per batch.

    Attributes:
        labels: The label space.

    Raises:
        ModelError: A directory is missing or damaged, or their labels differ.
    """

    def __init__(
        self, paths: Sequence[str | Path], *, device: str = "auto", batch_size: int = 64
    ) -> None:
        self.paths = [Path(path) for path in paths]
        self.labels: LabelSpace = ensemble_labels(self.paths)
        self.device, self.batch_size = device, batch_size

    def best_labels(
        self, corpus: Corpus, *, top: int, progress: Progress | None = None
    ) -> tuple[Ints, Floats32]:
        """Return the best labels of each text (n, top), −1 for none, and their probabilities.

        Args:
            corpus: The texts.
            top: Labels per text; cut at the number of labels.
            progress: Called with (texts done, texts to do).
        """
        width = min(top, len(self.labels))
        found: list[Arrays] = []
        for start in range(0, len(corpus), _PART):
            part = np.arange(start, min(start + _PART, len(corpus)))
            found.append(self._part(corpus, part, width))
            report(progress, int(part[-1]) + 1, len(corpus))
        labels = np.concatenate([arrays["labels"] for arrays in found])
        return labels.astype(np.int64), np.concatenate([arrays["scores"] for arrays in found])

    def _part(self, corpus: Corpus, part: Ints, width: int) -> Arrays:
        def fill(arrays: Arrays) -> None:
            scored = self._score(corpus.take(part), width)
            arrays["labels"][:], arrays["scores"][:] = scored.indices, scored.scores

        key = [__version__, self._identity, corpus.fingerprint(), int(part[0]), width]
        shape = (len(part), width)
        spec = {"labels": (np.int32, shape), "scores": (np.float32, shape)}
        return cached_arrays("teacher-scores", key, spec, fill)

    def _score(self, corpus: Corpus, width: int) -> Predictions:
        if len(self.paths) == 1:
            return self._alone.predict(corpus.texts(), k=width)
        return ensemble_predict(
            self.paths, corpus, k=width, device=self.device, batch_size=self.batch_size
        )

    @cached_property
    def _alone(self) -> Predictor:
        import torch

        # Targets need no more digits, and a GPU gives these in a fraction of the time.
        fast = self.device != "cpu" and torch.cuda.is_available()
        return Predictor.load(
            self.paths[0],
            device=self.device,
            batch_size=self.batch_size,
            precision="bf16" if fast else "fp32",
        )

    @cached_property
    def _identity(self) -> list[dict[str, str]]:
        """The checksums of all files that the scores depend on."""
        return [dict(read_checksums(path) or _checksums(path)) for path in self.paths]


def _checksums(folder: Path) -> dict[str, str]:
    """Compute the checksums of a model that has none, as older versions wrote it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): file_checksum(path) for path in files}

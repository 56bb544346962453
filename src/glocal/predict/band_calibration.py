"""Calibration of probabilities by frequency band: what is said of rare and unseen labels.

The probabilities are those that users see: of the labels among the best of each text, whatever
their band. Most of them are small, so the error over all of them says little about the few that
become tags; probabilities of 0.1 and more are therefore shown as well.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.data.corpus import Corpus
from glocal.metrics.ranking import judge
from glocal.metrics.reliability import expected_calibration_error
from glocal.predict.band_ranking import BANDS, label_bands
from glocal.progress import Progress
from glocal.vocabulary.bands import Bands

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor

_DEPTH = 100  # labels of each text that are looked at
LIKELY = 0.1


@dataclass(frozen=True)
class BandCalibration:
    """Probabilities of the labels of one band against what was observed.

    Attributes:
        band: Name of the band.
        n: Number of probabilities: of labels of the band among the best 100 of a text.
        error: Their calibration error.
        n_likely: Number of them that are 0.1 or more.
        mean: Mean of these; NaN without any.
        observed: Share of these labels that is gold; NaN without any.
    """

    band: str
    n: int
    error: float
    n_likely: int
    mean: float
    observed: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {k: None if v != v else v for k, v in asdict(self).items()}


def calibration_by_band(
    predictor: Predictor,
    corpus: Corpus,
    *,
    bands: Bands | None = None,
    progress: Progress | None = None,
) -> list[BandCalibration]:
    """Compare the probabilities of each band's labels with gold labels.

    Args:
        predictor: The model.
        corpus: Texts with gold labels; those without any are skipped.
        bands: Bands of training frequency; those of `rank_within_bands` by default.
        progress: Called with (done, total) texts.

    Returns:
        One row for each band with a label among the best of some text, from the rarest.
    """
    bands = Bands.parse(BANDS) if bands is None else bands
    n_labels = len(predictor.labels)
    found = predictor.predict_corpus(corpus, k=min(_DEPTH, n_labels), progress=progress)
    judged = judge(found.indices, predictor.labels.encode(corpus))
    indices, probabilities = judged.indices, found.scores[judged.gold.kept]
    rows = []
    for name, members in label_bands(predictor.labels.counts, bands, n_labels):
        inside = (indices >= 0) & members[indices]
        scores, right = probabilities[inside], judged.hits[inside]
        if not len(scores):
            continue
        likely = scores >= LIKELY
        some = bool(likely.any())
        rows.append(
            BandCalibration(
                name,
                len(scores),
                expected_calibration_error(scores, right).value,
                int(likely.sum()),
                float(scores[likely].mean(dtype=np.float64)) if some else float("nan"),
                float(right[likely].mean()) if some else float("nan"),
            )
        )
    return rows

"""Probabilistic label trees and one-vs-rest (NapkinXC).

- the default loss is the logistic one with C = 10, the matched one the squared hinge with C = 1;
- NapkinXC pads with label 0 where more labels are asked for than there are, so k is limited to
  their number; its one-vs-rest for several labels is called binary relevance (`BR`);
- the library writes its model while it learns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glocal.errors import require
from glocal.lab.baselines.baseline import LinearBaseline, Say, best_of_pairs
from glocal.ranking.predictions import Predictions


class NapkinTree(LinearBaseline):
    """A probabilistic label tree; settings are those of `napkinxc.models.PLT`."""

    kind = "PLT"

    def fit_matrix(self, features: Any, positives: Any, folder: Path, say: Say) -> None:
        """Train, with the model in a folder of its own."""
        models = require("napkinxc.models", extra="baselines", purpose="probabilistic label trees")
        self.model = getattr(models, self.kind)(
            str(folder / "napkinxc"),
            threads=self.threads,
            seed=self.seed,
            verbose=2,  # its percentages are this baseline's progress
            **self.settings,
        )
        self.model.fit(features, positives)
        self.model.set_params(verbose=0)
        self.model.load()

    def predict_matrix(self, features: Any, k: int) -> Predictions:
        """Return the probabilities of the best labels."""
        return best_of_pairs(self.model.predict_proba(features, top_k=k), k)


class NapkinOneVsRest(NapkinTree):
    """One classifier for each label; settings are those of `napkinxc.models.BR`."""

    kind = "BR"

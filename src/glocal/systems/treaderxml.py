"""TReaderXML: a dual cooperative network reads a text with the help of a teacher.

    similar training texts → labels they vote for and the labels above them → teacher ┐
    text → encoder or word vectors ──────────────────────────────────────────── text ┴→ Reading of
    each → Interaction of both → bottleneck → a logit per label

The teacher is in `companions/teacher`, the network in `experts/reading_network.py`.
`reader.configuration` selects the rows of the paper's Table 3. Trained with BCE, without the
paper's softmax, which would keep every probability between 0.5 and 0.73.
"""

from __future__ import annotations

from glocal.errors import ConfigError
from glocal.systems.mixture import ExpertMixture

__all__ = ["TReaderXML"]


class TReaderXML(ExpertMixture):
    """`R-last`, and beside it any other expert."""

    def _check(self) -> None:
        super()._check()
        if not any(name.startswith("R-") for name in self.expert_names):
            raise ConfigError(
                f"'experts' = {self.expert_names}: {self.recipe.system} reads with its network; "
                'name a reader expert, experts = ["R-last"]'
            )

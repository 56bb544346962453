"""GlocalXML: a global and a local expert on one encoder.

The global expert matches the [CLS] vector of the last layer with a vector per label (Eq. 2); in
the local one each label attends to the tokens of the first layer (Eq. 3–6). Each is trained with
its own BCE (Eq. 8); the prediction is the mean of their probabilities (Eq. 7) or, with a dev set,
their weighted log-odds.
"""

from __future__ import annotations

from glocal.systems.mixture import ExpertMixture

__all__ = ["GlocalXML"]


class GlocalXML(ExpertMixture):
    """`D-last` and `A-1`, individually trained."""

"""ME-XML: any number of experts on any layers, trained to be right and to differ.

`D-n` classifies the [CLS] vector of layer n (Eq. 1), `A-n` lets labels attend to the words of layer
n (Eq. 2–4). The loss is the mean of the experts' BCE (or the BCE of their mean logit, Eq. 5) plus
the distribution-aware diversity loss (Eq. 6–9); the prediction is the mean of their probabilities.
"""

from __future__ import annotations

from glocal.systems.mixture import ExpertMixture

__all__ = ["MEXML"]


class MEXML(ExpertMixture):
    """Experts by the recipe, with the diversity loss."""

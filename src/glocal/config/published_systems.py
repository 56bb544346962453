"""The published systems: each is a family of models and what its recipes must name.

GlocalXML, ME-XML and TReaderXML are recipes over one family, the mixture of experts:

- GlocalXML: `D-last` matches the [CLS] vector of the last layer with a vector per label (Eq. 2), in
  `A-1` each label attends to the tokens of the first layer (Eq. 3–6), each trained with its own BCE
  (Eq. 8);
- ME-XML: any number of `D-n` and `A-n`, trained to be right and to differ (Eq. 5–9);
- TReaderXML: `R-last` reads the text together with the labels of similar training texts.

The baselines of the papers' tables are recipes over the same family:

- LightXML: one document expert over label clusters that it picks first;
- AttentionXML: label attention over a BiLSTM, with clusters on several levels;
- XR-Transformer: clusters on several levels, trained one after another, coarse ones first.

APLC-XLNet scores one document vector with adaptive probabilistic label clusters.
"""

from __future__ import annotations

from dataclasses import dataclass

MIXTURE, CLUSTERS = "mixture", "clusters"  # the families


@dataclass(frozen=True)
class PublishedSystem:
    """A system by its family.

    Attributes:
        family: The class of models, a key of `systems.registry.FAMILIES`.
        required: A kind of expert that its recipes must name; empty for none.
    """

    family: str = MIXTURE
    required: str = ""


PUBLISHED_SYSTEMS = {
    "glocalxml": PublishedSystem(),
    "me-xml": PublishedSystem(),
    "aplc-xlnet": PublishedSystem(CLUSTERS),
    "treaderxml": PublishedSystem(required="R"),
    "lightxml": PublishedSystem(required="D"),
    "attentionxml": PublishedSystem(required="A"),
    "xr-transformer": PublishedSystem(required="D"),
}

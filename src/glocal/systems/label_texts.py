"""Labels' texts on their way to the experts: who can use them, and their vectors."""

from __future__ import annotations

from dataclasses import replace

from glocal.config import Recipe
from glocal.encoders.encoder import Encoder
from glocal.encoders.label_vectors import label_vectors
from glocal.encoders.tokenizer import TextTokenizer
from glocal.errors import ConfigError
from glocal.progress import Progress
from glocal.systems.system import LabelStatistics

__all__ = ["check_label_text", "encode_label_text", "uses_label_text"]


def uses_label_text(recipe: Recipe) -> bool:
    """Whether an expert of the recipe makes use of labels' names and descriptions."""
    readers = any(name.startswith(("D-", "A-", "R-")) for name in recipe.experts)
    return recipe.labels.text != "off" and readers


def check_label_text(recipe: Recipe, statistics: LabelStatistics) -> None:
    """Refuse settings that labels' texts do not go with.

    Raises:
        ConfigError: The output layer is not made of label vectors, they are to start elsewhere, or
            there is no text.
    """
    if not uses_label_text(recipe):
        return
    text = recipe.labels.text
    clustered = any(name.startswith(("D-", "R-")) for name in recipe.experts)
    if recipe.system == "aplc-xlnet" or (recipe.document.head == "aplc" and clustered):
        raise ConfigError(
            f"'labels.text' = {text} needs a vector for each label, and label clusters have none; "
            "set document.head=flat in a system of experts, or labels.text=off"
        )
    if text == "tied" and recipe.attention.query_init == "tokens":
        raise ConfigError(
            "'labels.text' = tied and 'attention.query_init' = tokens both say where label queries "
            "start; set attention.query_init=normal, or labels.text=start, which then holds for "
            "labels without training texts"
        )
    if statistics.texts is None:
        raise ConfigError(
            f"'labels.text' = {text} needs the labels' names, and none were given "
            "(LabelStatistics.texts); vocabulary.label_text.label_texts makes them of a label space"
        )


def encode_label_text(
    statistics: LabelStatistics,
    encoder: Encoder,
    *,
    tokenizer: TextTokenizer,
    max_length: int,
    device: str = "cpu",
    progress: Progress | None = None,
) -> LabelStatistics:
    """The statistics with vectors of the labels' texts, where they have texts.

    Args:
        statistics: Of the training labels.
        encoder: Not trained yet.
        tokenizer: Of the encoder.
        max_length: Tokens read of each text.
        device: Where to compute.
        progress: Called with (done, total).
    """
    if statistics.texts is None:
        return statistics
    vectors = label_vectors(
        encoder,
        tokenizer,
        statistics.texts,
        max_length=max_length,
        device=device,
        progress=progress,
    )
    return replace(statistics, text_vectors=vectors)

"""Encoders of well-known shapes with random weights, and synthetic batches, for timing.

Random weights are as fast as trained ones. Nothing here says anything about quality.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glocal.config import load_recipe
from glocal.config.resolve import ResolvedRecipe, check, resolve
from glocal.data.batches import Batch
from glocal.encoders.read_facts import read_encoder_facts
from glocal.systems.registry import build_system
from glocal.systems.system import LabelStatistics, System

CPU = torch.device("cpu")
VOCABULARY = 30_522
_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
SHAPES: dict[str, dict[str, Any]] = {
    "minilm": {
        "model_type": "bert",
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
    },
    "bert-base": {"model_type": "bert", **_BASE, "intermediate_size": 3072},
    "mpnet": {
        "model_type": "mpnet",
        **_BASE,
        "intermediate_size": 3072,
        "max_position_embeddings": 514,
    },
}


@dataclass(frozen=True)
class Shape:
    """The size of a step.

    Attributes:
        encoder: An encoder's name, or `random:` and a folder with its configuration.
        length: Tokens of each text.
        batch: Texts.
        labels: Number of labels.
        device: Where it is computed.
        repeats: Calls that are timed.
    """

    encoder: str
    length: int
    batch: int
    labels: int
    device: torch.device = CPU
    repeats: int = 3

    def seconds(self, act: Callable[[], object]) -> float:
        """Return the median time of a call."""
        return median_seconds(act, self.device, repeats=self.repeats)


def shape_folder(name: str, parent: Path) -> Path:
    """Write the configuration of an encoder and a tokenizer of as many tokens; return the folder.

    Args:
        name: A key of `SHAPES`.
        parent: An existing folder.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = parent / name
    folder.mkdir(exist_ok=True)
    specials = ["[PAD]", "<pad>", "[UNK]", "[CLS]", "[SEP]"]
    words = [*specials, *(f"w{i}" for i in range(VOCABULARY - len(specials)))]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {**SHAPES[name], "vocab_size": VOCABULARY}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def synthetic_batch(shape: Shape, *, padded: bool = True, vocabulary: int = VOCABULARY) -> Batch:
    """Return random tokens with five gold labels each; half the texts are a little shorter."""
    size, length = shape.batch, shape.length
    ids = torch.randint(min(1000, vocabulary // 2), vocabulary, (size, length))
    mask = torch.ones(size, length, dtype=torch.bool)
    if padded:
        mask[: size // 2, int(length * 0.9) :] = False
    gold = torch.randint(0, shape.labels, (size, 8))
    gold[:, 5:] = -1
    return Batch(ids, mask, gold, np.arange(size), float(size), padded=padded).to(shape.device)


def synthetic_system(shape: Shape, settings: Sequence[str]) -> tuple[System, ResolvedRecipe]:
    """Return a system over labels with fifty texts each, in training mode.

    Args:
        shape: Its encoder, labels, tokens and device.
        settings: Further settings, such as `candidates.mode=clusters`.
    """
    sizes = [f"encoder.name={shape.encoder}", f"encoder.max_length={shape.length}"]
    checked = check(load_recipe("glocalxml", [*sizes, *settings]), read_encoder_facts)
    recipe = resolve(checked, n_labels=shape.labels, device_type=shape.device.type)
    torch.manual_seed(0)
    with shape.device:  # random weights at once where they are needed
        system, _ = build_system(recipe, LabelStatistics(np.full(shape.labels, 50), 45_000))
    return system.to(shape.device).train(), recipe


def vocabulary_of(system: System) -> int:
    """Return the number of tokens that a system's encoder knows."""
    return int(system.encoder.model.config.vocab_size)


def median_seconds(act: Callable[[], object], device: torch.device, *, repeats: int) -> float:
    """Return the median time of a call after one that warms up."""
    sync: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    act()
    times = []
    for _ in range(repeats):
        sync()
        started = time.perf_counter()
        act()
        sync()
        times.append(time.perf_counter() - started)
    return statistics.median(times)

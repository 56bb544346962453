"""A corpus whose labels can be read off its words, and recipes that train on it in a second."""

import numpy as np

from glocal.config import load_recipe
from glocal.config.resolve import check, resolve
from glocal.data.corpus import Corpus
from glocal.encoders.read_facts import read_encoder_facts
from glocal.systems import registry

ANIMALS = ["cat", "dog", "owl", "fox", "bee", "hen", "pig", "cow", "ant", "bat"]
COLOURS = ["red", "blue", "green", "white", "black"]

FAST = [
    "encoder.name=random:tiny",
    "encoder.max_length=24",
    "encoder.dropout=0.0",
    "attention.key_size=16",
    "attention.hidden_size=16",
    "reader.bottleneck=16",
    "teacher.k=3",
    "teacher.size=6",
    "train.batch_size=16",
    "train.epochs=2",
    "train.precision=fp32",
    "train.rates.encoder=3e-3",
    "train.rates.pooler=1e-2",
    "train.rates.attention=3e-3",
    "train.rates.classifier=1e-2",
    "train.rates.queries=1e-2",
    "train.rates.mlp=1e-2",
]

# One recipe for each registered system, for the contract suite.
SYSTEM_RECIPES = {
    "glocalxml": "glocalxml",
    "me-xml": "me-xml",
    "aplc-xlnet": "aplc",
    "treaderxml": "treaderxml",
    "lightxml": "lightxml",
    "attentionxml": "attentionxml",
    "xr-transformer": "xr-transformer",
}


def tiny_recipe(name="glocalxml", *overrides):
    return load_recipe(name, [*FAST, *overrides])


def resolved(recipe, n_labels=1, device_type="cpu"):
    """The recipe with nothing open, as for a run on data of this size."""
    checked = check(recipe, read_encoder_facts)
    return resolve(checked, n_labels=n_labels, device_type=device_type)


def build_system(recipe, statistics, *, device_type="cpu", **options):
    """A new system from a recipe as written, and its tokenizer."""
    settled = resolved(recipe, statistics.n_labels, device_type)
    return registry.build_system(settled, statistics, **options)


def taught(recipe, corpus, labels, table=None):
    """Statistics of the labels, word vectors and the companions of a recipe."""

    from glocal.companions.companion import FitInputs
    from glocal.companions.companion_list import Companions, word_vectors
    from glocal.systems.system import LabelStatistics
    from glocal.vocabulary.label_text import label_texts

    vectors = word_vectors(recipe, corpus, table)
    inputs = FitInputs(recipe, corpus, labels, table, vectors)
    companions = Companions.fit(inputs)
    starts = companions.label_vectors()
    texts = label_texts(labels, table) if recipe.uses_label_text else None
    return LabelStatistics(labels.counts, labels.n_documents, starts, texts), vectors, companions


def tiny_corpus(n=64, seed=0):
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        animal, colour = random.choice(ANIMALS), random.choice(COLOURS)
        padding = " ".join(["a"] * int(random.integers(0, 9)))
        texts.append(f"the {colour} {animal} {padding}".strip())
        labels.append([str(animal), str(colour)])
    return Corpus.from_texts(texts, labels)

"""A made-up corpus whose labels are told by words, and the model trained on it."""

from __future__ import annotations

import numpy as np

from glocal.config import SparseConfig
from glocal.data.corpus import Corpus
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable

N_LABELS = 12
SMALL = SparseConfig(pieces="off", min_words=2, cluster_size=4, beam=2, sample=20)


def corpus(n_texts=240, *, seed=0):
    """Texts with one to three labels; each label has two words of its own among common ones."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n_texts):
        own = rng.choice(N_LABELS, rng.integers(1, 4), replace=False)
        words = [f"Sign{label}{part}" for label in own for part in "ab"]
        words += [f"common{word}" for word in rng.integers(30, size=12)]
        rng.shuffle(words)
        texts.append(f"Title {words[0]}\n" + ", ".join(words) + ".")
        labels.append([f"L{label:02}" for label in own])
    return Corpus.from_texts(texts, labels)


def label_space(train, *, unseen=False):
    """The labels of a corpus, and one that no text has."""
    ids = [f"L{label:02}" for label in range(N_LABELS)]
    names = [f"sign{label}a" for label in range(N_LABELS)]
    if unseen:
        ids, names = [*ids, "L99"], [*names, "common3"]
    table = LabelTable(ids=ids, names=names)
    return LabelSpace.build(train, table=table, score_unseen=unseen)


def log_odds(model, text, label):
    """The log-odds of one label."""
    return float(model.scorer.scores(model.vectoriser.transform([text]))[0, label])


def explained(model, text, label):
    """The sum of a label's bias and of the words in its explanation."""
    return model.scorer.biases[label] + sum(part.weight for part in model.explain(text, label))

"""Speed and memory of the scores of labels by their names, with a million names.

    python benchmarks/name_speed.py DATA/train.parquet DATA/dev.parquet [--names 1000000]

Names are made of two to four words that are drawn from the training texts, and, for a fifth of
them, of a word that no text has. Reports the time to build their scorer, the time of single texts,
the texts per second in bulk on one thread and on all, and the memory of the process.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np

from glocal import read_corpus
from glocal.companions.sparse.new_words import spread_texts, with_names
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.companions.sparse.threads import n_threads
from glocal.companions.sparse.training_memory import Scaling
from glocal.companions.sparse.unseen_labels import name_scorer
from glocal.companions.sparse.vectoriser import Vectoriser
from glocal.config import SparseConfig

SINGLE, BULK, K = 50, 500, 50
SCALING = Scaling(3.0, -8.0)


def make_names(vectoriser: Vectoriser, count: int) -> list[tuple[str, ...]]:
    """Return names of words, frequent ones more often than others."""
    rng = np.random.default_rng(0)
    vocabulary = vectoriser.parts[0].vocabulary
    words = np.array([word for word in vocabulary.words if word.isalpha() and len(word) > 3])
    rarity = vocabulary.idf[vocabulary.word_ids(words.tolist())]
    chances = np.exp(-0.7 * rarity) * (rarity > 0)
    drawn = rng.choice(words, size=(count, 4), p=chances / chances.sum())
    lengths = rng.integers(2, 5, count)
    unknown = rng.random(count) < 0.2
    return [
        (" ".join([*row[:length], *([f"x{number}"] if own else [])]),)
        for number, (row, length, own) in enumerate(zip(drawn, lengths, unknown, strict=True))
    ]


def clocks() -> np.ndarray:
    """Return the time on the clock and that of the processors, in seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def memory() -> str:
    """Return the largest memory of this process so far."""
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB at most so far"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--texts", type=int, default=5000, help="training texts")
    options = parser.parse_args()
    train = read_corpus(options.train)
    train = train.take(np.arange(min(len(train), options.texts)))
    texts = read_corpus(options.test).texts(0, BULK)
    vectoriser, features = Vectoriser.fit(train, SparseConfig())
    names = make_names(vectoriser, options.names)
    print(f"{vectoriser.n_features:,} features, {len(names):,} names; {memory()}", flush=True)
    started = clocks()
    vectoriser, places = with_names(vectoriser, (own[0] for own in names), n_texts=len(train))
    features = spread_texts(features, places, vectoriser.n_features)
    scorer = name_scorer(vectoriser, names, SCALING, features, n_texts=len(train))
    clock, processor = clocks() - started
    print(f"built in {clock:.1f} s ({processor:.1f} s of the processors); {memory()}", flush=True)
    model = SparseModel(vectoriser, scorer, SparseConfig())
    model.topk(texts[:1], K)
    taken = []
    for text in texts[:SINGLE]:
        started = clocks()
        model.topk([text], K)
        taken.append(1000 * (clocks() - started))
    (clock, processor), (longest, _) = np.median(taken, axis=0), np.max(taken, axis=0)
    print(
        f"single text: median {clock:.1f} ms ({processor:.1f} ms of the processors), longest "
        f"{longest:.1f} ms",
        flush=True,
    )
    for threads in sorted({1, n_threads(0)}):
        started = clocks()
        model.topk(texts, K, threads=threads)
        clock, processor = (clocks() - started) / len(texts)
        print(
            f"bulk, {threads} threads: {1 / clock:.1f} texts/s ({1000 * processor:.1f} ms of the "
            f"processors a text); {memory()}",
            flush=True,
        )


if __name__ == "__main__":
    main()

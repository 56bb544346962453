"""Write a made-up corpus of the shape of Amazon-670K, or of a part of it.

    python benchmarks/made_up_products.py DIR [--share 0.1] [--words 76] [--texts N --labels N]
    python benchmarks/sparse.py DIR --threads 2

Texts, labels and words are drawn at random: labels belong to topics, their frequencies follow
Zipf's law, and a text has words of its labels, of their topics, and others of a vocabulary with
Zipf's frequencies. Sizes are those of the published set (490,449 texts with 5.45 of 670,091 labels
and 76 words each) times the share; a twentieth more are test texts, at most 5,000. Such words show
what training costs, and nothing about how good a model is on real texts.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TEXTS, LABELS, LABELS_OF_A_TEXT = 490_449, 670_091, 5.45
VOCABULARY, SIGNS, TOPIC_WORDS, LABELS_OF_A_TOPIC = 130_000, 6, 40, 50
ROWS = 10_000  # written at a time


class Shop:
    """The frequencies of labels and words, and which words belong to which label and topic."""

    def __init__(self, n_labels, seed):
        rng = np.random.default_rng(seed)
        self.n_labels, self.n_topics = n_labels, max(1, n_labels // LABELS_OF_A_TOPIC)
        self.labels = _cumulative(n_labels, 0.6, rng)
        self.words = _cumulative(VOCABULARY, 1.0, rng)
        self.signs = self._words((n_labels, SIGNS), rng)
        self.topics = self._words((self.n_topics, TOPIC_WORDS), rng)

    def _words(self, shape, rng):
        return np.searchsorted(self.words, rng.random(shape)).astype(np.int32)

    def text(self, n_words, rng):
        """Return the label ids and words of a text; most of its labels are of one topic."""
        first = int(np.searchsorted(self.labels, rng.random()))
        count = 1 + rng.poisson(LABELS_OF_A_TEXT - 1)
        topic = first // LABELS_OF_A_TOPIC
        near = topic * LABELS_OF_A_TOPIC + rng.integers(LABELS_OF_A_TOPIC, size=count - 1)
        far = np.searchsorted(self.labels, rng.random(count - 1))
        others = np.where(rng.random(count - 1) < 0.8, near, far)
        labels = np.unique(np.minimum([first, *others], self.n_labels - 1))
        own = self.signs[labels][rng.random((len(labels), SIGNS)) < 0.6]
        topical = rng.choice(self.topics[min(topic, self.n_topics - 1)], 15)
        rest = self._words(max(0, rng.poisson(n_words) - len(own) - len(topical)), rng)
        words = np.concatenate([own, topical, rest])
        rng.shuffle(words)
        return labels, words


def _cumulative(count, power, rng):
    """Return the cumulative frequencies of things of Zipf's law, in random order."""
    weights = np.arange(1, count + 1, dtype=float) ** -power
    rng.shuffle(weights)
    return np.cumsum(weights / weights.sum())


def write(path, shop, n_texts, n_words, rng):
    """Write a split as Parquet."""
    schema = pa.schema(
        [("id", pa.string()), ("text", pa.string()), ("labels", pa.list_(pa.string()))]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n_texts, ROWS):
            ids, texts, gold = [], [], []
            for number in range(start, min(n_texts, start + ROWS)):
                labels, words = shop.text(n_words, rng)
                ids.append(f"{path.stem}{number}")
                texts.append(" ".join(f"w{word}" for word in words.tolist()))
                gold.append([f"p{label}" for label in labels.tolist()])
            writer.write_table(pa.table([ids, texts, gold], schema=schema))


def main():
    """Write both splits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--share", type=float, default=0.1, help="of the texts and labels")
    parser.add_argument("--texts", type=int, help="number of training texts")
    parser.add_argument("--labels", type=int, help="number of labels")
    parser.add_argument("--words", type=int, default=76, help="mean number of words of a text")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    n_texts = args.texts or round(TEXTS * args.share)
    shop = Shop(args.labels or round(LABELS * args.share), args.seed)
    args.folder.mkdir(parents=True, exist_ok=True)
    for split, count, seed in (("train", n_texts, 1), ("test", min(5000, n_texts // 20), 2)):
        rng = np.random.default_rng([args.seed, seed])
        write(args.folder / f"{split}.parquet", shop, count, args.words, rng)


if __name__ == "__main__":
    main()

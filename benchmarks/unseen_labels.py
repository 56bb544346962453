"""Ranking and calibration of labels without training texts by the words model.

    python benchmarks/unseen_labels.py DATA --test dev.parquet --more test.parquet

DATA is a folder with train.parquet, the file of `--test`, and labels.jsonl. Fits the features of
the training texts and the scorers of the labels without any, as `fast` with `labels.score_unseen`
does; labels with training texts are not trained, since they do not compete. Reports nDCG@5 among
the labels without training texts that some text of either file has, and among all of them, on the
texts that have one; and for all texts, by range of probability, how often such labels were right.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from glocal import read_corpus
from glocal.companions.sparse.sparse_scoring import LinearScorer, top_labels
from glocal.companions.sparse.unseen_labels import score_by_names
from glocal.companions.sparse.vectoriser import Vectoriser
from glocal.config import SparseConfig
from glocal.log_odds import sigmoid
from glocal.metrics.ranking import judge, ndcg_at_k
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import read_label_table

RANGES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)


def ndcg(scorer: LinearScorer, features: Any, gold: Any, competing: np.ndarray) -> float:
    """Return nDCG@5 among some labels, in percent."""
    allowed = np.zeros(scorer.n_labels, dtype=bool)
    allowed[competing] = True
    best, _ = top_labels(scorer, features, 5, allowed=allowed)
    scores = ndcg_at_k(judge(best, gold), 5)
    return 100 * float(scores.numerators.sum() / scores.denominators.sum())


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--train", default="train.parquet")
    parser.add_argument("--test", default="dev.parquet")
    parser.add_argument("--more", help="another file whose labels compete too")
    parser.add_argument("--no-relatives", action="store_true", help="names alone")
    options = parser.parse_args()
    train, test = (read_corpus(options.data / name) for name in (options.train, options.test))
    table = read_label_table(options.data / "labels.jsonl")
    labels = LabelSpace.build(train, table=table, score_unseen=True)
    start = time.process_time()
    vectoriser, features = Vectoriser.fit(train, SparseConfig())
    size = len(labels)
    blank = LinearScorer(
        csr_matrix((vectoriser.n_features, size), dtype=np.float32), np.zeros(size, np.float32)
    )
    gold = labels.encode(train)[:, :size]
    vectoriser, scorer, _ = score_by_names(
        blank, vectoriser, labels, features, gold, relatives=not options.no_relatives
    )
    print(f"fitted in {time.process_time() - start:.0f} s of the processors")
    unseen = np.flatnonzero(labels.counts == 0)
    found = labels.encode(test)[:, :size].tocsc()[:, unseen].tocsr()
    texts = vectoriser.transform(test.texts())
    known = np.unique(found.indices)
    if options.more:
        more = labels.encode(read_corpus(options.data / options.more))[:, :size]
        known = np.union1d(known, np.unique(more.tocsc()[:, unseen].tocsr().indices))
    chosen = csr_matrix(
        (np.ones(len(unseen), np.float32), (unseen, np.arange(len(unseen)))), (size, len(unseen))
    )
    alone = LinearScorer(
        (scorer.weights @ chosen).tocsr(),
        scorer.biases[unseen],
        names=scorer.names and scorer.names.with_labels(chosen),
    )
    rows = np.flatnonzero(np.diff(found.indptr))
    for name, competing in (("with gold", known), ("all", np.arange(len(unseen)))):
        value = ndcg(alone, texts[rows], found[rows], competing)
        print(f"{len(competing)} labels ({name}), {len(rows)} texts: nDCG@5 {value:.1f}")
    best, scores = top_labels(alone, texts, 20)
    probability = sigmoid(scores.ravel())
    right = np.asarray(found[np.repeat(np.arange(len(best)), 20), best.ravel()]).ravel() > 0
    error = 0.0
    for low, high in itertools.pairwise(RANGES):
        inside = (probability > low) & (probability <= high)
        if inside.any():
            mean, share = probability[inside].mean(), right[inside].mean()
            error += inside.mean() * abs(mean - share)
            print(f"{low:g} to {high:g}: {inside.sum()} labels, {mean:.4f} said, {share:.4f} right")
    print(f"calibration error of the twenty best: {error:.5f}")


if __name__ == "__main__":
    main()

"""Predictions of exported models beside those of the model in torch, on real texts.

Counts the texts whose ten best labels differ by more than ties closer than 1e-4, and prints the
largest difference of a score and, where texts have labels, P@1, P@3 and P@5. Models in fp32 must
agree; the script fails where one does not.

    python benchmarks/exported_agreement.py MODEL EXPORTED [EXPORTED…] --texts FILE
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from glocal import Predictor, read_corpus
from glocal.metrics.gold import prepare_gold
from glocal.metrics.ranking import judge, precision_at_k

if TYPE_CHECKING:
    from glocal import Corpus, Predictions

K, TIE, CLOSE = 10, 1e-4, 1e-3


def main() -> int:
    """Compare and print a table; return 1 where a model in fp32 disagrees."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="the model in torch")
    parser.add_argument("exported", type=Path, nargs="+", help="exports of it")
    parser.add_argument("--texts", required=True, help="file of texts, with labels or without")
    options = parser.parse_args()
    corpus = read_corpus(options.texts)
    reference = Predictor.load(options.model, device="cpu")
    expected = reference.predict(corpus.texts(), k=K)
    print(f"{'model':24} {'differ':>10} {'largest':>9}  P@1 / P@3 / P@5")
    print(f"{options.model.name:24} {'':10} {'':9}  {scores(reference, expected, corpus)}")
    failed = False
    for path in options.exported:
        exported = Predictor.load(path)
        found = exported.predict(corpus.texts(), k=K)
        differ = sum(
            differs(*rows)
            for rows in zip(found.indices, expected.indices, expected.scores, strict=True)
        )
        largest = float(np.abs(found.scores - expected.scores).max())
        precision = exported.system.facts.precision
        failed |= precision == "fp32" and (differ > 0 or largest > CLOSE)
        counted = f"{differ} of {len(corpus)}"
        line = f"{counted:>10} {largest:9.6f}  {scores(exported, found, corpus)}"
        print(f"{path.name:24} {line}")
    return int(failed)


def differs(ours: np.ndarray, theirs: np.ndarray, values: np.ndarray) -> bool:
    """Return whether labels stand at other places than ties allow, by the reference's scores."""
    score = dict(zip(theirs.tolist(), values.tolist(), strict=True))
    last = float(values[-1])
    return any(
        abs(score.get(label, last) - value) >= TIE
        for label, value in zip(ours.tolist(), values.tolist(), strict=True)
    )


def scores(predictor: Predictor, found: Predictions, corpus: Corpus) -> str:
    """Return P@1, P@3 and P@5, in percent."""
    judged = judge(found.indices, prepare_gold(predictor.labels.encode(corpus)))
    return " / ".join(f"{100 * precision_at_k(judged, k).value:.2f}" for k in (1, 3, 5))


if __name__ == "__main__":
    sys.exit(main())

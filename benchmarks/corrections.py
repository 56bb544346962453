"""Corrections learnt by a trained model, beside a model trained again with the same texts.

    python benchmarks/corrections.py DATA --recipe fast

DATA is a folder with train.parquet, test.parquet (or the file of `--test`) and labels.jsonl. The
texts are divided into two halves of equal size by 2-means on their words. A model of the first half
learns some texts of the second one (`glocal train --from`); another model is trained again on the
first half and the same texts. Reports P@5 on the test texts of each half, and the time.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np

from glocal import Corpus, Predictor, continue_training, fit, load_recipe, read_corpus
from glocal.companions.sparse.vectoriser import Vectoriser
from glocal.config import SparseConfig
from glocal.vocabulary.label_table import read_label_table
from new_labels import timed

ROUNDS = 20


def halves(train: Corpus, test: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each text belongs to the second half."""
    words = SparseConfig(pairs=False, pieces="off", title_weight=0.0)
    vectoriser, features = Vectoriser.fit(train, words)
    centres = features[np.random.default_rng(0).choice(len(train), 2, replace=False)].toarray()
    for _ in range(ROUNDS):
        sides = features @ (centres[1] - centres[0])
        second = sides >= np.median(sides)
        means = [np.asarray(features[half].mean(axis=0)).ravel() for half in (~second, second)]
        centres = np.stack([mean / np.linalg.norm(mean) for mean in means])
    sides = features @ (centres[1] - centres[0])
    tested = vectoriser.transform(test.texts()) @ (centres[1] - centres[0])
    return sides >= np.median(sides), tested >= np.median(sides)


def precision(path: Path, tests: list[Corpus]) -> list[float]:
    """Return P@5 of a model on sets of texts, in percent."""
    predictor = Predictor.load(path)
    found = []
    for test in tests:
        rows = zip(predictor.predict(test, k=5), test.labels(), strict=True)
        found.append(100 * float(np.mean([len({t.id for t in r} & set(g)) / 5 for r, g in rows])))
    return found


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--recipe", default="fast")
    parser.add_argument("-s", "--set", action="append", default=[], help="a setting")
    parser.add_argument("--test", default="test.parquet")
    parser.add_argument("--texts", type=int, help="only so many training texts")
    parser.add_argument("--tested", type=int, help="only so many test texts")
    parser.add_argument("--corrections", type=int, default=500)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    rng = np.random.default_rng(0)

    def read(name: str, most: int | None) -> Corpus:
        corpus = read_corpus(options.data / name)
        return corpus.take(np.sort(rng.permutation(len(corpus))[: most or len(corpus)]))

    train, test = read("train.parquet", options.texts), read(options.test, options.tested)
    table = read_label_table(options.data / "labels.jsonl")
    second, tested = halves(train, test)
    tests = [test.take(np.flatnonzero(~tested)), test.take(np.flatnonzero(tested))]
    old = np.flatnonzero(~second)
    chosen = np.sort(rng.permutation(np.flatnonzero(second))[: options.corrections])
    corrections, recipe = train.take(chosen), load_recipe(options.recipe, options.set)
    print(f"{len(old)} texts, {len(chosen)} corrections; tests of {[len(t) for t in tests]} texts")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GLOCAL_CACHE"] = f"{folder}/cache"
        model, again, further = (Path(folder) / name for name in ("model", "again", "further"))

        def train_on(rows: np.ndarray, out: Path) -> str:
            corpus = train.take(rows)
            return timed(
                lambda: fit(recipe, corpus, out=out, label_table=table, device=options.device)
            )

        print("first half:", train_on(old, model), precision(model, tests), flush=True)
        both = np.sort(np.concatenate([old, chosen]))
        print("trained again:", train_on(both, again), precision(again, tests), flush=True)
        replay = None if recipe.reads_words_alone else train.take(old)
        seconds = timed(
            lambda: continue_training(
                model,
                corrections,
                out=further,
                train=replay,
                label_table=table,
                device=options.device,
            )
        )
        print("learnt further:", seconds, precision(further, tests))


if __name__ == "__main__":
    main()

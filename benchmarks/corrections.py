"""Corrections learnt by a trained model, beside a model trained again with the same texts.

    python benchmarks/corrections.py DATA --recipe fast

DATA is a folder with train.parquet, test.parquet (or the file of `--test`) and labels.jsonl. The
texts are divided into two halves of equal size by 2-means on their words. A model of the first half
learns some texts of the second one (`glocal train --from`); another model is trained again on the
first half and the same texts. Reports P@5 on the test texts of each half, of the models and of each
of their experts, and the time; that of learning further also part by part. With `--json FILE` the
figures are kept. With `--final FILE` the texts of another file are scored as well, but only if the
figures of `--test` meet the targets: 70% of the gain of training again, in a tenth of its time, and
at most 0.2 points lost on the first half. So settings can be tried on dev, and test is looked at
once. With `--models DIR` the models stay there, and those that are there already are not trained
again.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from glocal import Corpus, Predictor, continue_training, fit, load_recipe, read_corpus
from glocal.companions.sparse.vectoriser import Vectoriser
from glocal.config import SparseConfig
from glocal.vocabulary.label_table import read_label_table
from new_labels import seconds_of
from stage_times import CONTINUING, stage_times

ROUNDS = 20


def halves(train: Corpus, tests: list[Corpus]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return whether each text belongs to the second half, also of other texts."""
    words = SparseConfig(pairs=False, pieces="off", title_weight=0.0)
    vectoriser, features = Vectoriser.fit(train, words)
    centres = features[np.random.default_rng(0).choice(len(train), 2, replace=False)].toarray()
    for _ in range(ROUNDS):
        sides = features @ (centres[1] - centres[0])
        second = sides >= np.median(sides)
        means = [np.asarray(features[half].mean(axis=0)).ravel() for half in (~second, second)]
        centres = np.stack([mean / np.linalg.norm(mean) for mean in means])
    sides = features @ (centres[1] - centres[0])
    middle = np.median(sides)
    tested = [vectoriser.transform(test.texts()) @ (centres[1] - centres[0]) for test in tests]
    return sides >= middle, [found >= middle for found in tested]


def precision(path: Path, tests: list[Corpus], device: str) -> dict[str, list[float]]:
    """Return P@5 on sets of texts, in percent, of a model and of each of its experts."""
    predictor = Predictor.load(path, device=device)
    scores: dict[str, list[float]] = {}
    for test in tests:
        found = predictor.predict(test, k=5, per_expert=True)
        for name, own in {"P@5": found, **found.experts}.items():
            rows = zip(own, test.labels(), strict=True)
            hits = [len({tag.id for tag in tags} & set(gold)) / 5 for tags, gold in rows]
            scores.setdefault(name, []).append(100 * float(np.mean(hits)))
    return scores


class Comparison:
    """A model of the first half, one trained again, and one that learnt further.

    Args:
        options: The options of the command.
        folder: Where models are written.
    """

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.figures = options, dict[str, Any]()
        self.paths = {name: folder / name for name in ("first half", "again", "further")}
        self.rng = np.random.default_rng(0)
        self.train = self._read("train.parquet", options.texts)
        self.table = read_label_table(options.data / "labels.jsonl")
        self.recipe = load_recipe(options.recipe, options.set)
        tests = [self._read(options.test, options.tested)]
        if options.final:
            tests.append(self._read(options.final, options.tested))
        second, sides = halves(self.train, tests)
        self.tests = [
            [test.take(np.flatnonzero(~side)), test.take(np.flatnonzero(side))]
            for test, side in zip(tests, sides, strict=True)
        ]
        self.old = np.flatnonzero(~second)
        chosen = self.rng.permutation(np.flatnonzero(second))[: options.corrections]
        self.chosen = np.sort(chosen)

    def _read(self, name: str, most: int | None) -> Corpus:
        corpus = read_corpus(self.options.data / name)
        return corpus.take(np.sort(self.rng.permutation(len(corpus))[: most or len(corpus)]))

    def run(self) -> None:
        """Train the models and print their figures."""
        print(f"{len(self.old)} texts, {len(self.chosen)} corrections", flush=True)
        self._train("first half", self.old)
        self._train("again", np.sort(np.concatenate([self.old, self.chosen])))
        with stage_times(CONTINUING) as parts:
            took = seconds_of(self._continue)
        self._report("further", took)
        self.figures["further"]["parts"] = {n: round(s, 2) for n, s in parts.items() if s >= 0.01}
        met = self._summary()
        if met and self.options.final:
            found = {
                n: precision(p, self.tests[1], self.options.device) for n, p in self.paths.items()
            }
            self.figures["final"] = found
        print(self.figures["further"]["parts"], self.figures.get("final", ""), flush=True)
        if self.options.json:
            self.options.json.write_text(json.dumps(self.figures, indent=1), encoding="utf-8")

    def _train(self, name: str, rows: np.ndarray) -> None:
        corpus, path = self.train.take(rows), self.paths[name]
        kept = path.with_name(f"{path.name}.json")
        if not kept.exists():
            took = seconds_of(
                lambda: fit(
                    self.recipe,
                    corpus,
                    out=path,
                    label_table=self.table,
                    device=self.options.device,
                )
            )
            kept.write_text(json.dumps(took), encoding="utf-8")
        self._report(name, tuple(json.loads(kept.read_text("utf-8"))))

    def _continue(self) -> None:
        continue_training(
            self.paths["first half"],
            self.train.take(self.chosen),
            out=self.paths["further"],
            train=None if self.recipe.reads_words_alone else self.train.take(self.old),
            label_table=self.table,
            overwrite=True,
            device=self.options.device,
        )

    def _report(self, name: str, took: tuple[float, float]) -> None:
        scores = precision(self.paths[name], self.tests[0], self.options.device)
        self.figures[name] = {"seconds": took[0], "processor": took[1], **scores}
        print(f"{name}: {self.figures[name]}", flush=True)

    def _summary(self) -> bool:
        """Print how learning further compares; return whether it meets the targets."""
        first, again, further = (self.figures[name] for name in self.paths)
        gain = again["P@5"][1] - first["P@5"][1]
        share = (further["P@5"][1] - first["P@5"][1]) / gain if gain else float("nan")
        time = further["seconds"] / again["seconds"]
        lost = first["P@5"][0] - further["P@5"][0]
        print(f"{share:.1%} of the gain in {time:.1%} of the time, {lost:.2f} lost", flush=True)
        return share >= 0.7 and time <= 0.1 and lost <= 0.2


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--recipe", default="fast")
    parser.add_argument("-s", "--set", action="append", default=[], help="a setting")
    parser.add_argument("--test", default="test.parquet")
    parser.add_argument("--final", help="file of texts that are scored if the targets are met")
    parser.add_argument("--texts", type=int, help="only so many training texts")
    parser.add_argument("--tested", type=int, help="only so many test texts")
    parser.add_argument("--corrections", type=int, default=500)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--models", type=Path, help="folder that keeps the models")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GLOCAL_CACHE"] = f"{folder}/cache"
        kept = options.models or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        Comparison(options, kept).run()


if __name__ == "__main__":
    main()

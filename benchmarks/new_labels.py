"""Labels added to a trained model, beside a model trained again with the same examples.

    python benchmarks/new_labels.py DATA --recipe fast --examples 0,1,5,all
    python benchmarks/new_labels.py DATA --recipe balanced --examples 0,5 --device cuda

DATA is a folder with train.parquet, test.parquet (or the file of `--test`) and labels.jsonl. Labels
are withheld by a rule: of those with five training texts and one test text, sorted by the number of
training texts and then by id, so many at even distances. Their texts stay in the training set
without them. Reports recall@5 of the withheld labels on the test texts, P@5 of all labels, the
largest change of an old label's score, and the seconds on the clock and of the processors, for
adding part by part. A model with an encoder is given the training texts to compare with. With
`--models DIR` the models stay there, and those that are there already are not trained again, so
that numbers of examples can be compared side by side by several commands, once one of them has
trained the first model (`--examples 0`); `--json FILE` keeps the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from glocal import Corpus, LabelTable, Predictor, add_labels, fit, load_recipe, read_corpus
from glocal.vocabulary.label_table import read_label_table
from stage_times import ADDING, stage_times


def choose(train: Corpus, test: Corpus, count: int) -> list[str]:
    """Return the labels to withhold."""
    counts, tested = (Counter(x for row in c.labels() for x in row) for c in (train, test))
    usable = sorted(
        (x for x in counts if counts[x] >= 5 and tested[x]), key=lambda x: (counts[x], x)
    )
    return [usable[place] for place in np.linspace(0, len(usable) - 1, count).astype(int)]


def examples_of(train: Corpus, withheld: set[str], count: int | None) -> dict[int, list[str]]:
    """Return the withheld labels of the texts that serve as examples, by the text's position."""
    left = dict.fromkeys(withheld, len(train) if count is None else count)
    rows, found = train.labels(), {}
    for row in np.random.default_rng(0).permutation(len(train)).tolist():
        own = [label for label in rows[row] if label in withheld and left[label] > 0]
        for label in own:
            left[label] -= 1
        if own:
            found[row] = own
    return found


def scores(
    path: Path, test: Corpus, withheld: set[str], device: str
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Return the figures of a model, and the scores of the best labels of each text."""
    predictor = Predictor.load(path, device=device)
    found = [{tag.id: tag.score for tag in tags} for tags in predictor.predict(test, k=50)]
    hits = total = right = 0
    for tags, gold in zip(found, test.labels(), strict=True):
        best = list(tags)[:5]
        hits += sum(label in withheld for label in gold if label in best)
        total += sum(label in withheld for label in gold)
        right += sum(label in best for label in gold)
    return {"recall@5 of withheld": hits / total, "P@5": right / 5 / len(test)}, found


def seconds_of(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds that work takes, on the clock and of the processors."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def timed(work: Callable[[], object]) -> str:
    """Return the seconds that work takes, in words."""
    clock, processor = seconds_of(work)
    return f"{clock:.1f} s, {processor:.1f} s of the processors"


def moved(before: list[dict[str, float]], after: list[dict[str, float]]) -> float:
    """Return the largest change of the score of a label that both models list."""
    return max(
        abs(score - now[label])
        for old, now in zip(before, after, strict=True)
        for label, score in old.items()
        if label in now
    )


class Comparison:
    """The texts of a comparison, and the models it trains."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        read = {name: read_corpus(options.data / name) for name in ("train.parquet", options.test)}
        train, test = read["train.parquet"], read[options.test]
        self.train = train.take(np.arange(min(len(train), options.texts or len(train))))
        self.test = test.take(np.arange(min(len(test), options.tested or len(test))))
        self.dev = read_corpus(options.data / options.dev) if options.dev else None
        self.table = read_label_table(options.data / "labels.jsonl")
        self.recipe = load_recipe(options.recipe, options.set)
        self.folder, self.device = folder, options.device
        chosen = choose(self.train, self.test, options.labels)
        self.withheld, self.texts = set(chosen), self.train.texts()
        self.rows = [[x for x in row if x not in self.withheld] for row in self.train.labels()]
        entries = [self.table.get(label) for label in chosen]
        self.new = LabelTable.from_entries([e for e in entries if e], source="withheld")

    def corpus(self, labels: list[list[str]]) -> Corpus:
        """Return the training texts that have labels."""
        kept = [place for place, row in enumerate(labels) if row]
        return Corpus.from_texts([self.texts[p] for p in kept], [labels[p] for p in kept])

    def fitted(self, name: str, labels: list[list[str]]) -> Path:
        """Train a model, unless it is there, and return its folder."""
        path, seconds = self.folder / name, self.folder / f"{name}.seconds"
        if not path.exists():
            corpus = self.corpus(labels)
            took = timed(
                lambda: fit(
                    self.recipe,
                    corpus,
                    out=path,
                    dev=self.dev,
                    label_table=self.table,
                    device=self.device,
                )
            )
            seconds.write_text(took, encoding="utf-8")
        print(f"{name}: {seconds.read_text('utf-8')}", flush=True)
        return path

    def added(self, model: Path, given: dict[int, list[str]], name: str) -> tuple[Path, Any]:
        """Add the withheld labels to a copy of a model; return its folder and the times."""
        copy = self.folder / f"added-{name}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(model, copy)
        labels = [self.rows[p] + given[p] for p in given]
        shown = Corpus.from_texts([self.texts[p] for p in given], labels)
        train = None if self.recipe.reads_words_alone else self.corpus(self.rows)
        with stage_times(ADDING) as parts:
            seconds = timed(
                lambda: add_labels(
                    copy,
                    self.new,
                    examples=shown if given else None,
                    train=train,
                    device=self.device,
                )
            )
        by_part = {part: round(value, 2) for part, value in parts.items() if value >= 0.01}
        return copy, {"time": seconds, "parts": by_part}

    def run(self, examples: list[str], *, again: bool = True) -> dict[str, Any]:
        """Compare models with so many examples of each label, also trained again with them."""
        model = self.fitted("model", self.rows)
        before = scores(model, self.test, self.withheld, self.device)[1]
        figures: dict[str, Any] = {}
        for count in examples:
            given = examples_of(self.train, self.withheld, None if count == "all" else int(count))
            copy, times = self.added(model, given, count)
            found, after = scores(copy, self.test, self.withheld, self.device)
            figures[f"{count} added"] = {
                **found,
                "old scores moved by": moved(before, after),
                **times,
            }
            print(f"{count} examples, added:", figures[f"{count} added"], flush=True)
            if given and again:
                labels = [self.rows[p] + given.get(p, []) for p in range(len(self.train))]
                path = self.fitted(f"again-{count}", labels)
                figures[f"{count} again"] = scores(path, self.test, self.withheld, self.device)[0]
                print(f"{count} examples, trained again:", figures[f"{count} again"], flush=True)
        return figures


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--recipe", default="fast")
    parser.add_argument("--test", default="test.parquet")
    parser.add_argument("--dev", help="file of texts that tune combination and calibration")
    parser.add_argument("-s", "--set", action="append", default=[], help="a setting")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--texts", type=int, help="only so many training texts")
    parser.add_argument("--tested", type=int, help="only so many test texts")
    parser.add_argument("--labels", type=int, default=200)
    parser.add_argument("--examples", default="0,1,5,all")
    parser.add_argument("--no-again", action="store_true", help="train no model again")
    parser.add_argument("--models", type=Path, help="folder that keeps the models")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GLOCAL_CACHE"] = f"{folder}/cache"
        kept = options.models or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        comparison = Comparison(options, kept)
        figures = comparison.run(options.examples.split(","), again=not options.no_again)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Labels added to a trained model, beside a model trained again with the same examples.

    python benchmarks/new_labels.py DATA --recipe fast --examples 0,1,5,all
    python benchmarks/new_labels.py DATA --recipe balanced --examples 0,5 --device cuda

DATA is a folder with train.parquet, test.parquet (or the file of `--test`) and labels.jsonl. Labels
are withheld by a rule: of those with five training texts and one test text, sorted by the number of
training texts and then by id, so many at even distances. Their texts stay in the training set
without them. Reports recall@5 of the withheld labels on the test texts, P@5 of all labels, the
largest change of an old label's score, and the seconds on the clock and of the processors. A model
with an encoder is given the training texts to compare with.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from glocal import Corpus, LabelTable, Predictor, add_labels, fit, load_recipe, read_corpus
from glocal.vocabulary.label_table import read_label_table


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


def scores(path: Path, test: Corpus, withheld: set[str]) -> tuple[str, list[dict[str, float]]]:
    """Return the line of a report, and the scores of the best labels of each text."""
    found = [
        {tag.id: tag.score for tag in tags} for tags in Predictor.load(path).predict(test, k=50)
    ]
    hits = total = right = 0
    for tags, gold in zip(found, test.labels(), strict=True):
        best = list(tags)[:5]
        hits += sum(label in withheld for label in gold if label in best)
        total += sum(label in withheld for label in gold)
        right += sum(label in best for label in gold)
    line = f"recall@5 of withheld labels {hits / total:.3f}, P@5 {right / 5 / len(test):.4f}"
    return line, found


def timed(work: Callable[[], object]) -> str:
    """Return the seconds that work takes, on the clock and of the processors."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return (
        f"{time.perf_counter() - clock:.1f} s, {time.process_time() - processor:.1f} s of the "
        "processors"
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--recipe", default="fast")
    parser.add_argument("--test", default="test.parquet")
    parser.add_argument("-s", "--set", action="append", default=[], help="a setting")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--texts", type=int, help="only so many training texts")
    parser.add_argument("--tested", type=int, help="only so many test texts")
    parser.add_argument("--labels", type=int, default=200)
    parser.add_argument("--examples", default="0,1,5,all")
    options = parser.parse_args()
    train, test = (read_corpus(options.data / f) for f in ("train.parquet", options.test))
    train = train.take(np.arange(min(len(train), options.texts or len(train))))
    test = test.take(np.arange(min(len(test), options.tested or len(test))))
    table = read_label_table(options.data / "labels.jsonl")
    recipe = load_recipe(options.recipe, options.set)
    chosen = choose(train, test, options.labels)
    withheld, texts = set(chosen), train.texts()
    rows = [[x for x in row if x not in withheld] for row in train.labels()]
    entries = [table.get(label) for label in chosen]
    new = LabelTable.from_entries([e for e in entries if e], source="withheld")

    def corpus(labels: list[list[str]]) -> Corpus:
        kept = [place for place, row in enumerate(labels) if row]
        return Corpus.from_texts([texts[p] for p in kept], [labels[p] for p in kept])

    with tempfile.TemporaryDirectory() as folder:
        os.environ["GLOCAL_CACHE"] = f"{folder}/cache"
        path, old = Path(folder) / "model", corpus(rows)
        seconds = timed(
            lambda: fit(recipe, old, out=path, label_table=table, device=options.device)
        )
        print(f"training: {seconds}", flush=True)
        before = scores(path, test, withheld)[1]
        for count in options.examples.split(","):
            given = examples_of(train, withheld, None if count == "all" else int(count))
            labels = [rows[p] + given.get(p, []) for p in range(len(train))]
            copy = Path(folder) / f"added-{count}"
            shutil.copytree(path, copy)
            shown = Corpus.from_texts([texts[p] for p in given], [labels[p] for p in given])
            seconds = timed(
                partial(
                    add_labels,
                    copy,
                    new,
                    examples=shown if given else None,
                    train=None if recipe.reads_words_alone else old,
                    device=options.device,
                )
            )
            line, after = scores(copy, test, withheld)
            moved = max(
                abs(score - now[label])
                for old, now in zip(before, after, strict=True)
                for label, score in old.items()
                if label in now
            )
            print(f"{count} examples, added: {line}, moved {moved:.1e}, {seconds}", flush=True)
            if given:
                again = Path(folder) / f"again-{count}"
                fit(recipe, corpus(labels), out=again, label_table=table, device=options.device)
                line = scores(again, test, withheld)[0]
                print(f"{count} examples, trained again: {line}", flush=True)


if __name__ == "__main__":
    main()

"""How long a teacher takes: word vectors, all-pairs search, one new text; and how good it is.

Reads training and dev texts from a folder (`train.parquet`, `dev.parquet`, `labels.jsonl`), makes a
teacher, computes the scopes of all training texts, then of dev texts one at a time, and prints the
time of each step: by the clock, and as processors spent it, which other programs do not lengthen.
`--recall` adds the recall of gold labels in the scopes of dev by k, `--compare` that of other
weightings of words and other sizes of scopes, `--indexes` that of the approximate searches.

    python benchmarks/retrieval.py DATA --threads 2
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SINGLE_TEXTS = 200
WEIGHTINGS = [("mean", False), ("mean", True), ("idf", False), ("idf", True), ("tfidf", True)]
HEAVIEST = (20, 40, 80)
SIZES = (16, 32, 64, 128)


@contextlib.contextmanager
def step(name: str, *, n_texts: int = 0) -> Iterator[None]:
    """Time a step, of each text where their number is given."""
    started, spent = time.perf_counter(), time.process_time()
    yield
    clock, processors = time.perf_counter() - started, time.process_time() - spent
    scale, unit = (1e3 / n_texts, "ms a text") if n_texts else (1, "s")
    print(f"{name:42s} {scale * clock:7.2f} {unit} ({scale * processors:.2f} of processors)")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with train.parquet and dev.parquet")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--texts", type=int, help="only the first so many training texts")
    parser.add_argument("--similarity", choices=("words", "mean"), default="words")
    parser.add_argument("--recall", action="store_true", help="recall on dev by k")
    parser.add_argument("--compare", action="store_true", help="other weightings and sizes")
    parser.add_argument("--indexes", action="store_true", help="the approximate searches")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["GLOCAL_CACHE"] = cache
        measure(options)


def measure(options: argparse.Namespace) -> None:
    """Time the steps, then what was asked for beyond them."""
    import torch

    from glocal.companions.teacher.recall import scope_recall
    from glocal.config import TeacherConfig
    from glocal.data.readers import read_corpus
    from glocal.vocabulary.label_space import LabelSpace
    from glocal.vocabulary.label_table import read_label_table

    torch.set_num_threads(options.threads)
    with step("read"):
        train = read_corpus(options.data / "train.parquet")
        if options.texts:
            train = train.take(range(min(options.texts, len(train))))
        dev = read_corpus(options.data / "dev.parquet")
        table = read_label_table(options.data / "labels.jsonl")
        labels = LabelSpace.build(train, table=table)
    print(f"{len(train):,} training texts, {len(labels):,} labels, {len(dev):,} dev texts")
    setting, default = (train, dev, table, labels), TeacherConfig(similarity=options.similarity)
    teacher = timed_teacher(setting, default)
    if options.recall:
        show(scope_recall(teacher, dev, labels))
    if options.compare:
        compare(setting, default)
    for index in ("ivf", "hnsw") if options.indexes else ():
        print(f"index {index}")
        searched = dataclasses.replace(default, similarity="mean", index=index)
        approximate = timed_teacher(setting, searched)
        show(scope_recall(approximate, dev, labels, ks=[default.k]))


def timed_teacher(setting, config):
    """One teacher from its vectors to the scopes of new texts."""
    from glocal.companions.companion import FitInputs
    from glocal.companions.teacher.teacher_model import Teacher
    from glocal.config import EncoderConfig, Recipe
    from glocal.encoders.static import build_vectors

    train, dev, table, labels = setting
    with step("word vectors and their weights"):
        vectors = build_vectors(config, EncoderConfig(), train)
    with step("embed training texts, build the index"):
        teacher = Teacher.fit(FitInputs(Recipe(teacher=config), train, labels, table, vectors))
    with step("scopes of training texts, all pairs"):
        teacher.scopes(train)
    with step("scopes of training texts, cached"):
        teacher.scopes(train)
    first, *texts = dev.texts(0, SINGLE_TEXTS + 1)
    with step("the first new text"):
        teacher.scopes_of([first])
    with step("new texts, one at a time", n_texts=len(texts)):
        for text in texts:
            teacher.scopes_of([text])
    with step("new texts, together", n_texts=len(dev)):
        teacher.scopes_of(dev.texts())
    return teacher


def compare(setting, default) -> None:
    """Recall on dev of other weightings of words, and of other sizes of scopes."""
    from glocal.companions.companion import FitInputs
    from glocal.companions.teacher.recall import scope_recall
    from glocal.companions.teacher.teacher_model import Teacher
    from glocal.config import EncoderConfig, Recipe
    from glocal.encoders.static import build_vectors

    train, dev, table, labels = setting
    settings = [
        {"similarity": "mean", "weighting": weighting, "centre": centre}
        for weighting, centre in WEIGHTINGS
    ]
    settings += [{"similarity": "words", "heaviest": heaviest} for heaviest in HEAVIEST]
    settings += [{"size": size} for size in SIZES]
    for changes in settings:
        config = dataclasses.replace(default, **changes)
        vectors = build_vectors(config, EncoderConfig(), train)
        teacher = Teacher.fit(FitInputs(Recipe(teacher=config), train, labels, table, vectors))
        print(changes)
        show(scope_recall(teacher, dev, labels, ks=[config.k]))


def show(rows) -> None:
    """Print recalls."""
    for row in rows:
        bands = "  ".join(f"{name} {value:.1%}" for name, value in row.bands.items())
        counts = f"labels {row.labels:.1f}  full {row.cut:.1%}"
        print(f"k {row.k:3d}  recall {row.recall:.1%}  {bands}  {counts}", flush=True)


if __name__ == "__main__":
    main()

"""`glocal demo`: train, evaluate, tag and explain on the built-in set, in minutes on a laptop.

The set is ICD-10-CM cut at the three-character category (`icd10cm`); the model learns from a part
of its training texts, drawn with a fixed seed, and so does the TF-IDF baseline beside it.
"""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli import console, options
from glocal.cli.explain import expert_titles, show_explanations
from glocal.cli.parameters import option
from glocal.table import Column, Table, columns

if TYPE_CHECKING:
    from glocal.data.builtin import BuiltinData
    from glocal.predict.evaluation import EvaluationReport
    from glocal.predict.predictor import Predictor
    from glocal.vocabulary.label_space import LabelSpace

app = typer.Typer()

OUT = Path("demo-model")
TRAIN_TEXTS = 6_000
KS = (1, 3, 5)
EXAMPLES = (
    "Inflammation of the middle ear with discharge of pus in a small child",
    "Burn on the back of the right hand from boiling water",
    "Old man who cannot remember where he lives and gets lost in his own street",
)
NEXT = """Next:
  {glocal} explain {out} "pain in the left knee after a fall"
  {glocal} eval {out} icd10cm:test
  {glocal} data inspect YOUR.jsonl
  {glocal} train YOUR.jsonl --out my-model
`{glocal} --help` lists all commands.
To try it in a browser, run this and open http://127.0.0.1:8000:
  {glocal} serve {out}"""


@app.command()
def demo(
    *,
    out: Annotated[Path, option("Model directory to write.", "--out", "-o")] = OUT,
    recipe: options.RecipeName = "demo",
    override: options.Override = None,
    texts: Annotated[
        int, option("Training texts used; there are about 58,000.", min=1)
    ] = TRAIN_TEXTS,
    baseline: Annotated[bool, option("Also train the TF-IDF linear baseline.")] = True,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    device: options.Device = "auto",
) -> None:
    """Train, evaluate, tag and explain on a built-in data set."""
    from glocal.config import load_recipe
    from glocal.errors import require

    settings = load_recipe(recipe, override or ())
    if baseline:  # said now rather than after the training
        require("sklearn", extra="demo", purpose="the baseline (--no-baseline does without)")
    data = _load(texts)

    from glocal.cli.train import summary
    from glocal.cli.training_progress import TrainingProgress
    from glocal.predict.predictor import Predictor
    from glocal.train.run import fit
    from glocal.vocabulary.label_table import LabelTable

    console.note(f"Training on {len(data.train):,} texts with the recipe '{recipe}' …")
    with TrainingProgress() as progress:
        result = fit(
            settings,
            data.train,
            out=out,
            dev=data.dev,
            label_table=LabelTable.from_rows(data.label_rows),
            resume=resume,
            overwrite=overwrite or out == OUT,
            device=device,
            listener=progress,
        )
    console.note(summary(result))
    predictor = Predictor.load(result.path, device=device)
    runs = {settings.system: _Run(predictor.evaluate(data.test, ks=KS), result.seconds)}
    if baseline:
        runs["TF-IDF + linear SVM"] = _run_baseline(data, predictor.labels)
    if console.settings.as_json:
        console.print_json({method: run.report.to_dict() for method, run in runs.items()})
    else:
        console.stdout().print(_scores(runs), _bands(runs))
        _tag_examples(predictor)
    console.note(NEXT.format(glocal=_command(), out=out))


def _command() -> str:
    """Return how to call glocal from here: by its name, or by the path it was started with."""
    started = Path(sys.argv[0])
    named = shutil.which("glocal")
    if started.stem != "glocal" or (named and Path(named).resolve() == started.resolve()):
        return "glocal"
    return str(started)


@dataclass(frozen=True)
class _Run:
    """The report of a method on the test texts, and its training time."""

    report: EvaluationReport
    seconds: float


def _load(n_texts: int) -> BuiltinData:
    """Return the built-in set with a part of its training texts, drawn with a fixed seed."""
    import numpy as np

    from glocal.data.icd10cm import load_icd10cm

    data = load_icd10cm(level="category")
    order = np.random.default_rng(0).permutation(len(data.train))
    part = data.train.take(np.sort(order[:n_texts]))
    console.note(
        f"icd10cm: {len(part):,} of {len(data.train):,} training texts, {len(data.dev):,} dev and "
        f"{len(data.test):,} test texts; labels are the chapter, block and category of a diagnosis."
    )
    return replace(data, train=part)


def _run_baseline(data: BuiltinData, labels: LabelSpace) -> _Run:
    from glocal.lab.baselines.quick_svm import linear_baseline
    from glocal.predict.evaluation import evaluate_predictions

    started = time.monotonic()
    console.note("Training the TF-IDF baseline, one linear classifier for each label …")
    with console.progress_bar("baseline", unit="labels") as progress:
        found = linear_baseline(data.train, data.test, labels, k=max(KS), progress=progress)
    report = evaluate_predictions(
        found,
        labels.encode(data.test),
        counts=labels.counts,
        n_train=labels.n_documents,
        ks=KS,
    )
    return _Run(report, time.monotonic() - started)


def _scores(runs: dict[str, _Run]) -> Table:
    from glocal.cli.training_progress import format_seconds

    # nDCG@1 is P@1.
    names = ["P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5"]
    rows = [
        (
            part,
            *(scores[name] for name in names),
            format_seconds(run.seconds) if part == method else "",
        )
        for method, run in runs.items()
        for part, scores in _parts(method, run.report).items()
    ]
    heads = [Column("", "text"), *columns("share", *names), Column("training", "text")]
    return Table("Test scores", heads, rows)


def _parts(method: str, report: EvaluationReport) -> dict[str, dict[str, float]]:
    """Return the scores of a method and, below it, of each of its experts."""
    titles = expert_titles(list(report.experts))
    return {
        method: report.scores,
        **{f"  {titles[name]}": expert.scores for name, expert in report.experts.items()},
    }


def _bands(runs: dict[str, _Run]) -> Table:
    k = max(KS)
    rows = [
        (method, band, found.n_labels, found.precision, found.recall, found.f1)
        for method, run in runs.items()
        for band, scores in run.report.macro[k].items()
        for found in [scores.with_gold]
    ]
    title = f"Macro averages at {k} by training texts of the label, over labels with test gold"
    heads = [*columns("text", "", "band"), Column("labels", "count")]
    return Table(title, [*heads, *columns("share", "P", "R", "F1")], rows)


def _tag_examples(predictor: Predictor) -> None:
    out = console.stdout()
    for text in EXAMPLES:
        out.print(f"“{text}”", style="bold underline")
        show_explanations(text, predictor.explain(text, k=4, words=4))

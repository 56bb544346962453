"""`glocal combine`: save experts' scores, and combine experts and models by them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glocal.cli import console, options
from glocal.cli.corpora import read_file
from glocal.cli.evaluate import show_reports
from glocal.cli.parameters import argument, option
from glocal.errors import ConfigError

app = typer.Typer(
    help="Save experts' scores, and combine experts and models by them.",
    no_args_is_help=True,
)


@app.command()
@options.reads_files
def save(
    model: options.Model,
    file: Annotated[str, argument("Texts with labels.", metavar="FILE")],
    *,
    out: Annotated[
        Path, option("File for the scores, such as dev.npz.", "--out", "-o", metavar="FILE")
    ],
    best: Annotated[int, option("Labels that each expert proposes for a text.", min=1)] = 30,
    batch_size: options.BatchSize = 64,
    device: options.Device = "auto",
    reading: options.Reading,
) -> None:
    """Save every expert's scores of the best labels of each text, with the gold labels."""
    from glocal.lab.saved_scores import save_scores
    from glocal.predict.predictor import Predictor

    corpus = read_file(file, **reading)
    predictor = Predictor.load(model, device=device, batch_size=batch_size)
    with console.progress_bar("scoring", unit="readings") as progress:
        scores = save_scores(predictor, corpus, best=best, progress=progress)
    scores.save(out)
    console.show({"path": str(out), "texts": len(scores), "experts": scores.experts})
    console.note(f"Wrote {out}: {len(scores):,} texts, experts {', '.join(scores.experts)}.")


@app.command()
def fit(
    dev: Annotated[list[Path], argument("Saved scores on dev, one file per model.", metavar="DEV")],
    *,
    test: Annotated[
        list[Path] | None,
        option("Saved scores on test; repeat it for each model, in the order of DEV."),
    ] = None,
    way: Annotated[
        str,
        option(
            "weights (one per expert and model), members (experts of one name averaged, as in the "
            "recipe best) or mean (probabilities averaged, nothing fitted)."
        ),
    ] = "weights",
    experts: Annotated[
        str | None, option("Experts to use, such as D-last,S; all by default.", metavar="NAME,…")
    ] = None,
    k: options.CutOffs = "1,3,5",
    out: Annotated[
        Path | None,
        option(
            "File for the combined scores on test, or on dev without test.",
            "--out",
            "-o",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Fit a combination of experts and models on dev, and score it on dev and test."""
    from glocal.lab.combine import combine
    from glocal.lab.saved_scores import SavedScores

    ks = options.parse_ks(k)
    names = None if experts is None else [name.strip() for name in experts.split(",")]
    found = combine(
        [SavedScores.load(path) for path in dev],
        [SavedScores.load(path) for path in test or ()],
        way=way,
        experts=names,
        ks=ks,
    )
    if out is not None:
        found.scores.save(out)
    combination = found.combination.to_mapping()
    reports = {"dev": found.dev} | ({} if found.test is None else {"test": found.test})
    plain = {name: report.to_dict() for name, report in reports.items()}
    console.show({"combination": combination, **plain})
    show_reports(reports)
    weights = ", ".join(f"{name} {value:.3f}" for name, value in combination["weights"].items())
    if weights:
        terms = f"frequency {combination['frequency']:.3f}, bias {combination['bias']:.3f}"
        console.note(f"Weights fitted on dev: {weights}; {terms}.")


@app.command()
def compare(
    first: Annotated[Path, argument("Saved scores to compare with.", metavar="FIRST")],
    others: Annotated[list[Path], argument("Saved scores of other models.", metavar="OTHER")],
    *,
    k: options.CutOffs = "1,3,5",
) -> None:
    """Compare saved scores by paired bootstrap over the texts.

    Each OTHER is compared with FIRST; of several, such as models of different seeds, the mean and
    the standard deviation are given too. A file that `glocal combine fit` wrote counts as it is, a
    file of several experts by the mean of their probabilities.
    """
    from glocal.lab.saved_scores import SavedScores
    from glocal.lab.score_comparison import compare_scores

    paths = [first, *others]
    if len(set(paths)) < len(paths):
        raise ConfigError("a file is given twice; give each once")
    found = compare_scores({str(p): SavedScores.load(p) for p in paths}, ks=options.parse_ks(k))
    console.show(found.to_dict(), found.tables())

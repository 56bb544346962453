"""`glocal threshold`: tune which labels become tags, on labelled texts, after training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli import console, options
from glocal.cli.corpora import read_file
from glocal.cli.parameters import argument, option
from glocal.errors import ConfigError

if TYPE_CHECKING:
    from glocal.table import Table
    from glocal.update.threshold_update import ThresholdUpdate

app = typer.Typer()


@app.command()
@options.reads_files
def threshold(
    model: options.Model,
    file: Annotated[str, argument("Labelled texts the model was not trained on.", metavar="FILE")],
    *,
    precision: Annotated[
        float | None,
        option("Share of right tags among all tags, such as 0.8.", min=0, max=1),
    ] = None,
    f1: Annotated[bool, option("Highest micro-F1; the default.", "--f1")] = False,
    labels_per_text: Annotated[
        float | None, option("Mean number of tags of a text, such as 5.", metavar="N")
    ] = None,
    per_label: Annotated[
        bool,
        option("Also give labels thresholds of their own where there are enough texts."),
    ] = False,
    at_least: Annotated[
        int | None,
        option(
            "Tags a text gets whatever their probability.",
            min=0,
            show_default="1; 0 with --precision",
        ),
    ] = None,
    dry_run: Annotated[bool, option("Only report; leave the model as it is.", "--dry-run")] = False,
    batch_size: options.BatchSize = 64,
    device: options.Device = "auto",
    reading: options.Reading,
) -> None:
    """Tune which labels become tags, and store that with the model.

    Choose a precision, the highest F1 or a number of labels per text. The report shows what it
    costs in recall. Prediction, the server and its page use the new threshold by default.
    """
    from glocal.storage.model_directory import read_labels
    from glocal.update.threshold_update import tune_threshold

    if f1 and (precision is not None or labels_per_text is not None):
        other = "--precision" if precision is not None else "--labels-per-text"
        raise ConfigError(f"--f1 and {other} exclude each other; give one of them")
    corpus = read_file(file, known=[read_labels(model)], require_labels=True, **reading)
    with console.progress_bar("tagging") as progress:
        update = tune_threshold(
            model,
            corpus,
            precision=precision,
            labels_per_text=labels_per_text,
            per_label=per_label,
            at_least=at_least,
            store=not dry_run,
            device=device,
            batch_size=batch_size,
            progress=progress,
        )
    console.show(update.to_dict(), [_table(update, file)])
    console.note(_summary(update))


def _table(update: ThresholdUpdate, file: str) -> Table:
    from glocal.table import Table, columns

    heads = [
        *columns("text", "tags"),
        *columns("number", "threshold", "precision", "recall", "F1", "per text", "without"),
    ]
    rows = [
        (
            name,
            f"{decision.threshold:.3f}",
            *(f"{100 * value:.1f}" for value in (scores.precision, scores.recall, scores.f1)),
            f"{scores.tags_per_text:.2f}",
            f"{100 * scores.without_tags:.1f}%",
        )
        for name, decision, scores in (
            ("before", update.former, update.before),
            (f"for {update.decision.goal}", update.decision, update.after),
        )
    ]
    note = "Micro averages in percent, tags per text, share of texts without tags."
    if own := len(update.decision.own):
        note += f" {own:,} labels have a threshold of their own; their scores are cross-validated."
    return Table(f"Tags of {update.n_texts:,} texts of {file}", heads, rows, note)


def _summary(update: ThresholdUpdate) -> str:
    recall = _moved(update.after.recall - update.before.recall)
    precision = _moved(update.after.precision - update.before.precision)
    text = f"Recall {recall}, precision {precision}."
    if not update.stored:
        return f"{text} The model was not changed."
    return f"{text} Stored in {update.path}; `glocal info` shows it."


def _moved(change: float) -> str:
    points = round(100 * change, 1)
    if not points:
        return "stays the same"
    return f"{'falls' if points < 0 else 'rises'} by {abs(points):.1f} points"

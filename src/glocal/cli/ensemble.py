"""`glocal ensemble`: the mean of several models, with one in memory at a time."""

from __future__ import annotations

from typing import Annotated

import typer

from glocal.cli import console, options
from glocal.cli.corpora import read_file
from glocal.cli.evaluate import show_reports
from glocal.cli.parameters import argument, option
from glocal.cli.predict import To, tag_writer
from glocal.errors import ConfigError

app = typer.Typer()


@app.command()
@options.reads_files
def ensemble(
    paths: Annotated[
        list[str], argument("Model directories, and texts to tag.", metavar="MODEL… FILE")
    ],
    *,
    output: Annotated[
        str | None, option("File for the tags; - for stdout.", "--output", "-o", metavar="FILE")
    ] = None,
    to: To = None,
    evaluate: Annotated[bool, option("Evaluate on the labels of the file.", "--eval")] = False,
    k: options.TopK = None,
    ks: Annotated[str, option("Cut-offs of the metrics for --eval.", "--ks")] = "1,3,5",
    pool: Annotated[int, option("Labels taken from each model for each text.", min=1)] = 100,
    raw: Annotated[
        bool, option("Average probabilities without their calibration, as in the papers.", "--raw")
    ] = False,
    threshold: Annotated[
        float, option("Skip labels with a lower probability.", min=0, max=1)
    ] = 0.0,
    names: Annotated[bool, option("Give each label's name beside its id.")] = True,
    batch_size: options.BatchSize = 64,
    device: options.Device = "auto",
    reading: options.Reading,
) -> None:
    """Tag or evaluate with the mean of several models.

    The models must have the same labels; one is in memory at a time.
    """
    models, file = options.split_models_and_file(paths, command="ensemble")
    if not evaluate and output is None:
        raise ConfigError("nothing to do: give --output FILE for the tags, --eval, or both")
    cut_offs = options.parse_ks(ks) if evaluate else ()

    from glocal.predict.ensemble import ensemble_labels, ensemble_predict

    labels = ensemble_labels(models)  # before the texts, so that a mismatch is reported at once
    width = options.choose_k(k, len(labels))
    corpus = read_file(file, **reading)
    with console.progress_bar("voting", unit="readings") as progress:
        found = ensemble_predict(
            models,
            corpus,
            k=max(width, min(max(cut_offs, default=0), len(labels))),
            pool=pool,
            raw=raw,
            device=device,
            batch_size=batch_size,
            progress=progress,
        )
    if output is not None:
        from glocal.predict.bulk import prediction_rows

        with tag_writer(output, to, names=names) as write:
            tags = found.head(width).above(threshold)
            write(prediction_rows(corpus.ids, tags, names=names))
        if output != "-":
            console.note(f"Wrote {output}.")
    if evaluate:
        from glocal.predict.evaluation import evaluate_predictions

        gold, counts = labels.encode(corpus), labels.counts
        report = evaluate_predictions(
            found, gold, counts=counts, n_train=labels.n_documents, ks=cut_offs
        )
        console.show(report.to_dict())
        show_reports({f"ensemble of {', '.join(map(str, models))}": report})

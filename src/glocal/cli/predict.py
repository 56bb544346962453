"""`glocal predict`: tag any number of texts, from a file or a stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console, options
from glocal.cli.corpora import read_label_list, report_skipped
from glocal.cli.parameters import argument, option
from glocal.errors import ConfigError, no_such

if TYPE_CHECKING:
    from glocal.predict.shards import ShardEngine
    from glocal.predict.tag_files import RowSink, TagRow

app = typer.Typer()

TABLE = "table"
PRECISIONS = ("fp32", "bf16")
_M_ARENA_MAX = -8  # of malloc.h

To = Annotated[
    str | None,
    option(
        "Format of the tags: jsonl, csv, tsv, parquet, annif or table.",
        metavar="FORMAT",
        show_default="by the file's ending; jsonl on stdout, a table on a terminal",
    ),
]


@app.command()
@options.reads_files
def predict(
    model: options.Model,
    files: Annotated[
        list[str] | None,
        argument("Texts to tag; - for stdin.", metavar="FILE", show_default="-"),
    ] = None,
    *,
    k: Annotated[
        int | None,
        option(
            "Labels for each text [default: those that reach the model's own threshold]",
            "--k",
            "-k",
            metavar="N",
            min=1,
            show_default=False,
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        option("Lowest probability of a tag.", min=0, max=1, show_default="the model's own"),
    ] = None,
    only: Annotated[
        str | None, option("Label ids to choose from, one on each line.", metavar="FILE")
    ] = None,
    exclude: Annotated[
        str | None, option("Label ids never to predict, one on each line.", metavar="FILE")
    ] = None,
    route: Annotated[
        list[str] | None,
        option("Model for texts of a language; may be repeated.", metavar="LANGUAGE=MODEL"),
    ] = None,
    output: Annotated[
        str | None,
        option(
            "File for the tags, ending in .jsonl, .csv, .tsv (also with .gz) or .parquet; a folder "
            "for --to annif.",
            "--output",
            "-o",
            metavar="FILE",
            show_default="stdout",
        ),
    ] = None,
    to: To = None,
    names: Annotated[bool, option("Add the name of each label to its id.")] = True,
    strict: Annotated[
        bool, option("Stop at the first row that cannot be used.", "--strict")
    ] = False,
    batch_size: options.BatchSize = 64,
    device: options.Device = "auto",
    precision: Annotated[
        str,
        option("Precision of encoder and experts: fp32, or bf16 for speed on a GPU."),
    ] = "fp32",
    workers: Annotated[
        int | None,
        option(
            "Workers that tag at once; needs --output.",
            metavar="N",
            min=1,
            show_default="this process alone; with ray as many as fit",
        ),
    ] = None,
    engine: options.Engine = "processes",
    address: options.Address = None,
    reading: options.Reading,
) -> None:
    """Tag texts, in their order and with the best label first.

    Each text gets the labels that reach the threshold tuned in training, and at least one. With -k
    N it gets its N best labels instead, with --threshold every label that reaches it, with both at
    most N of those.

    With --route, texts are tagged by the model of their language, and by MODEL where it is none of
    these: `glocal predict model-en texts.jsonl --route en=model-en --route de=model-de`.

    Without FILE, texts are read from stdin and tagged as they come. A row that cannot be used
    becomes a row with an error; --skip-bad-rows leaves it out, --strict stops there.

    Tags are JSON lines, or a table on a terminal. With --batch-size 1 each text is written as soon
    as it is tagged.

    --workers N tags on several processes, --engine ray on a cluster. A run that was stopped or
    killed continues where it was when the same command is given again.
    """
    _return_freed_memory()
    skip = reading.pop("skip_bad_rows")
    if skip and strict:
        raise ConfigError("--skip-bad-rows and --strict exclude each other; give one of them")
    if precision not in PRECISIONS:
        raise ConfigError(no_such("precision", precision, PRECISIONS))
    paths = files or ["-"]
    tags = {
        "k": k,
        "threshold": threshold,
        "names": names,
        "only": read_label_list(only),
        "exclude": read_label_list(exclude),
    }
    if "-" in paths and sys.stdin.isatty():
        console.note("Reading texts from the terminal; end with Ctrl-D.")
    with console.progress_bar("tagging") as progress:
        common: dict[str, Any] = {
            "bad_rows": "stop" if strict else "skip" if skip else "report",
            "progress": progress,
            "reading": reading,
        }
        place = {"batch_size": batch_size, "device": device, "precision": precision}
        to = "jsonl" if console.settings.as_json else to
        shards = _shard_engine(engine, address, workers, device=device)
        run = _Run(model, paths, output, to, place, tags, common)
        if shards is None:
            problems = run.here(route)
        elif route:
            raise ConfigError("--route tags in one process; leave out --workers and --engine")
        else:
            problems = run.on(shards)
    report_skipped(problems, verb="skipped" if skip else "could not be tagged")
    if output not in (None, "-"):
        console.note(f"Wrote {output}.")


@dataclass(frozen=True)
class _Run:
    """Texts to tag, how to read and tag them, and where the tags go."""

    model: Path
    paths: list[str]
    output: str | None
    to: str | None
    place: dict[str, Any]  # where and how it is computed
    tags: dict[str, Any]  # which tags a text gets
    common: dict[str, Any]

    def here(self, routes: list[str] | None) -> list[str]:
        """Tag the texts in this process; return the problems of rows."""
        from glocal.predict.bulk import CHUNK, WORDS_CHUNK, predict_file
        from glocal.predict.language_routing import LanguageRoutes, parse_routes

        parsed, tags = parse_routes(routes) if routes else {}, self.tags
        with tag_writer(self.output, self.to, names=tags["names"]) as write:
            models = LanguageRoutes.load(self.model, parsed, **self.place)
            if tags["k"] is not None:
                for predictor in models.predictors:
                    predictor.check_k(tags["k"])
            words_alone = all(each.recipe.reads_words_alone for each in models.predictors)
            at_once = WORDS_CHUNK if words_alone else CHUNK
            size = 1 if self.place["batch_size"] == 1 else at_once
            chosen = models if parsed else models.fallback
            return predict_file(chosen, self.paths, write, chunk_size=size, **self.common, **tags)

    def on(self, engine: ShardEngine) -> list[str]:
        """Tag the texts on several workers; return the problems of rows."""
        from glocal.predict.sharded import predict_sharded, shard_folder, shard_rows
        from glocal.predict.shards import ShardJob

        output, to, model = self.output, self.to, self.model
        if output in (None, "-") or to in (TABLE, "annif"):
            raise ConfigError(
                "several workers write one file; give it with --output, as in tags.jsonl"
            )
        assert output is not None
        rows, options = shard_rows(model), self.tags
        job = ShardJob(str(model), shard_folder(output), rows=rows, options=options, **self.place)
        return predict_sharded(engine, job, self.paths, output, to=to, **self.common)


def _shard_engine(
    name: str, address: str | None, workers: int | None, *, device: str
) -> ShardEngine | None:
    """Return the engine that tags shards; None to tag in this process."""
    if options.uses_ray(name, address):
        from glocal.cluster.ray_shards import RayEngine

        return RayEngine(address, workers=workers, gpus=1 if device.startswith("cuda") else 0)
    if workers is None:
        return None
    from glocal.predict.shard_processes import ProcessEngine

    return ProcessEngine(workers)


def _return_freed_memory() -> None:
    """Let chunks of texts use the same memory; must be called before Arrow is imported.

    Arrow's own allocator keeps what it has freed (40 MB), and so does every part of the C library's
    heap (20 MB), of which there may be one for every four cores: more threads would wait for it.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if sys.platform == "linux":
        import ctypes

        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, max(1, (os.cpu_count() or 1) // 4))


@contextmanager
def tag_writer(output: str | None, to: str | None, *, names: bool) -> Iterator[RowSink]:
    """Open the place for tags: a file, stdout, or a table for people."""
    from glocal.predict.tag_files import open_writer

    on_stdout = output in (None, "-")
    if to == TABLE or (to is None and on_stdout and sys.stdout.isatty()):
        if not on_stdout:
            raise ConfigError(f"--to table prints to the terminal; leave out --output {output}")
        yield _print_tags
        return
    with open_writer(output, to=to, names=names) as write:
        yield write


def _print_tags(rows: Iterable[TagRow]) -> None:
    """Print rows as a table: each id, and below it probability, name and id of its labels."""
    out = console.stdout()
    for row in rows:
        out.print("–" if row["id"] is None else row["id"], style="bold")
        if "error" in row:
            out.print(f"  {row['error']}", style="red", soft_wrap=True)
        for tag in row["labels"]:
            name = tag.get("name", tag["id"])
            label_id = f"  {tag['id']}" if name != tag["id"] else ""
            out.print(f"  {100 * tag['score']:5.1f}  {name}{label_id}", soft_wrap=True)

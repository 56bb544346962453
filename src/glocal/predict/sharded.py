"""Bulk prediction by shards: any number of workers, resumable, one output.

`predict_sharded` reads the input once, has an engine predict the shards that are not done yet
(`shards.py` has the protocol), and joins the finished ones, in order, into the same file that a
single process would write. While it runs, finished shards are in `OUTPUT.shards`; a run that was
killed continues with them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glocal.config.expert_names import SPARSE_EXPERT
from glocal.data.file_store import FileStore, open_store
from glocal.errors import GlocalError
from glocal.predict.bulk import CHUNK, WORDS_CHUNK, BadRows, RowReader
from glocal.predict.shards import MANIFEST, Shard, ShardEngine, ShardJob, manifest_of
from glocal.predict.tag_files import open_line_writer
from glocal.progress import Progress, report
from glocal.storage.integrity import check_model
from glocal.storage.model_directory import read_settings

logger = logging.getLogger(__name__)


def shard_folder(output: str) -> str:
    """Return the folder of the shards of an output file."""
    return f"{output}.shards"


def shard_rows(model: str | Path) -> int:
    """Return the rows of a shard: as many as a single process predicts at a time."""
    experts = read_settings(Path(model))["recipe"]["experts"]
    return WORDS_CHUNK if tuple(experts) == (SPARSE_EXPERT,) else CHUNK


def predict_sharded(
    engine: ShardEngine,
    job: ShardJob,
    paths: Sequence[str | Path],
    output: str,
    *,
    to: str | None = None,
    bad_rows: BadRows = "report",
    progress: Progress | None = None,
    reading: Mapping[str, Any] | None = None,
) -> list[str]:
    """Tag the documents of files on several workers and write one file of tags.

    Args:
        engine: Has the shards predicted.
        job: The model, the folder for shards and the options.
        paths: The files.
        output: The file of tags.
        to: Its format; by default that of its ending.
        bad_rows: As for `predict_file`.
        progress: Called with the documents done and None, as the total is not known.
        reading: Arguments of `iter_documents`.

    Returns:
        One sentence for each row that could not be used.

    Raises:
        DataError: The file cannot be read, no row can be used, or one cannot with `stop`.
        ModelError: The model directory cannot be used.
    """
    check_model(job.model)
    names = bool(job.options.get("names", True))
    store = open_store(job.folder)
    # Opened first: an output that cannot be written is an error before any work.
    with store.exclusive(), open_line_writer(output, to=to, names=names) as write:
        rows = RowReader(paths, job.rows, bad_rows, reading or {})
        work = _Work(store, rows)
        _start_or_continue(store, manifest_of(job, reading or {}))
        done = 0
        for n_rows in work.through(engine, job):
            done += n_rows
            report(progress, done, None)
        rows.check_usable()
        for name, n_rows in work.finished:
            lines = store.read(name)
            if (found := lines.count(b"\n")) != n_rows:
                raise GlocalError(
                    f"{job.folder}/{name} has {found} rows in place of {n_rows}; remove it and run "
                    "the command again"
                )
            write(lines)
    store.remove()
    return rows.problems


def _start_or_continue(store: FileStore, manifest: bytes) -> None:
    """Keep the finished shards of an earlier run of the same job; discard those of another."""
    names = store.names()
    if MANIFEST in names and store.read(MANIFEST) == manifest:
        if len(names) > 1:
            logger.info(
                "continuing with the %d finished shards in %s", len(names) - 1, store.address
            )
        return
    if names:
        logger.warning(
            "%s has shards of another model or other options; they are discarded", store.address
        )
        store.remove()
    store.write(MANIFEST, manifest)


@dataclass
class _Work:
    """The shards of an input: read in order, some of them done before.

    Attributes:
        store: The finished shards.
        rows: Reads the rows of each shard, cut as `predict_file` cuts its chunks.
        finished: File name and rows of each shard, in order.
    """

    store: FileStore
    rows: RowReader
    finished: list[tuple[str, int]] = field(default_factory=list)

    def through(self, engine: ShardEngine, job: ShardJob) -> Iterator[int]:
        """Predict the shards that are not done yet; yield numbers of rows as they are done."""
        before = set(self.store.names())
        skipped: list[int] = []  # rows alone: the shards themselves must not stay in memory

        def remaining() -> Iterator[Shard]:
            for number, rows in enumerate(self.rows.chunks()):
                shard = Shard(number, rows)
                self.finished.append((shard.file_name, len(rows)))
                if shard.file_name in before:
                    skipped.append(len(rows))
                else:
                    yield shard

        for shard in engine.run(job, remaining()):
            yield len(shard.rows)
            while skipped:
                yield skipped.pop()
        yield from skipped

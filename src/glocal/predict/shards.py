"""Shards of a bulk prediction: the unit of work that is done once, by whichever worker.

- The input is cut into shards of `ShardJob.rows` rows, in its order, at the same places as a single
  process cuts its chunks: a shard is predicted exactly as that process would predict it.
- The tags of a shard are one file of JSON lines in a folder, published all at once. Its name has
  the shard's number and the checksum of its input, so that a finished shard is known by its file
  and never done twice, and one whose input has changed since is done again.
- `manifest.json` in the folder says what the tags depend on besides the input (the model's files
  and the options); tags made otherwise are discarded.
- An engine (`ShardEngine`) has the shards predicted, in any order, on processes or a cluster. It
  gives the shard of a lost worker to another one.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from glocal.data.checksums import CHECKSUMS_FILE, file_checksum
from glocal.data.corpus import Document
from glocal.data.file_store import open_store
from glocal.errors import DataError, GlocalError
from glocal.predict.bulk import CHUNK, TopKPredictor, predict_rows
from glocal.predict.tag_files import jsonl_line

FORMAT = 1
MANIFEST = "manifest.json"
ShardRow = Document | DataError  # an error stands for a row that cannot be used


@dataclass(frozen=True)
class ShardJob:
    """A bulk prediction, as every worker has to know it.

    Attributes:
        model: The model directory; every worker reads it.
        folder: Address of the folder for finished shards.
        rows: Rows of a shard.
        batch_size: Texts computed at a time.
        device: The device of each worker.
        precision: `fp32`, or `bf16` for speed on a GPU.
        options: Arguments of `Tagging`: k, threshold, names, only, exclude.
    """

    model: str
    folder: str
    rows: int = CHUNK
    batch_size: int = 64
    device: str = "auto"
    precision: str = "fp32"
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """Return the job as JSON values."""
        return asdict(self)

    def lost(self, shard: Shard, workers: int) -> GlocalError:
        """Return the error of a shard whose workers are lost again and again."""
        first = shard.number * self.rows
        return GlocalError(
            f"{workers} workers in a row were lost with rows {first + 1} to "
            f"{first + len(shard.rows)} of the input; look at these rows and at the memory of the "
            "workers, and run the command again: finished shards are kept"
        )


@dataclass(frozen=True)
class Shard:
    """Some rows of the input, in order.

    Attributes:
        number: Its place among the shards, from 0.
        rows: Documents, and errors for rows that cannot be used.
    """

    number: int
    rows: Sequence[ShardRow]

    @functools.cached_property
    def file_name(self) -> str:
        """Name of the file of its tags, with the checksum of its rows."""
        import xxhash

        digest = xxhash.xxh3_128()
        for row in self.rows:
            for part in _row_to_list(row):
                digest.update(b"\0" if part is None else part.encode("utf-8", "surrogatepass"))
                digest.update(b"\xff")  # never a byte of UTF-8
        return f"shard-{self.number:06d}-{digest.hexdigest()}.jsonl"

    def to_list(self) -> list[Any]:
        """Return the shard as JSON values."""
        return [self.number, [_row_to_list(row) for row in self.rows]]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Shard:
        """Return the shard that `to_list` wrote."""
        number, rows = values
        return cls(number, [_row_from_list(row) for row in rows])


class ShardEngine(Protocol):
    """Has shards predicted."""

    def run(self, job: ShardJob, shards: Iterable[Shard]) -> Iterator[Shard]:
        """Predict every shard and yield each when its tags are published, in any order.

        Shards are taken only as workers are free, so that few are in memory.
        """


def predict_shard(predictor: TopKPredictor, job: ShardJob, shard: Shard) -> None:
    """Predict a shard and publish its tags."""
    tags = io.BytesIO()
    for row in predict_rows(predictor, shard.rows, chunk_size=job.rows, **job.options):
        tags.write(jsonl_line(row))
    open_store(job.folder).write(shard.file_name, tags.getvalue())


def manifest_of(job: ShardJob, reading: Mapping[str, Any]) -> bytes:
    """Return what the tags depend on besides the input, as JSON."""
    checksums = Path(job.model) / CHECKSUMS_FILE
    settings = Path(job.model) / "glocal.toml"  # of a model that has no checksums yet
    document = {
        "format": FORMAT,
        "model": file_checksum(checksums if checksums.is_file() else settings),
        "rows": job.rows,
        "batch_size": job.batch_size,
        "precision": job.precision,
        "options": dict(job.options),
        "reading": {name: value for name, value in reading.items() if value is not None},
    }
    return (json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n").encode()


def _row_to_list(row: ShardRow) -> list[str | None]:
    """Return a row as strings: the id and the text of a document, or the message of an error."""
    if isinstance(row, DataError):
        return [row.document_id, None, row.message]
    return [row.id, row.text]


def _row_from_list(row: Sequence[str | None]) -> ShardRow:
    if len(row) == 3:
        return DataError(row[2] or "", document_id=row[0])
    return Document(row[0] or "", row[1] or "")

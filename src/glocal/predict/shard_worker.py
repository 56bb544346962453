"""A process that predicts shards: the job and then the shards come on stdin, one JSON on each line.

Each shard is answered on stdout when its tags are published, with `{}` or the problem. The process
ends when stdin does, also when the process that started it was killed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

from glocal.errors import GlocalError
from glocal.predict.shards import Shard, ShardJob, predict_shard

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor


def main() -> None:
    """Predict shards until stdin ends."""
    # Ctrl-C reaches every process of the terminal; the one that started this one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever prints to stdout must not come between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    logging.getLogger("glocal").setLevel(logging.ERROR)  # warnings come from the starting process
    with contextlib.suppress(BrokenPipeError):  # nobody waits for the answer any more
        serve(sys.stdin.buffer, answers)


def serve(shards: IO[bytes], answers: IO[bytes]) -> None:
    """Answer every shard; a problem is answered in place of a shard."""
    first = shards.readline()
    if not first:
        return
    worker = ShardWorker(json.loads(first))
    for line in shards:
        answers.write(json.dumps(worker.answer(json.loads(line))).encode() + b"\n")
        answers.flush()


class ShardWorker:
    """Predicts shards with a model that is loaded with the first one.

    Args:
        job: What `ShardJob.to_mapping` returned.
    """

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._job = ShardJob(**job)

    def answer(self, shard: Sequence[Any]) -> dict[str, Any]:
        """Predict and publish a shard, given as `Shard.to_list` wrote it.

        Returns:
            Nothing, or the problem as JSON values.
        """
        try:
            predict_shard(self._predictor, self._job, Shard.from_list(shard))
        except GlocalError as error:
            return {"error": str(error)}
        except OSError as error:
            path = None if error.filename is None else os.fsdecode(error.filename)
            return {"errno": error.errno, "error": error.strerror or str(error), "path": path}
        return {}

    @cached_property
    def _predictor(self) -> Predictor:
        from glocal.predict.predictor import Predictor

        job = self._job
        loaded = Predictor.load(
            job.model, device=job.device, batch_size=job.batch_size, precision=job.precision
        )
        if (k := job.options.get("k")) is not None:
            loaded.check_k(k)
        return loaded


def raise_problem(answer: Mapping[str, Any]) -> None:
    """Raise the problem of an answer, if it has one."""
    if "errno" in answer:
        raise OSError(answer["errno"], answer["error"], answer["path"])
    if "error" in answer:
        raise GlocalError(answer["error"])


if __name__ == "__main__":
    main()

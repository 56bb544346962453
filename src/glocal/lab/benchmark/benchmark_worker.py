"""The process of one row: `python -m glocal.lab.benchmark.benchmark_worker JOB.json`.

Measures the row and writes it, also when it fails. Everything said goes to stderr, which the parent
keeps as the row's log. Ends by itself when the parent is gone.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from pathlib import Path

from glocal.errors import GlocalError, Interrupted
from glocal.lab.benchmark.benchmark_rows import Job

__all__ = ["STOPPED", "main"]

STOPPED = 130  # exit status when the user stopped it
_PARENT_SECONDS = 2.0


def main(arguments: list[str]) -> int:
    """Measure the row of a job file."""
    job = Job.load(Path(arguments[0]))
    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    try:
        from glocal.lab.benchmark.benchmark_measure import measure

        row = measure(job, _say)
    except (Interrupted, KeyboardInterrupt):
        return STOPPED
    except Exception as error:
        traceback.print_exc()
        row = job.failed(_reason(error))
    row.save(Path(job.row_path))
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _reason(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0] if isinstance(error, GlocalError) else f"{type(error).__name__}: {lines[0]}"


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(STOPPED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The child process of a job: `python -m glocal.lab.experiment.worker FOLDER`.

Runs the job of FOLDER/job.json and writes FOLDER/result.json, also when the job fails. Its output
is the job's log. Ends by itself when the parent is gone.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glocal.errors import Interrupted
from glocal.lab.experiment.jobs import Job, JobListener

__all__ = ["STAGE", "STOPPED", "main"]

STOPPED = 130  # exit status when the user stopped it
STAGE = "== "  # opens a log line that names the stage
_PARENT_SECONDS = 2.0


class LogListener(JobListener):
    """Writes progress to the log."""

    def on_step(self, info: Mapping[str, Any]) -> None:
        """Write a percentage."""
        share = 100 * info["step"] / max(1, info["steps"])
        member = f"{info['member']}, " if "member" in info else ""
        self.on_message(f"{member}{share:.1f} % (step {info['step']:,} of {info['steps']:,})")

    def on_stage(self, stage: str) -> None:
        """Write the name of the stage that starts."""
        self.on_message(f"{STAGE}{stage}")

    def on_message(self, text: str) -> None:
        """Write a line."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def main(arguments: list[str]) -> int:
    """Run the job of a folder."""
    from glocal.lab.experiment.runner import run_job

    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("glocal.lab").setLevel(logging.DEBUG)  # tracebacks belong to the log
    try:
        run_job(Job.load(Path(arguments[0])), LogListener())
    except (Interrupted, KeyboardInterrupt):
        return STOPPED
    return 0


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(STOPPED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Companions that training does not read, fitted in another process while the network trains.

A network on a GPU leaves the cores idle, and the linear model of words is needed only at the end,
when the experts' weights are learned. The other process leaves it in the cache. If that process
fails, this one fits the companion itself.
"""

from __future__ import annotations

import functools
import logging
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from glocal.companions.companion import Arrays, Companion, FitInputs
from glocal.companions.companion_list import Companions
from glocal.companions.fit_process import start_fit
from glocal.data.cache import cache_dir
from glocal.data.corpus import Corpus
from glocal.train.context import throttled_progress
from glocal.train.listener import TrainListener

logger = logging.getLogger(__name__)


class LaterCompanions:
    """Companions that are ready when they are first asked for.

    Args:
        kinds: The companions; none for a run in which all are fitted first.
        inputs: Training texts, labels and settings.
        dev: Texts whose features are asked for at the end.
        listener: Receives progress events.
    """

    def __init__(
        self,
        kinds: Sequence[type[Companion]],
        inputs: FitInputs,
        dev: Corpus | None,
        listener: TrainListener,
    ) -> None:
        self._kinds, self._inputs, self._dev, self._listener = kinds, inputs, dev, listener
        self._process: subprocess.Popen[bytes] | None = None
        if kinds:
            listener.on_message("the words are learned in another process while the network trains")
            self._folder = Path(tempfile.mkdtemp(prefix="fit-", dir=cache_dir("jobs")))
            self._process = start_fit(kinds, inputs, self._folder)

    @functools.cached_property
    def companions(self) -> Companions:
        """The fitted companions; waits for the other process."""
        if not self._kinds:
            return Companions()
        self._wait()
        report = throttled_progress(self._listener)
        return Companions.fit(self._inputs, kinds=self._kinds, progress=report)

    @functools.cached_property
    def dev_features(self) -> Arrays:
        """The features of dev."""
        if self._dev is None or not self._kinds:
            return {}
        progress = throttled_progress(self._listener)("texts read by the companions")
        return self.companions.features(self._dev, progress=progress)

    def close(self) -> None:
        """End the other process, if it still runs, and remove its inputs."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._process = None

    def _wait(self) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._listener.on_message("waiting for the process that learns the words")
        if self._process.wait():
            errors = (self._folder / "errors.txt").read_text("utf-8", errors="replace").strip()
            reason = errors.splitlines()[-1] if errors else "no reason given"
            logger.warning("the other process failed (%s); fitting here instead", reason)
        self.close()

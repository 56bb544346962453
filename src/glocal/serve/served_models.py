"""The models behind the server: loaded on first use, replaced while it runs.

- A model is loaded when the first request asks for it; requests that arrive meanwhile wait for the
  same load.
- Every few seconds the files of each loaded model are looked at. When they have changed and have
  come to rest, the new model is loaded beside the old one and takes its place at once; requests
  under way finish with the old one, which then goes away. If the new one cannot be loaded, the old
  one stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from glocal.control_characters import escape
from glocal.errors import GlocalError
from glocal.serve.batching import Batcher
from glocal.serve.label_search import LabelSearch
from glocal.serve.serve_settings import ServeSettings
from glocal.storage.model_directory import read_settings

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Fingerprint = tuple[tuple[str, int, int, int], ...]


class UnknownLabels(GlocalError):
    """A request names labels that the model does not know."""


@dataclass
class LoadedModel:
    """One version of a model in memory."""

    predictor: Predictor
    batcher: Batcher
    fingerprint: Fingerprint

    @cached_property
    def search(self) -> LabelSearch:
        """Search over its labels."""
        return LabelSearch(self.predictor.labels)

    def check_labels(self, ids: Iterable[str]) -> None:
        """Refuse labels that the model does not know.

        Raises:
            UnknownLabels: With the first few of them.
        """
        unknown = [id_ for id_ in ids if id_ not in self.predictor.labels.index]
        if unknown:
            shown = ", ".join(id_[:60] for id_ in unknown[:5])
            raise UnknownLabels(
                f"the model does not know {len(unknown)} of the labels given: {shown}; search "
                "/v1/labels for those it knows"
            )

    async def run(self, call: Callable[[Predictor], Result]) -> Result:
        """Run a call with the predictor in the worker thread."""
        return await asyncio.wrap_future(self.batcher.run(lambda: call(self.predictor)))


@dataclass(eq=False)
class ServedModel:
    """A model directory under an id.

    Args:
        id: The name of the model in requests.
        path: The model directory.
        settings: Settings of the server.
        on_batch: Called with the number of texts of each batch.
        on_load: Called with `loaded` or `failed` after each attempt to load it.

    Attributes:
        loaded: The version in memory; None before the first use.
    """

    id: str
    path: Path
    settings: ServeSettings
    on_batch: Callable[[int], None] = field(default=lambda size: None, kw_only=True)
    on_load: Callable[[str], None] = field(default=lambda outcome: None, kw_only=True)
    loaded: LoadedModel | None = field(default=None, init=False)
    # The first load, while it runs.
    _first: asyncio.Future[LoadedModel] | None = field(default=None, init=False)
    _seen: Fingerprint | None = field(default=None, init=False)
    _failed: Fingerprint | None = field(default=None, init=False)

    async def current(self) -> LoadedModel:
        """Return the version in memory, loading it first if need be.

        Raises:
            ModelError: It cannot be loaded.
        """
        if self.loaded is not None:
            return self.loaded
        if self._first is None:
            self._first = asyncio.ensure_future(self._load_first())
        # A request that is given up must not stop the load that others wait for.
        return await asyncio.shield(self._first)

    async def _load_first(self) -> LoadedModel:
        try:
            self.loaded = await asyncio.to_thread(self._load)
            return self.loaded
        finally:
            self._first = None

    async def reload_if_changed(self) -> bool:
        """Replace the version in memory if its files have changed since and are at rest."""
        if self.loaded is None:
            return False
        now = await asyncio.to_thread(fingerprint, self.path)
        at_rest, self._seen = now == self._seen, now
        if not at_rest or now in (self.loaded.fingerprint, self._failed):
            return False
        old = self.loaded
        try:
            self.loaded = await asyncio.to_thread(self._load)
        except (GlocalError, OSError, MemoryError) as error:
            self._failed = now
            logger.warning(
                "model '%s' has changed but cannot be loaded (%s); the old one stays in use",
                self.id,
                escape(str(error)),
            )
            return False
        old.batcher.close()
        logger.info("model '%s' was replaced by a new version", self.id)
        return True

    def _load(self) -> LoadedModel:
        from glocal.predict.predictor import Predictor

        seen = fingerprint(self.path)
        try:
            predictor = Predictor.load(self.path, device=self.settings.device)
        except BaseException:
            self.on_load("failed")
            raise
        self.on_load("loaded")
        limits = self.settings.limits
        batcher = Batcher(
            predictor,
            max_batch=limits.max_batch,
            max_queued=limits.max_queued_texts,
            on_batch=self.on_batch,
        )
        loaded = LoadedModel(predictor, batcher, seen)
        # With a million labels the index takes seconds, which the first search need not wait for.
        threading.Thread(target=loaded.search.prepare, name="glocal-labels", daemon=True).start()
        return loaded

    def close(self) -> None:
        """Finish what waits."""
        if self.loaded is not None:
            self.loaded.batcher.close()

    def facts(self) -> dict[str, Any]:
        """Return the facts about the model that `/v1/models` lists, without loading it.

        Raises:
            ModelError: The directory is not readable.
        """
        import pyarrow.parquet as pq

        stored = read_settings(self.path)
        decision = stored.get("decision", {})
        experts = list(stored["recipe"].get("experts", ()))
        return {
            "id": self.id,
            "name": self.id,
            "n_labels": pq.ParquetFile(self.path / "labels.parquet").metadata.num_rows,
            "experts": experts,
            "default": {
                "threshold": decision.get("threshold", 0.5),
                "min_tags": decision.get("at_least", 1),
                "own_thresholds": len(decision.get("own", ())),
                "goal": decision.get("goal", ""),
            },
            "loaded": self.loaded is not None,
            "similar_texts": self.settings.similar_texts is not None,
        }

    def details(self) -> dict[str, Any]:
        """Return the model card, the stored metrics and the recipe.

        Raises:
            ModelError: The directory is not readable.
        """
        card, metrics = self.path / "README.md", self.path / "metrics.json"
        stored = read_settings(self.path)
        return {
            "card": card.read_text("utf-8") if card.is_file() else "",
            "metrics": json.loads(metrics.read_text("utf-8")) if metrics.is_file() else {},
            "recipe": stored["recipe"],
            "created": str(stored.get("created", "")),
        }

    def modified(self) -> datetime:
        """Return when the model directory was written."""
        return datetime.fromtimestamp((self.path / "glocal.toml").stat().st_mtime, UTC)


async def watch(models: Collection[ServedModel], seconds: float) -> None:
    """Reload models whose files change, until cancelled."""
    while True:
        await asyncio.sleep(seconds)
        for model in models:
            with contextlib.suppress(OSError):  # a directory that is being replaced
                await model.reload_if_changed()


def fingerprint(folder: Path) -> Fingerprint:
    """Identify the files of a model directory by size, time and place on the disk."""
    files = ((str(file), file.stat()) for file in sorted(folder.rglob("*")))
    return tuple((name, s.st_size, s.st_mtime_ns, s.st_ino) for name, s in files)


def model_ids(paths: Sequence[Path]) -> list[str]:
    """Return an id for each model directory: its name, with a number where it occurs twice."""
    ids: list[str] = []
    for path in paths:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.resolve().name).strip(".-") or "model"
        again = sum(other == name or other.startswith(f"{name}-") for other in ids)
        ids.append(name if name not in ids else f"{name}-{again + 1}")
    return ids

"""The metrics of the server, shown by `/metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from glocal.serve.prometheus import SECONDS, TEXTS, Counter, Gauge, Histogram, render

if TYPE_CHECKING:
    from glocal.serve.feedback_store import FeedbackStore
    from glocal.serve.served_models import ServedModel


class ServerMetrics:
    """Counts requests, batches and texts."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.requests = Counter(
            "glocal_requests_total", "Answered requests.", ("method", "route", "status")
        )
        self.seconds = Histogram(
            "glocal_request_seconds", "Time to answer a request.", SECONDS, ("route",)
        )
        self.texts = Counter("glocal_texts_total", "Texts computed.", ("model",))
        self.batches = Histogram(
            "glocal_batch_texts", "Texts computed together.", TEXTS, ("model",)
        )
        self.loads = Counter(
            "glocal_model_loads_total", "Attempts to load a model.", ("model", "outcome")
        )

    def count_batch(self, model: str, size: int) -> None:
        """Count a batch of texts."""
        self.texts.add(model, amount=size)
        self.batches.observe(size, model)

    def render(self, models: Mapping[str, ServedModel], feedback: FeedbackStore | None) -> str:
        """Return all metrics in Prometheus' text format."""
        served = models.items()
        stored = 0 if feedback is None else feedback.n_rows
        gauges = [
            Gauge(
                "glocal_requests_in_flight",
                "Requests that compute or wait.",
                lambda: {(): self.in_flight},
            ),
            Gauge(
                "glocal_queued_texts",
                "Texts that wait for a model.",
                lambda: {(id,): m.loaded.batcher.queued for id, m in served if m.loaded},
                ("model",),
            ),
            Gauge(
                "glocal_model_loaded",
                "Whether a model is in memory.",
                lambda: {(id,): float(m.loaded is not None) for id, m in served},
                ("model",),
            ),
            Gauge(
                "glocal_feedback_rows",
                "Corrections stored since the start.",
                lambda: {(): stored},
            ),
            Gauge("process_resident_memory_bytes", "Memory in use.", _resident_memory),
        ]
        return render([self.requests, self.seconds, self.texts, self.batches, self.loads, *gauges])


def _resident_memory() -> dict[tuple[str, ...], float]:
    """Return the memory this process uses; nothing where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return {}
    return {(): pages * 4096.0}

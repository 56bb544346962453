"""Measuring a job: train, evaluate, and for timed jobs what it costs.

Costs are those of the process, so timed jobs have one of their own:

    train_seconds, cpu_seconds    from texts to a model on disk, features or tokens included
    feature_seconds               part of it that TF-IDF took (linear baselines)
    model_bytes                   files of the model
    peak_bytes                    most memory held at once, training and prediction
    gpu_bytes                     most memory held at once on the GPU
    latency_ms, latency_p95_ms    from one text to its 5 labels: median and 95th percentile, warm
    docs_per_second               texts predicted in one call
"""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal._version import __version__
from glocal.data.duplicates import near_duplicate_mask
from glocal.lab.experiment.document_scores import document_scores, save_document_scores
from glocal.lab.experiment.fitted import Fitted, FittedRecipe, train_method
from glocal.lab.experiment.jobs import Job, JobListener, JobState, Result
from glocal.predict.evaluation import evaluate_predictions

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.metrics.documents import DocumentScores
    from glocal.ranking.predictions import Predictions
    from glocal.vocabulary.label_space import LabelSpace

__all__ = ["measure_job", "peak_memory"]

KS = (1, 3, 5)
WARM_UP, TIMED, BATCH = 10, 100, 2000  # texts
LATENCY_K = 5


def measure_job(job: Job, listener: JobListener) -> Result:
    """Train a job's method, predict the texts measured on, and evaluate.

    Args:
        job: What to do; predictions of timed jobs stay in its folder.
        listener: Receives the events.
    """
    splits, timed = job.splits, job.conditions.timed
    job.blank.save(job.folder)
    listener.on_stage("training")
    fitted, cost = train_method(job, listener)
    if timed:
        listener.on_stage("timing")
        cost |= _speeds(fitted, splits.measured)
    listener.on_stage("predicting")
    found = fitted.predict_all(splits.measured)
    on_dev = None
    if timed:
        on_dev = None if splits.dev is None else fitted.predict_all(splits.dev)
        cost |= {"peak_bytes": peak_memory(), "gpu_bytes": _gpu_memory()}
    listener.on_stage("evaluating")
    report = evaluate_predictions(
        found,
        fitted.labels.encode(splits.measured),
        counts=fitted.labels.counts,
        n_train=fitted.labels.n_documents,
        ks=KS,
        duplicates=near_duplicate_mask(splits.measured, splits.train) if timed else None,
    )
    return replace(
        job.blank,
        state=JobState.DONE,
        cost=cost,
        report=report.to_dict(),
        dev=_keep_predictions(job, fitted.labels, found, on_dev) if timed else {},
        divergence=_divergence(job, fitted),
        machine=describe_machine(),
        finished=datetime.date.today().isoformat(),
    )


def _keep_predictions(
    job: Job, labels: LabelSpace, found: Predictions, on_dev: Predictions | None
) -> dict[str, float]:
    """Write predictions and the scores of each text; return the scores on dev."""

    def scores(predictions: Predictions, corpus: Corpus) -> dict[str, DocumentScores]:
        gold = labels.encode(corpus)
        return document_scores(predictions, gold, KS, counts=labels.counts) if gold.nnz else {}

    labels.save(job.folder / "labels.parquet")
    found.save(job.folder / f"{job.splits.split}.parquet")
    by_text = scores(found, job.splits.measured)
    save_document_scores(job.folder, by_text, measured_on=job.blank.measured_on)
    if on_dev is None or job.splits.dev is None:
        return {}
    on_dev.save(job.folder / "dev.parquet")
    return {metric: found.value for metric, found in scores(on_dev, job.splits.dev).items()}


def _divergence(job: Job, fitted: Fitted) -> dict[str, Any]:
    from glocal.lab.divergence import expert_divergence

    if not (job.conditions.divergence and isinstance(fitted, FittedRecipe)):
        return {}
    if len(fitted.predictor.expert_names) != 2:
        return {}
    return asdict(expert_divergence(fitted.predictor, job.splits.measured))


# --- costs -----------------------------------------------------------------------------------


def _speeds(fitted: Fitted, test: Corpus) -> dict[str, Any]:
    """Measure how fast one text and many texts are tagged."""
    order = np.random.default_rng(0).permutation(len(test))
    texts = test.take(order[: max(TIMED, BATCH)]).texts()
    for text in texts[:WARM_UP]:
        fitted.predict([text], LATENCY_K)
    milliseconds = [1000 * _seconds(fitted, [text]) for text in texts[:TIMED]]
    batch = texts[:BATCH]
    return {
        "latency_ms": statistics.median(milliseconds),
        "latency_p95_ms": float(np.quantile(milliseconds, 0.95)),
        "latency_texts": len(milliseconds),
        "docs_per_second": len(batch) / max(_seconds(fitted, batch), 1e-9),
        "batch_texts": len(batch),
    }


def _seconds(fitted: Fitted, texts: Sequence[str]) -> float:
    started = time.perf_counter()
    fitted.predict(texts, LATENCY_K)
    return time.perf_counter() - started


def peak_memory() -> int | None:
    """Return the most bytes this process has held in memory; None where the system does not say.

    On Linux from VmHWM: `ru_maxrss` there starts from what the parent held when it began us.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        line = next((x for x in status.read_text().splitlines() if x.startswith("VmHWM")), None)
        if line is not None:
            return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _gpu_memory() -> int | None:
    torch = sys.modules.get("torch")  # baselines do not load it
    if torch is None or not torch.cuda.is_available():
        return None
    return int(torch.cuda.max_memory_allocated())


def describe_machine() -> dict[str, Any]:
    """Describe processor, GPU and software."""
    torch = sys.modules.get("torch")
    gpu = torch is not None and torch.cuda.is_available()
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch is not None and gpu else None,
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "glocal": __version__,
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

"""Measuring one row, in the process that is the row's own.

Costs, all of this process alone:

    train_seconds, cpu_seconds    from texts to a model on disk, features or tokens included
    feature_seconds               of these, TF-IDF (linear baselines)
    peak_bytes                    most memory held at once, training and prediction
    gpu_bytes                     most memory held at once on the GPU
    model_bytes                   files of the model
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glocal._version import __version__
from glocal.data.corpus import Corpus
from glocal.data.duplicates import near_duplicate_mask
from glocal.lab.baselines.baseline import Say
from glocal.lab.benchmark.benchmark_documents import document_scores, save_document_scores
from glocal.lab.benchmark.benchmark_fitted import Fitted, train_contender
from glocal.lab.benchmark.benchmark_rows import STAGE, Job, Row, read_split
from glocal.lab.study import DONE
from glocal.predict.evaluation import EvaluationReport, evaluate_predictions
from glocal.ranking.predictions import Predictions

__all__ = ["measure", "peak_memory"]

WARM_UP, TIMED, BATCH = 10, 100, 2000  # texts
LATENCY_K = 5


def measure(job: Job, say: Say) -> Row:
    """Train, time, predict and evaluate; predictions stay in the job's folder."""
    folder = Path(job.folder)
    given = {split: read_split(job, split) for split in ("train", "dev", "test")}
    splits = {split: corpus for split, corpus in given.items() if corpus is not None}
    say(f"{STAGE}training")
    fitted, spent = train_contender(job, splits, say)
    say(f"{STAGE}timing")
    cost = {"train_seconds": spent["wall"], "cpu_seconds": spent["cpu"], **_speeds(fitted, splits)}
    say(f"{STAGE}predicting")
    predictions: dict[str, Predictions] = {
        split: fitted.predict_all(splits[split]) for split in ("test", "dev") if split in splits
    }
    cost |= {"peak_bytes": peak_memory(), "gpu_bytes": _gpu_memory()}
    say(f"{STAGE}evaluating")
    for split, found in predictions.items():
        found.save(folder / f"{split}.parquet")
    fitted.labels.save(folder / "labels.parquet")
    report = _report(fitted, predictions["test"], splits, job.ks)
    scores = document_scores(
        predictions["test"],
        fitted.labels.encode(splits["test"]),
        job.ks,
        counts=fitted.labels.counts,
    )
    save_document_scores(folder, scores, measured_on=job.measured_on)
    return Row(
        job.contender,
        job.key,
        DONE,
        cost={
            **cost,
            "feature_seconds": fitted.feature_seconds,
            "model_bytes": fitted.model_bytes,
            "threads": job.threads,
        },
        report=report.to_dict(),
        dev=_dev_scores(fitted, predictions, splits, job.ks),
        machine=describe_machine(job.threads),
        finished=datetime.date.today().isoformat(),
    )


# --- quality ---------------------------------------------------------------------------------


def _report(
    fitted: Fitted,
    found: Predictions,
    splits: Mapping[str, Corpus],
    ks: Sequence[int],
) -> EvaluationReport:
    return evaluate_predictions(
        found,
        fitted.labels.encode(splits["test"]),
        counts=fitted.labels.counts,
        n_train=fitted.labels.n_documents,
        ks=ks,
        duplicates=near_duplicate_mask(splits["test"], splits["train"]),
    )


def _dev_scores(
    fitted: Fitted,
    predictions: Mapping[str, Predictions],
    splits: Mapping[str, Corpus],
    ks: Sequence[int],
) -> dict[str, float]:
    if "dev" not in predictions:
        return {}
    gold = fitted.labels.encode(splits["dev"])
    if not gold.nnz:
        return {}
    best, counts = predictions["dev"], fitted.labels.counts
    found = document_scores(best, gold, ks, counts=counts)
    return {metric: scores.value for metric, scores in found.items()}


# --- costs -----------------------------------------------------------------------------------


def _speeds(fitted: Fitted, splits: Mapping[str, Corpus]) -> dict[str, Any]:
    """How fast one text and many texts are tagged."""
    test = splits["test"]
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
    """The most bytes this process has held in memory; None where the system does not say.

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
    torch = sys.modules.get("torch")  # a baseline has not loaded it
    if torch is None or not torch.cuda.is_available():
        return None
    return int(torch.cuda.max_memory_allocated())


def describe_machine(threads: int) -> dict[str, Any]:
    """Processor, memory and GPU."""
    torch = sys.modules.get("torch")
    gpu = torch is not None and torch.cuda.is_available()
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
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

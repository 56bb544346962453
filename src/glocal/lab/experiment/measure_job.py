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
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.data.duplicates import near_duplicate_mask
from glocal.lab.experiment.document_scores import document_scores, save_document_scores
from glocal.lab.experiment.fitted import Fitted, train_method
from glocal.lab.experiment.jobs import Job, JobListener, JobState, Result
from glocal.lab.machine import describe_machine, gpu_memory, peak_memory
from glocal.predict.evaluation import evaluate_predictions

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.metrics.documents import DocumentScores
    from glocal.ranking.predictions import Predictions
    from glocal.vocabulary.label_space import LabelSpace

KS = (1, 3, 5)
WARM_UP, TIMED, BATCH = 10, 100, 2000  # texts
LATENCY_K = 5


def measure_job(job: Job, listener: JobListener) -> Result:
    """Train a job's method, predict the texts measured on, and evaluate.

    Args:
        job: The job; predictions of timed jobs stay in its folder.
        listener: Receives the events.
    """
    splits, timed = job.splits, job.conditions.timed
    job.blank.save(job.folder)
    listener.on_stage("training")
    fitted = train_method(job, listener)
    cost = dict(fitted.cost)
    if timed:
        listener.on_stage("timing")
        cost |= _speeds(fitted, splits.measured)
    listener.on_stage("predicting")
    found = fitted.predict_all(splits.measured)
    on_dev = None
    if timed:
        on_dev = None if splits.dev is None else fitted.predict_all(splits.dev)
        peak = max(peak_memory() or 0, fitted.peak_elsewhere())
        cost |= {"peak_bytes": peak or None, "gpu_bytes": gpu_memory()}
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
        status=JobState.DONE,
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
    predictor = fitted.predictor if job.conditions.divergence else None
    if predictor is None or len(predictor.expert_names) != 2:
        return {}
    from glocal.lab.divergence import expert_divergence  # imports torch, which baselines need not

    return asdict(expert_divergence(predictor, job.splits.measured))


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

"""Prediction and what is made of it: explanations, ensembles, evaluation, calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glocal._lazy import lazy_names

if TYPE_CHECKING:
    from glocal.predict.ensemble import ensemble_predict
    from glocal.predict.evaluation import EvaluationReport, compare, evaluate_predictions
    from glocal.predict.explain import Span, TagExplanation
    from glocal.predict.predictions import Predictions
    from glocal.predict.predictor import Predictor

__all__ = [
    "EvaluationReport",
    "Predictions",
    "Predictor",
    "Span",
    "TagExplanation",
    "compare",
    "ensemble_predict",
    "evaluate_predictions",
]

_MODULES = {
    "EvaluationReport": "evaluation",
    "Predictions": "predictions",
    "Predictor": "predictor",
    "Span": "explain",
    "TagExplanation": "explain",
    "compare": "evaluation",
    "ensemble_predict": "ensemble",
    "evaluate_predictions": "evaluation",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)

"""Extreme multi-label text classification: the right few labels out of thousands to millions.

    from glocal import Tagger

    tagger = Tagger("glocalxml").fit(texts, labels)
    tagger.predict(["a text to tag"], k=5)

The names below are the public interface. They are imported when they are first used, so that
`import glocal` stays light: it loads neither torch nor transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from glocal._version import __version__

if TYPE_CHECKING:
    from glocal.companions.teacher.teacher_explanation import (
        AddedParent,
        Neighbour,
        TeacherExplanation,
        Vote,
    )
    from glocal.config import Recipe, load_recipe, recipe_names
    from glocal.data.corpus import Corpus, Document
    from glocal.data.readers import read_corpus
    from glocal.distillation.student import distill
    from glocal.errors import (
        ConfigError,
        DataError,
        GlocalError,
        InputError,
        Interrupted,
        MissingExtraError,
        ModelError,
        NewerFormatError,
        Remedy,
        TrainingError,
    )
    from glocal.export.export_model import Exported, export_model
    from glocal.metrics.bootstrap import BootstrapResult
    from glocal.metrics.macro import MacroScores
    from glocal.metrics.reliability import CalibrationError, LabelSums, ScoreRange
    from glocal.predict.ensemble import ensemble_predict
    from glocal.predict.evaluation import BandScores, EvaluationReport, PartReport
    from glocal.predict.explain import ExpertPart, Span, TagExplanation
    from glocal.predict.metric_scores import Propensity
    from glocal.predict.predictor import Predictor
    from glocal.progress import Progress
    from glocal.ranking.decision import Decision
    from glocal.ranking.decision_fit import DecisionScores
    from glocal.ranking.predictions import Predictions, Tag
    from glocal.storage.hub import push_model
    from glocal.tagger import NotFittedError, Tagger
    from glocal.train.listener import TrainListener
    from glocal.train.run import FitResult, fit
    from glocal.train.soft_targets import SoftTargets
    from glocal.tune.tuning import Tuning, tune_recipe
    from glocal.update.further_training import (
        BandChange,
        FurtherTraining,
        continue_training,
    )
    from glocal.update.label_update import (
        LabelUpdate,
        add_labels,
        merge_labels,
        remove_labels,
        rename_labels,
    )
    from glocal.update.threshold_update import ThresholdUpdate, tune_threshold
    from glocal.vocabulary.bands import Band, Bands
    from glocal.vocabulary.concept_choice import ConceptChoice
    from glocal.vocabulary.label_space import LabelSpace
    from glocal.vocabulary.label_table import LabelEntry, LabelTable, read_label_table

__all__ = [
    "AddedParent",
    "Band",
    "BandChange",
    "BandScores",
    "Bands",
    "BootstrapResult",
    "CalibrationError",
    "ConceptChoice",
    "ConfigError",
    "Corpus",
    "DataError",
    "Decision",
    "DecisionScores",
    "Document",
    "EvaluationReport",
    "ExpertPart",
    "Exported",
    "FitResult",
    "FurtherTraining",
    "GlocalError",
    "InputError",
    "Interrupted",
    "LabelEntry",
    "LabelSpace",
    "LabelSums",
    "LabelTable",
    "LabelUpdate",
    "MacroScores",
    "MissingExtraError",
    "ModelError",
    "Neighbour",
    "NewerFormatError",
    "NotFittedError",
    "PartReport",
    "Predictions",
    "Predictor",
    "Progress",
    "Propensity",
    "Recipe",
    "Remedy",
    "ScoreRange",
    "SoftTargets",
    "Span",
    "Tag",
    "TagExplanation",
    "Tagger",
    "TeacherExplanation",
    "ThresholdUpdate",
    "TrainListener",
    "TrainingError",
    "Tuning",
    "Vote",
    "__version__",
    "add_labels",
    "continue_training",
    "distill",
    "ensemble_predict",
    "export_model",
    "fit",
    "load_recipe",
    "merge_labels",
    "push_model",
    "read_corpus",
    "read_label_table",
    "recipe_names",
    "remove_labels",
    "rename_labels",
    "tune_recipe",
    "tune_threshold",
]

_MODULES = {
    "glocal.companions.teacher.teacher_explanation": (
        "AddedParent Neighbour TeacherExplanation Vote"
    ),
    "glocal.config": "Recipe load_recipe recipe_names",
    "glocal.data.corpus": "Corpus Document",
    "glocal.vocabulary.concept_choice": "ConceptChoice",
    "glocal.vocabulary.label_table": "LabelEntry LabelTable read_label_table",
    "glocal.data.readers": "read_corpus",
    "glocal.distillation.student": "distill",
    "glocal.errors": (
        "ConfigError DataError GlocalError InputError Interrupted MissingExtraError ModelError "
        "NewerFormatError Remedy TrainingError"
    ),
    "glocal.export.export_model": "Exported export_model",
    "glocal.metrics.bootstrap": "BootstrapResult",
    "glocal.metrics.macro": "MacroScores",
    "glocal.metrics.reliability": "CalibrationError LabelSums ScoreRange",
    "glocal.predict.ensemble": "ensemble_predict",
    "glocal.predict.evaluation": "BandScores EvaluationReport PartReport",
    "glocal.predict.explain": "ExpertPart Span TagExplanation",
    "glocal.predict.metric_scores": "Propensity",
    "glocal.predict.predictor": "Predictor",
    "glocal.progress": "Progress",
    "glocal.ranking.decision": "Decision",
    "glocal.ranking.decision_fit": "DecisionScores",
    "glocal.ranking.predictions": "Predictions Tag",
    "glocal.storage.hub": "push_model",
    "glocal.tagger": "NotFittedError Tagger",
    "glocal.train.listener": "TrainListener",
    "glocal.train.run": "FitResult fit",
    "glocal.train.soft_targets": "SoftTargets",
    "glocal.tune.tuning": "Tuning tune_recipe",
    "glocal.update.further_training": "BandChange FurtherTraining continue_training",
    "glocal.update.label_update": (
        "LabelUpdate add_labels merge_labels remove_labels rename_labels"
    ),
    "glocal.update.threshold_update": "ThresholdUpdate tune_threshold",
    "glocal.vocabulary.bands": "Band Bands",
    "glocal.vocabulary.label_space": "LabelSpace",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'glocal' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

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
    from glocal.config import Recipe, load_recipe, recipe_names
    from glocal.data.corpus import Corpus
    from glocal.data.label_table import LabelTable, read_label_table
    from glocal.data.readers import read_corpus
    from glocal.errors import (
        ConfigError,
        DataError,
        GlocalError,
        Interrupted,
        MissingExtraError,
        ModelError,
        NewerFormatError,
        TrainingError,
    )
    from glocal.predict.ensemble import ensemble_predict
    from glocal.predict.evaluation import EvaluationReport
    from glocal.predict.predictor import Predictor
    from glocal.ranking.predictions import Predictions
    from glocal.tagger import NotFittedError, Tagger
    from glocal.train.run import fit
    from glocal.vocabulary.label_space import LabelSpace

__all__ = [
    "ConfigError",
    "Corpus",
    "DataError",
    "EvaluationReport",
    "GlocalError",
    "Interrupted",
    "LabelSpace",
    "LabelTable",
    "MissingExtraError",
    "ModelError",
    "NewerFormatError",
    "NotFittedError",
    "Predictions",
    "Predictor",
    "Recipe",
    "Tagger",
    "TrainingError",
    "__version__",
    "ensemble_predict",
    "fit",
    "load_recipe",
    "read_corpus",
    "read_label_table",
    "recipe_names",
]

_MODULES = {
    "glocal.config": ("Recipe", "load_recipe", "recipe_names"),
    "glocal.data.corpus": ("Corpus",),
    "glocal.data.label_table": ("LabelTable", "read_label_table"),
    "glocal.data.readers": ("read_corpus",),
    "glocal.errors": (
        "ConfigError",
        "DataError",
        "GlocalError",
        "Interrupted",
        "MissingExtraError",
        "ModelError",
        "NewerFormatError",
        "TrainingError",
    ),
    "glocal.vocabulary.label_space": ("LabelSpace",),
    "glocal.predict.ensemble": ("ensemble_predict",),
    "glocal.predict.evaluation": ("EvaluationReport",),
    "glocal.ranking.predictions": ("Predictions",),
    "glocal.predict.predictor": ("Predictor",),
    "glocal.tagger": ("NotFittedError", "Tagger"),
    "glocal.train.run": ("fit",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'glocal' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

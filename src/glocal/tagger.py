"""`Tagger`: train, predict, explain and save in a few lines, as a scikit-learn estimator.

- follows scikit-learn's contract without needing scikit-learn: `__init__` only stores parameters,
  `get_params`/`set_params`, fitted attributes end in `_`; works in `GridSearchCV` and pipelines;
- `fit` takes texts with lists of labels, or with a binary indicator matrix (dense or sparse);
- labels come back as the type they went in (strings, or whole numbers);
- a model lives in a directory; without one of your choice, in a temporary one that goes with the
  object. Copies and pickles of a fitted tagger carry its files along.
"""

from __future__ import annotations

import inspect
import json
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from glocal.config import Recipe, load_recipe, recipe_from_mapping, recipe_to_mapping
from glocal.data.atomic import atomic_write, replace_dir, temporary_dir
from glocal.errors import (
    ConfigError,
    DataError,
    GlocalError,
    ModelError,
    Remedy,
    did_you_mean,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from glocal.data.corpus import Corpus
    from glocal.predict.evaluation import EvaluationReport
    from glocal.predict.explain import TagExplanation
    from glocal.predict.predictor import Predictor
    from glocal.ranking.predictions import Predictions
    from glocal.train.listener import TrainListener
    from glocal.vocabulary.label_table import LabelTable

__all__ = ["NotFittedError", "Tagger"]

SETTINGS_FILE = "tagger.json"


class NotFittedError(GlocalError, ValueError, AttributeError):
    """A tagger was asked for predictions before `fit` or `load`.

    Where scikit-learn is in use, what is raised is also its own `NotFittedError`.
    """


class Tagger:
    """Tags texts with labels.

    Args:
        recipe: A built-in recipe's name, a path to a TOML file, or a `Recipe`.
        overrides: Settings that differ from the recipe, such as `{"train.epochs": 3}`.
        threshold: `predict` gives labels of at least this probability.
        k: Labels `predict` gives for a text at most, and the k of the P@k that `score` returns.
        device: Where to compute: `auto`, `cpu`, `cuda` or `cuda:N`.
        random_state: Seed of everything random; None takes the recipe's.

    Attributes:
        classes_: The labels; position i is the label with index i in predictions.
        predictor_: The fitted model.
        metrics_: What training measured.
    """

    def __init__(
        self,
        recipe: str | Path | Recipe = "glocalxml",
        *,
        overrides: Mapping[str, Any] | None = None,
        threshold: float = 0.5,
        k: int = 5,
        device: str = "auto",
        random_state: int | None = None,
    ) -> None:
        self.recipe = recipe
        self.overrides = overrides
        self.threshold = threshold
        self.k = k
        self.device = device
        self.random_state = random_state

    # --- fitting -----------------------------------------------------------------------------

    def fit(
        self,
        X: Iterable[str],
        y: Any,
        *,
        dev: tuple[Iterable[str], Any] | None = None,
        label_table: LabelTable | None = None,
        out: str | Path | None = None,
        overwrite: bool = False,
        listener: TrainListener | None = None,
    ) -> Tagger:
        """Train on texts and their labels.

        Args:
            X: Texts.
            y: For each text its labels (strings or whole numbers), or an indicator matrix of shape
                (texts, labels), dense or sparse, whose column numbers are the labels.
            dev: Texts and labels to choose the best checkpoint, the experts' weights and the
                calibration on.
            label_table: Names and descriptions of labels.
            out: Where the model directory goes; a temporary place by default.
            overwrite: Whether a model already at `out` may be replaced.
            listener: Told about progress.

        Raises:
            ConfigError: When a parameter or a setting is wrong.
            DataError: When texts or labels cannot be used.
        """
        from glocal.predict.predictor import Predictor
        from glocal.train.run import fit

        recipe = self._resolve()
        corpus, whole_numbers = _corpus(X, y, "X")
        dev_corpus = None if dev is None else _corpus(*dev, "dev")[0]
        home = None if out else _TemporaryHome()
        result = fit(
            recipe,
            corpus,
            out=home.path if home else Path(str(out)),
            dev=dev_corpus,
            label_table=label_table,
            overwrite=overwrite,
            device=self.device,
            listener=listener,
        )
        self._adopt(Predictor.load(result.path, device=self.device), result.path, whole_numbers)
        self._home = home  # only now, so that a failed fit leaves the former model usable
        self.metrics_ = result.metrics
        self._write_settings(result.path)
        return self

    def _resolve(self) -> Recipe:
        problems = []
        if not isinstance(self.k, int) or self.k < 1:
            problems.append(f"k must be a whole number from 1 on, not {self.k!r}")
        if not 0 <= self.threshold <= 1:
            problems.append(f"threshold must be between 0 and 1, not {self.threshold!r}")
        if problems:
            raise ConfigError(problems)
        recipe = self.recipe if isinstance(self.recipe, Recipe) else load_recipe(self.recipe)
        mapping = recipe_to_mapping(recipe)
        _merge(mapping, self.overrides or {}, "")
        if self.random_state is not None:
            mapping["train"]["seed"] = int(self.random_state)
        return recipe_from_mapping(mapping, source="overrides")

    def _adopt(self, predictor: Predictor, path: Path, whole_numbers: bool) -> None:
        labels: list[Any] = list(predictor.labels.ids)
        if whole_numbers:
            labels = [int(label) for label in labels]
        self.classes_ = np.empty(len(labels), dtype=object)
        self.classes_[:] = labels
        self.predictor_ = predictor
        self._path = path
        self._whole_numbers = whole_numbers

    # --- using -------------------------------------------------------------------------------

    def predict(self, X: Iterable[str], k: int | None = None) -> list[list[Any]]:
        """The labels of each text, best first.

        Args:
            X: Texts.
            k: Give exactly the k best labels; by default those whose probability reaches
                `threshold`, `self.k` at most.
        """
        found = self.predict_topk(X, k)
        lowest = self.threshold if k is None else 0.0
        return [
            [
                self.classes_[index]
                for index, score in zip(indices, scores, strict=True)
                if index >= 0 and score >= lowest
            ]
            for indices, scores in zip(found.indices, found.scores, strict=True)
        ]

    def predict_topk(self, X: Iterable[str], k: int | None = None) -> Predictions:
        """Indices into `classes_` and probabilities of the k (by default `self.k`) best labels."""
        predictor = self._fitted()
        texts = _texts(X, "X")
        width = min(self.k, len(self.classes_)) if k is None else k
        predictor.check_k(width)
        return predictor.predict(texts, k=width)

    def predict_proba(self, X: Iterable[str], k: int | None = None) -> csr_matrix:
        """Probabilities as a sparse matrix (texts, labels) that holds the k best of each text.

        Column j is `classes_[j]`. What is not stored was not among the k best: it is not 0.
        """
        from scipy.sparse import csr_matrix

        found = self.predict_topk(X, k)
        rows, slots = np.nonzero(found.indices >= 0)
        columns, scores = found.indices[rows, slots], found.scores[rows, slots]
        return csr_matrix((scores, (rows, columns)), (len(found.indices), len(self.classes_)))

    def score(self, X: Iterable[str], y: Any) -> float:
        """P@k: the share of the k best labels that are right, over texts that have labels."""
        from glocal.predict.evaluation import metric_value

        predictor = self._fitted()
        corpus, _ = _corpus(X, y, "X")
        k = min(self.k, len(self.classes_))
        found = predictor.predict_corpus(corpus, k=k)
        gold = predictor.labels.encode(corpus)
        return float(metric_value(f"P@{k}", found, gold))

    def evaluate(
        self, X: Iterable[str], y: Any, *, ks: Sequence[int] = (1, 3, 5)
    ) -> EvaluationReport:
        """All metrics, for each expert and their combination, by frequency band."""
        corpus, _ = _corpus(X, y, "X")
        return self._fitted().evaluate(corpus, ks=tuple(ks), threshold=self.threshold)

    def explain(self, text: str, *, k: int | None = None, words: int = 8) -> list[TagExplanation]:
        """The best labels of a text, each with the words behind it and the experts' shares."""
        predictor = self._fitted()
        width = min(self.k, len(self.classes_)) if k is None else k
        return predictor.explain(text, k=width, words=words)

    # --- keeping -----------------------------------------------------------------------------

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Copy the model directory to `path`, for `Tagger.load` and the `glocal` commands.

        Raises:
            ModelError: When something is there already and `overwrite` is not set.
        """
        self._fitted()
        target = Path(path)
        if target.exists() and not overwrite:
            raise ModelError(
                f"{target} already exists; choose another place",
                remedies=[Remedy("overwrite", "replace it")],
            )
        with temporary_dir(target) as folder:
            shutil.copytree(self._path, folder, dirs_exist_ok=True)
            self._write_settings(folder)
            replace_dir(folder, target)
        return target

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Tagger:
        """A fitted tagger from a model directory, whether `save` or `glocal train` wrote it."""
        from glocal.predict.predictor import Predictor

        predictor = Predictor.load(path, device=device)
        settings = _read_settings(Path(path) / SETTINGS_FILE)
        tagger = cls(
            predictor.recipe,
            threshold=settings.get("threshold", 0.5),
            k=settings.get("k", 5),
            device=device,
        )
        tagger._adopt(predictor, Path(path), bool(settings.get("whole_numbers", False)))
        return tagger

    def _write_settings(self, folder: Path) -> None:
        settings = {"k": self.k, "threshold": self.threshold, "whole_numbers": self._whole_numbers}
        with atomic_write(folder / SETTINGS_FILE) as file:
            file.write(json.dumps(settings, indent=2).encode() + b"\n")

    def __getstate__(self) -> dict[str, Any]:
        state = {key: value for key, value in vars(self).items() if key not in _NOT_COPIED}
        if "predictor_" in vars(self):
            files = (file for file in sorted(self._path.rglob("*")) if file.is_file())
            state["_files"] = {
                file.relative_to(self._path).as_posix(): file.read_bytes() for file in files
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        from glocal.predict.predictor import Predictor

        files: dict[str, bytes] | None = state.pop("_files", None)
        vars(self).update(state)
        if files is not None:
            self._home = _TemporaryHome()
            self._path = self._home.path
            for name, content in files.items():
                (self._path / name).parent.mkdir(parents=True, exist_ok=True)
                (self._path / name).write_bytes(content)
            self.predictor_ = Predictor.load(self._path, device=self.device)

    # --- the estimator contract --------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of `__init__`, as they were given."""
        return {name: getattr(self, name) for name in _defaults()}

    def set_params(self, **params: Any) -> Tagger:
        """Change parameters of `__init__`.

        Raises:
            ConfigError: When a name is not one of them.
        """
        valid = list(_defaults())
        unknown = [name for name in params if name not in valid]
        if unknown:
            raise ConfigError([_unknown_parameter(name, valid) for name in unknown])
        vars(self).update(params)
        return self

    def __repr__(self) -> str:
        changed = {
            name: getattr(self, name)
            for name, default in _defaults().items()
            if repr(getattr(self, name)) != repr(default)
        }
        return f"Tagger({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def __sklearn_is_fitted__(self) -> bool:
        return "predictor_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            # No `classifier`: scikit-learn would then look for one class a text in `y`.
            estimator_type=None,
            target_tags=TargetTags(required=True, multi_output=True),
            input_tags=InputTags(one_d_array=True, two_d_array=False, string=True),
            no_validation=True,
        )

    def _fitted(self) -> Predictor:
        if "predictor_" not in vars(self):
            _raise_not_fitted()
        return self.predictor_


class _TemporaryHome:
    """A place for a model directory that is removed with this object, or at exit."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="glocal-tagger-")
        self.path = Path(folder, "model")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)


# What a copy of a tagger makes anew.
_NOT_COPIED = {"predictor_", "_home", "_path"}


def _defaults() -> dict[str, Any]:
    parameters = list(inspect.signature(Tagger.__init__).parameters.values())[1:]
    return {parameter.name: parameter.default for parameter in parameters}


def _unknown_parameter(name: str, valid: list[str]) -> str:
    hint = did_you_mean(name, valid)
    return f"Tagger has no parameter '{name}'{hint}; it has {', '.join(valid)}"


def _raise_not_fitted() -> NoReturn:
    message = "this Tagger has no model yet; call `fit` first, or use `Tagger.load`"
    theirs = sys.modules.get("sklearn.exceptions")
    if theirs is None:  # then nobody can be waiting for scikit-learn's exception
        raise NotFittedError(message)
    both = type("NotFittedError", (NotFittedError, theirs.NotFittedError), {})
    raise both(message)


def _merge(mapping: dict[str, Any], overrides: Mapping[str, Any], where: str) -> None:
    """Put dotted or nested overrides into nested mappings; unknown names stay, to be reported."""
    for dotted, value in overrides.items():
        *sections, key = dotted.split(".")
        target = mapping
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise ConfigError(f"overrides: '{where}{dotted}': '{section}' is not a section")
        if isinstance(value, Mapping) and isinstance(target.get(key), dict):
            _merge(target[key], value, f"{where}{dotted}.")
        else:
            target[key] = value


# --- texts and labels ------------------------------------------------------------------------


def _texts(X: Iterable[str], name: str) -> list[str]:
    if isinstance(X, str | bytes):
        raise DataError(f"{name} is a single text; expected a list of texts: [{name}]")
    return list(X)


def _corpus(X: Iterable[str], y: Any, name: str) -> tuple[Corpus, bool]:
    """The corpus, and whether its labels are whole numbers."""
    from glocal.data.corpus import Corpus

    label_lists = _label_lists(y)
    kinds = {isinstance(label, int | np.integer) for labels in label_lists for label in labels}
    if len(kinds) > 1:
        raise DataError("the labels mix strings and whole numbers; use one of the two")
    return Corpus.from_texts(_texts(X, name), label_lists, source=name), kinds == {True}


def _label_lists(y: Any) -> list[Any]:
    if y is None:
        raise DataError("labels are required: y is None; pass for each text the list of its labels")
    if hasattr(y, "tocsr"):
        return _rows_of_matrix(y.tocsr(copy=True))
    if not isinstance(y, list | tuple) and np.ndim(y) == 2:
        from scipy.sparse import csr_matrix

        return _rows_of_matrix(csr_matrix(np.asarray(y, dtype=np.float32)))
    label_lists = list(y)
    for row, labels in enumerate(label_lists):
        if isinstance(labels, str) or not isinstance(labels, Iterable):
            raise DataError(
                f"y[{row}] is {labels!r:.60}; expected a list of labels, such as [{labels!r:.30}]"
            )
    return label_lists


def _rows_of_matrix(matrix: csr_matrix) -> list[Any]:
    matrix.eliminate_zeros()
    if not np.all(matrix.data == 1):
        raise DataError(
            f"an indicator matrix holds 0 and 1 only, and this one {matrix.data.max():g} as well"
        )
    bounds = zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
    return [sorted(matrix.indices[start:stop].tolist()) for start, stop in bounds]


def _read_settings(path: Path) -> dict[str, Any]:
    if not path.exists():  # a model of `glocal train`
        return {}
    try:
        settings: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error
    return settings

"""`Tagger`: train, predict, explain and save in a few lines, as a scikit-learn estimator.

- works in scikit-learn's `GridSearchCV` and pipelines, and does not need scikit-learn;
- texts are a single string or any sequence of strings (list, array, Series);
- labels are lists or sets for each text, or a binary indicator matrix (dense, sparse, DataFrame),
  and come back in the form and type they went in (strings, or whole numbers);
- a model lives in a directory, by default a temporary one; copies and pickles carry it along.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal import tagger_files as files
from glocal.config import Recipe
from glocal.data.atomic import replace_dir, temporary_dir
from glocal.errors import DataError, ModelError, Remedy
from glocal.estimator import Estimator, NotFittedError, raise_not_fitted
from glocal.ranking.decision import choose_tags
from glocal.terminal import TrainingProgress, open_console, progress_bar
from glocal.text_inputs import LabelColumns, as_corpus, as_dev_corpus, as_matrix, as_texts

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from glocal.predict.evaluation import EvaluationReport
    from glocal.predict.explain import TagExplanation
    from glocal.predict.predictor import Predictor
    from glocal.ranking.predictions import Predictions
    from glocal.train.listener import TrainListener
    from glocal.vocabulary.label_table import LabelTable

__all__ = ["NotFittedError", "Tagger"]


class Tagger(Estimator):
    """Tags texts with labels.

    Args:
        recipe: A built-in recipe's name, a path to a TOML file, or a `Recipe`.
        overrides: Settings that differ from the recipe, such as `{"train.epochs": 3}`.
        threshold: Lowest probability of a label that `predict` returns; by default the threshold
            that training tuned for the best F1, and at least one label for each text.
        k: Largest number of labels that `predict` returns for a text; also the k of the P@k that
            `score` returns.
        device: The device to compute on: `auto`, `cpu`, `cuda` or `cuda:N`.
        random_state: Random seed; None takes the recipe's.
        verbose: Whether to show progress; None shows it on a terminal and in a notebook.

    Attributes:
        classes_: The labels; position i is the label with index i in predictions. After `fit` on
            an indicator matrix, the label of each of its columns.
        predictor_: The fitted model.
        metrics_: What training measured.

    Example:
        >>> from glocal import Tagger
        >>> texts = ["a red apple", "a blue whale", "a green apple", "a grey whale"]
        >>> labels = [["fruit"], ["animal"], ["fruit"], ["animal"]]
        >>> tagger = Tagger("fast").fit(texts, labels)
        >>> tagger.predict("an apple", k=1)
        ['fruit']
    """

    def __init__(
        self,
        recipe: str | Path | Recipe = "auto",
        *,
        overrides: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        k: int = 5,
        device: str = "auto",
        random_state: int | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.recipe = recipe
        self.overrides = overrides
        self.threshold = threshold
        self.k = k
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        dev: tuple[Any, Any] | None = None,
        label_table: LabelTable | str | Path | None = None,
        out: str | Path | None = None,
        resume: bool = False,
        overwrite: bool = False,
        listener: TrainListener | None = None,
    ) -> Tagger:
        """Train on texts and their labels.

        Args:
            X: Texts: a list, an array or a Series of strings.
            y: For each text its labels (strings or whole numbers) as a list or set; or an indicator
                matrix (texts, labels), dense or sparse, whose column numbers are the labels, or a
                DataFrame of this kind, whose column names are.
            dev: Held-out texts and their labels, as a pair; they decide the best checkpoint, the
                experts' weights and the calibration; by default training texts are held out for it.
            label_table: Names and descriptions of labels, or a file of them.
            out: The model directory to write; a temporary one by default, of which nothing is kept
                if training is interrupted.
            resume: Whether to continue a run into `out` that was interrupted.
            overwrite: Whether a model already at `out` may be replaced.
            listener: Receives progress events, in place of the progress bar.

        Raises:
            ConfigError: When a parameter or a setting is wrong.
            DataError: When texts or labels cannot be used.

        Example:
            >>> tagger = Tagger("fast", random_state=7).fit(texts, labels, dev=(texts, labels))
            >>> tagger.classes_.tolist()
            ['animal', 'fruit']
        """
        from glocal.predict.predictor import Predictor
        from glocal.train.run import fit
        from glocal.vocabulary.label_table import read_label_table

        recipe = self._resolve()
        corpus, whole_numbers = as_corpus(X, y)
        dev_corpus = as_dev_corpus(dev)
        if isinstance(label_table, str | Path):
            label_table = read_label_table(label_table)
        home = None if out else files.TemporaryHome()
        with TrainingProgress(open_console(self.verbose)) as progress, files.interruptible(out):
            result = fit(
                recipe,
                corpus,
                out=home.path if home else Path(str(out)),
                dev=dev_corpus,
                label_table=label_table,
                resume=resume,
                overwrite=overwrite,
                device=self.device,
                listener=listener or progress,
            )
        predictor = Predictor.load(result.path, device=self.device)
        self._adopt(predictor, result.path, whole_numbers, LabelColumns.of(y))
        self._home = home  # only now, so that a failed fit leaves the former model usable
        self.metrics_ = result.metrics
        self._write_settings(result.path)
        return self

    def _adopt(
        self, predictor: Predictor, path: Path, whole_numbers: bool, columns: LabelColumns | None
    ) -> None:
        labels: list[Any] = list(predictor.labels.ids)
        self._columns = columns
        self._places = np.arange(len(labels)) if columns is None else columns.positions(labels)
        if columns is not None:
            labels = list(columns.names)
        elif whole_numbers:
            labels = [int(label) for label in labels]
        self.classes_ = np.empty(len(labels), dtype=object)
        self.classes_[:] = labels
        self.predictor_ = predictor
        self._path = path
        self._whole_numbers = whole_numbers

    def predict(
        self,
        X: Any,
        *,
        k: int | None = None,
        threshold: float | None = None,
        batch_size: int | None = None,
        show_progress: bool | None = None,
    ) -> Any:
        """Return the labels of each text, best first.

        `k=3` gives exactly three labels, `threshold=0.2` every label that reaches it, and both give
        at most three that reach it. With neither, labels reach the tagger's `threshold`, if it was
        given one, and are `self.k` at most; otherwise the decision tuned in training holds, which
        gives each text at least one label (`predictor_.decision`).

        Args:
            X: A text, or a list, an array or a Series of texts.
            k: Largest number of labels for a text.
            threshold: Lowest probability of a label.
            batch_size: Texts per batch.
            show_progress: Whether to show a progress bar; by default as `verbose` says.

        Returns:
            A list of labels for each text; for a single text, its list. After `fit` on an indicator
            matrix, the same kind of matrix for several texts.

        Example:
            >>> tagger.predict(["an apple", "a whale"], k=1)
            [['fruit'], ['animal']]
            >>> tagger.predict("an apple", threshold=0.0) == tagger.predict("an apple", k=2)
            True
        """
        if k is None and threshold is None and self.threshold is not None:
            k, threshold = self._width(None), self.threshold
        predictor, single = self._fitted(), isinstance(X, str)
        texts = [X] if single else as_texts(X)
        options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
        found = choose_tags(
            functools.partial(self.predict_topk, texts, **options),
            len(predictor.labels),
            predictor.decision,
            k=k,
            threshold=threshold,
        )
        if self._columns is not None and not single:
            return self._columns.shaped(as_matrix(found, self._places, len(self.classes_)))
        labels = [
            [self.classes_[place] for place in self._places[row[row >= 0]]] for row in found.indices
        ]
        return labels[0] if single else labels

    def predict_topk(
        self,
        X: Any,
        k: int | None = None,
        *,
        batch_size: int | None = None,
        show_progress: bool | None = None,
    ) -> Predictions:
        """Return the k best labels of each text with their probabilities.

        Args:
            X: A text, or a list, an array or a Series of texts.
            k: Number of labels; the tagger's own by default.
            batch_size: Texts per batch.
            show_progress: Whether to show a progress bar; by default as `verbose` says.

        Returns:
            `Predictions`, whose indices are positions in `classes_`; a single text is one row.

        Example:
            >>> found = tagger.predict_topk(["an apple"], k=1)
            >>> found.label_ids(0), found.indices.shape
            (['fruit'], (1, 1))
        """
        predictor = self._fitted()
        texts = [X] if isinstance(X, str) else as_texts(X)
        width = self._width(k)
        predictor.check_k(width)
        # A single batch is done before a bar could be read.
        shown = self.verbose if show_progress is None else show_progress
        several = show_progress or len(texts) > (batch_size or predictor.batch_size)
        with progress_bar(open_console(shown) if several else None, "tagging") as progress:
            return predictor.predict(texts, k=width, batch_size=batch_size, progress=progress)

    def predict_proba(self, X: Any, k: int | None = None, **options: Any) -> csr_matrix:
        """Return probabilities as a sparse matrix (texts, labels) of the k best of each text.

        Column j is `classes_[j]`. Labels that are not stored were not among the k best: their
        probability is not 0.

        Args:
            X: A text, or a list, an array or a Series of texts.
            k: Number of labels for each text; the tagger's own by default.
            **options: `batch_size` and `show_progress` of `predict`.

        Example:
            >>> chances = tagger.predict_proba(["an apple"], k=2)
            >>> chances.shape, tagger.classes_[chances.argmax()]
            ((1, 2), 'fruit')
        """
        return as_matrix(self.predict_topk(X, k, **options), self._places, len(self.classes_))

    def score(self, X: Any, y: Any) -> float:
        """Return P@k: the share of the k best labels that are right, over texts with labels.

        Example:
            >>> tagger.set_params(k=1).score(texts, labels)
            1.0
        """
        from glocal.predict.metric_scores import metric_value

        predictor = self._fitted()
        corpus, _ = as_corpus(X, y)
        k = self._width(None)
        gold = predictor.labels.encode(corpus)
        return float(metric_value(f"P@{k}", predictor.predict_corpus(corpus, k=k), gold))

    def evaluate(self, X: Any, y: Any, *, ks: Sequence[int] = (1, 3, 5)) -> EvaluationReport:
        """Compute all metrics, for the model and each expert, by frequency band.

        Example:
            >>> tagger.evaluate(texts, labels, ks=(1,)).scores["P@1"]
            1.0
        """
        corpus, _ = as_corpus(X, y)
        return self._fitted().evaluate(corpus, ks=tuple(ks), threshold=self.threshold)

    def explain(self, text: str, *, k: int | None = None, words: int = 8) -> list[TagExplanation]:
        """Return the best labels of a text, each expert's contribution and the words behind each.

        Args:
            text: A single text.
            k: Number of labels; the tagger's own by default.
            words: Words per label and expert at most; neighbouring words become one phrase.

        Example:
            >>> [span.text for span in tagger.explain("an apple", k=1)[0].spans_of()]
            ['apple']
        """
        predictor = self._fitted()
        if not isinstance(text, str):
            raise DataError(f"text is of type {type(text).__name__}; expected a single string")
        return predictor.explain(text, k=self._width(k), words=words)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Copy the model directory to `path`, for `Tagger.load` and the `glocal` commands.

        Raises:
            ModelError: When something is there already and `overwrite` is not set.

        Example:
            >>> path = tagger.save("model/", overwrite=True)
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
        """Read a model directory, whether `save` or `glocal train` wrote it.

        Example:
            >>> Tagger.load("model/").predict("an apple", k=1)
            ['fruit']
        """
        from glocal.predict.predictor import Predictor

        predictor = Predictor.load(path, device=device)
        settings = files.read_settings(Path(path), predictor.labels.ids)
        k, threshold = settings.k, settings.threshold
        tagger = cls(predictor.recipe, threshold=threshold, k=k, device=device)
        tagger._adopt(predictor, Path(path), settings.whole_numbers, settings.columns)
        return tagger

    @classmethod
    def from_pretrained(cls, name: str | Path, *, device: str = "auto") -> Tagger:
        """Read a model from a folder, or from the Hugging Face hub by its id, `owner/name`.

        Example:
            >>> Tagger.from_pretrained("model/").predict("an apple", k=1)
            ['fruit']
        """
        from glocal.storage.hub import fetch_model

        return cls.load(fetch_model(name), device=device)

    def _write_settings(self, folder: Path) -> None:
        own = self.k, self.threshold, self._whole_numbers, self._columns
        files.write_settings(folder, files.TaggerSettings(*own))

    def __getstate__(self) -> dict[str, Any]:
        made_again = {"predictor_", "_home", "_path"}
        state = {key: value for key, value in vars(self).items() if key not in made_again}
        fitted = "predictor_" in vars(self)
        return state | ({"_files": files.read_files(self._path)} if fitted else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        from glocal.predict.predictor import Predictor

        stored = state.pop("_files", None)
        vars(self).update(state)
        if stored is not None:
            self._home = files.TemporaryHome(stored)
            self._path = self._home.path
            self.predictor_ = Predictor.load(self._path, device=self.device)

    def _width(self, k: int | None) -> int:
        """Return the number of labels asked for: k, or the tagger's own as far as there are."""
        return min(self.k, len(self._fitted().labels)) if k is None else k

    def _fitted(self) -> Predictor:
        if not self.__sklearn_is_fitted__():
            raise_not_fitted("this Tagger has no model yet; call `fit` first, or use `Tagger.load`")
        return self.predictor_

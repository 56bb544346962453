"""The steps of a request in every interface: find the model, check texts, tag them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request

from glocal.data.corpus import surrogate_in
from glocal.errors import ModelError, no_such
from glocal.predict.language_routing import detect_language
from glocal.ranking.predictions import Predictions
from glocal.serve.batching import Choice, LabelIds
from glocal.serve.feedback_store import FeedbackStore
from glocal.serve.problems import Problem
from glocal.serve.serve_settings import ServeSettings
from glocal.serve.served_models import LoadedModel, ServedModel
from glocal.serve.server_metrics import ServerMetrics
from glocal.serve.similar_texts import SimilarTexts


@dataclass
class Service:
    """The parts of a running server that requests use."""

    settings: ServeSettings
    models: Mapping[str, ServedModel]  # by id, in the order they were given
    metrics: ServerMetrics
    feedback: FeedbackStore | None = None
    similar: SimilarTexts | None = None
    stopping: bool = False

    def model(self, id: str | None) -> ServedModel:
        """Return a model by its id, the first one by default.

        Raises:
            Problem: 404, there is no such model.
        """
        found = next(iter(self.models.values())) if id is None else self.models.get(id)
        if found is None:
            raise Problem(404, no_such("model", str(id)[:100], self.models))
        return found

    async def models_for(
        self, id: str | None, texts: Sequence[str]
    ) -> list[tuple[ServedModel, list[int]]]:
        """Return the models that tag texts, with the positions of their texts.

        Args:
            id: The model that was asked for; None for the models of the texts' languages.
            texts: The texts.

        Raises:
            Problem: 404, there is no such model.
        """
        asked, routes = self.model(id), self.settings.routes
        if id is not None or not routes:
            return [(asked, list(range(len(texts))))]
        by_path = {model.path.resolve(): model for model in self.models.values()}
        positions: dict[str, list[int]] = {}
        for position, text in enumerate(texts):
            language = await asyncio.to_thread(detect_language, text, list(routes))
            model = asked if language is None else by_path[routes[language].resolve()]
            positions.setdefault(model.id, []).append(position)
        return [(self.model(name), found) for name, found in positions.items()]

    async def loaded(self, model: ServedModel) -> LoadedModel:
        """Return a model in memory, loading it if need be.

        Raises:
            Problem: 503, it cannot be loaded.
        """
        try:
            return await model.current()
        except (ModelError, OSError) as error:
            raise Problem(503, f"model '{model.id}' cannot be loaded: {error}") from error

    def checked_texts(self, texts: Sequence[str], *, truncate: bool = False) -> list[str]:
        """Return texts that are valid Unicode and not too long or too many.

        Raises:
            Problem: 413 or 422.
        """
        limits = self.settings.limits
        if len(texts) > limits.max_texts:
            raise Problem(
                413,
                f"the request has {len(texts)} texts; at most {limits.max_texts} are allowed, so "
                "send several requests",
            )
        checked = []
        for number, text in enumerate(texts):
            if problem := surrogate_in(text):
                raise Problem(422, f"text {number + 1}: {problem}")
            if len(text) > limits.max_characters and not truncate:
                raise Problem(
                    413,
                    f"text {number + 1} has {len(text):,} characters; at most "
                    f"{limits.max_characters:,} are allowed; shorten it, or send truncate=true",
                )
            checked.append(text[: limits.max_characters])
        return checked

    async def tag(
        self,
        model: LoadedModel,
        texts: Sequence[str],
        *,
        k: int | None = None,
        threshold: float | None = None,
        truncate: bool = False,
        only: LabelIds = None,
        exclude: LabelIds = None,
    ) -> Predictions:
        """Return the tags of each text; without k and threshold the stored decision applies.

        Raises:
            Problem: A text is not valid, or there are too many.
            Busy: Too many texts wait.
            UnknownLabels: A label is not known.
            ConfigError: No label is left to choose from.
        """
        from glocal.predict.predict_options import allowed_labels
        from glocal.ranking.decision import tag_steps

        checked, predictor = self.checked_texts(texts, truncate=truncate), model.predictor
        model.check_labels((*(only or ()), *(exclude or ())))
        allowed_labels(predictor.labels, only, exclude)
        most = min(self.settings.limits.max_tags, len(predictor.labels))
        wanted = None if k is None else min(k, most)
        steps = tag_steps(most, predictor.decision, k=wanted, threshold=threshold)
        width = next(steps)
        while True:
            best = model.batcher.predict(checked, Choice(width, only, exclude))
            try:
                width = steps.send(await asyncio.wrap_future(best))
            except StopIteration as end:
                found: Predictions = end.value
                return found

    def feedback_store(self) -> FeedbackStore:
        """Return the place for corrections.

        Raises:
            Problem: 403, they are not accepted.
        """
        if self.feedback is None:
            raise Problem(
                403,
                "this server does not accept feedback; its operator can start it with a folder "
                "for feedback",
            )
        return self.feedback

    async def store(self, model: ServedModel, rows: Iterable[Mapping[str, Any]]) -> None:
        """Store corrections; returns when they are on the disk.

        Raises:
            Problem: 403, they are not accepted; 503, they could not be written.
        """
        try:
            await asyncio.wrap_future(self.feedback_store().append(model.id, rows))
        except OSError as error:
            raise Problem(
                503, f"the feedback could not be stored ({error.strerror}); nothing of it was kept"
            ) from error


async def _service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


InService = Annotated[Service, Depends(_service_of)]  # an argument of every route

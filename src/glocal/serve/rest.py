"""The REST interface of glocal: predict, explain, labels, models, feedback."""

from __future__ import annotations

import asyncio
import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import PlainTextResponse, Response

from glocal.errors import GlocalError
from glocal.serve import explanations, schemas
from glocal.serve.problems import Problem
from glocal.serve.prometheus import CONTENT_TYPE
from glocal.serve.service import Service

_MAX_PAGE_SIZE = 200
_EXPLAINED = 5


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of answers with these error statuses."""
    content = {"application/problem+json": {"schema": schemas.ProblemDocument.model_json_schema()}}
    named = {
        400: "The request is not valid.",
        401: "The API key is missing or wrong.",
        403: "The server does not allow this.",
        404: "There is no such model.",
        408: "The request did not arrive in time.",
        413: "The body, a text or the number of texts is too large.",
        415: "The content type or encoding is not supported.",
        422: "The request is not valid.",
        429: "Too many requests; try again after the time in Retry-After.",
        503: "The model cannot be loaded, or there was no result in time.",
    }
    return {status: {"description": named[status], "content": content} for status in statuses}


POST_PROBLEMS = (400, 401, 403, 404, 408, 413, 415, 422, 429, 503)
GET_PROBLEMS = (401, 403, 404, 422, 503)


def rest_router(service: Service) -> APIRouter:
    """Return the routes under `/v1` that are glocal's own."""
    router = APIRouter(prefix="/v1", tags=["glocal"])

    @router.get("/models", responses=problem_responses(401, 403, 503))
    async def models() -> schemas.ModelList:
        """List the models."""
        found = await asyncio.gather(
            *(asyncio.to_thread(model.facts) for model in service.models.by_id.values())
        )
        return schemas.ModelList(models=[schemas.ModelFacts(**facts) for facts in found])

    @router.get("/models/{id}", responses=problem_responses(*GET_PROBLEMS))
    async def model_details(id: str) -> schemas.ModelDetails:
        """Show a model's card, metrics and recipe."""
        model = service.model(id)
        facts = await asyncio.to_thread(lambda: {**model.facts(), **model.details()})
        return schemas.ModelDetails(**facts)

    @router.post("/predict", responses=problem_responses(*POST_PROBLEMS))
    async def predict(request: schemas.PredictRequest) -> schemas.PredictResponse:
        """Tag texts. Without k and threshold the decision stored with the model applies."""
        model = service.model(request.model)
        found = await service.tag(
            await service.loaded(model),
            request.texts,
            truncate=request.truncate,
            k=request.k,
            threshold=request.threshold,
            only=None if request.only is None else tuple(request.only),
            exclude=None if request.exclude is None else tuple(request.exclude),
        )
        results = [
            schemas.TaggedText(tags=[schemas.Tag(**tag._asdict()) for tag in tags])
            for tags in found
        ]
        return schemas.PredictResponse(model=model.id, results=results)

    @router.post("/explain", responses=problem_responses(*POST_PROBLEMS))
    async def explain(request: schemas.ExplainRequest) -> schemas.ExplainResponse:
        """Explain tags: each expert's share, the words behind a tag, similar training texts."""
        model = service.model(request.model)
        loaded = await service.loaded(model)
        (text,) = service.checked_texts([request.text], truncate=request.truncate)
        k = min(request.k or _EXPLAINED, len(loaded.predictor.labels))
        return await loaded.run(
            lambda predictor: explanations.explain(
                predictor,
                text,
                model=model.id,
                k=k,
                labels=request.labels,
                similar=service.settings.similar_texts,
            )
        )

    @router.get("/labels", responses=problem_responses(*GET_PROBLEMS))
    async def labels(
        *,
        model: str | None = None,
        q: Annotated[str, Query(max_length=200, description="Words of a name.")] = "",
        parent: Annotated[
            str | None,
            Query(max_length=1_000, description="Only labels below this id; top labels if empty."),
        ] = None,
        page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
        size: Annotated[int, Query(ge=1, le=_MAX_PAGE_SIZE)] = 20,
    ) -> schemas.LabelPage:
        """Search labels by name and alternative names, or walk down the hierarchy."""
        loaded = await service.loaded(service.model(model))
        return await asyncio.to_thread(
            lambda: explanations.label_page(loaded.search, q, parent=parent, page=page, size=size)
        )

    @router.post("/feedback", status_code=201, responses=problem_responses(*POST_PROBLEMS))
    async def feedback(request: schemas.FeedbackRequest) -> schemas.FeedbackResponse:
        """Store a text with its right labels as a training row; it is on the disk when answered."""
        model = service.model(request.model)
        service.feedback_store()
        (text,) = service.checked_texts([request.text])
        if not text.strip():
            raise Problem(422, "body.text: the text is empty; a training row needs one")
        known = (await service.loaded(model)).predictor.labels.index
        id, labels = request.id or uuid.uuid4().hex, list(dict.fromkeys(request.labels))
        row: dict[str, Any] = {"id": id, "text": text, "labels": labels}
        if request.suggested is not None:
            row["suggested"] = request.suggested
        await service.store(model, [row])
        unknown = [label for label in labels if label not in known]
        return schemas.FeedbackResponse(id=id, unknown_labels=unknown)

    return router


def health_router(service: Service) -> APIRouter:
    """Return the routes for operators: health, readiness, metrics."""
    router = APIRouter(tags=["operation"])

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Say that the server is alive."""
        return {"status": "ok"}

    @router.get("/readyz", responses=problem_responses(503))
    async def readyz() -> dict[str, str]:
        """Say whether the server takes requests: it is not stopping and its models are readable."""
        if service.stopping:
            raise Problem(503, "the server is stopping")
        for model in service.models.by_id.values():
            try:
                await asyncio.to_thread(model.facts)
            except (GlocalError, OSError) as error:
                raise Problem(503, f"model '{model.id}' is not readable") from error
        return {"status": "ready"}

    @router.get("/metrics", response_class=PlainTextResponse, responses=problem_responses(401))
    async def metrics() -> Response:
        """Return the metrics of the server for Prometheus."""
        text = service.metrics.render(service.models, service.feedback)
        return Response(text, media_type=CONTENT_TYPE)

    return router

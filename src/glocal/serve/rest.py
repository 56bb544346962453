"""The REST interface of glocal: predict, explain, labels, models, feedback."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import PlainTextResponse, Response

from glocal.errors import GlocalError
from glocal.serve import schemas
from glocal.serve.problems import GET_PROBLEMS, POST_PROBLEMS, Problem, problem_responses
from glocal.serve.prometheus import CONTENT_TYPE
from glocal.serve.service import InService

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor

_MAX_PAGE_SIZE = 200
_EXPLAINED = 5


rest_router = APIRouter(prefix="/v1", tags=["glocal"])
health_router = APIRouter(tags=["operation"])


@rest_router.get("/models", responses=problem_responses(401, 403, 503))
async def models(service: InService) -> schemas.ModelList:
    """List the models."""
    found = await asyncio.gather(
        *(asyncio.to_thread(model.facts) for model in service.models.values())
    )
    return schemas.ModelList(models=[schemas.ModelFacts(**facts) for facts in found])


@rest_router.get("/models/{id}", responses=problem_responses(*GET_PROBLEMS))
async def model_details(id: str, service: InService) -> schemas.ModelDetails:
    """Show a model's card, metrics and recipe."""
    model = service.model(id)
    facts = await asyncio.to_thread(lambda: {**model.facts(), **model.details()})
    return schemas.ModelDetails(**facts)


@rest_router.post("/predict", responses=problem_responses(*POST_PROBLEMS))
async def predict(request: schemas.PredictRequest, service: InService) -> schemas.PredictResponse:
    """Tag texts.

    Without k and threshold the decision stored with the model applies. Without a model, the one for
    the text's language, where the server has such.
    """
    texts = service.checked_texts(request.texts, truncate=request.truncate)
    results: dict[int, schemas.TaggedText] = {}
    for model, positions in await service.models_for(request.model, texts):
        found = await service.tag(
            await service.loaded(model),
            [texts[position] for position in positions],
            k=request.k,
            threshold=request.threshold,
            only=None if request.only is None else tuple(request.only),
            exclude=None if request.exclude is None else tuple(request.exclude),
        )
        for position, tags in zip(positions, found, strict=True):
            listed = [schemas.Tag(**tag._asdict()) for tag in tags]
            results[position] = schemas.TaggedText(tags=listed, model=model.id)
    return schemas.PredictResponse(
        model=service.model(request.model).id,
        results=[results[position] for position in range(len(texts))],
    )


@rest_router.post("/explain", responses=problem_responses(*POST_PROBLEMS))
async def explain(request: schemas.ExplainRequest, service: InService) -> schemas.ExplainResponse:
    """Explain tags: each expert's share, the words behind a tag, similar training texts."""
    model = service.model(request.model)
    loaded = await service.loaded(model)
    loaded.check_labels(request.labels or ())
    (text,) = service.checked_texts([request.text], truncate=request.truncate)
    k = min(request.k or _EXPLAINED, len(loaded.predictor.labels))

    def explained(predictor: Predictor) -> schemas.ExplainResponse:
        tags = [tag.to_dict() for tag in predictor.explain(text, k=k, labels=request.labels)]
        return schemas.ExplainResponse(
            model=model.id,
            tags=[schemas.ExplainedTag(**tag) for tag in tags],
            similar=[] if service.similar is None else service.similar.explain(predictor, text),
        )

    return await loaded.run(explained)


@rest_router.get("/labels", responses=problem_responses(*GET_PROBLEMS))
async def labels(
    *,
    service: InService,
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
    search = (await service.loaded(service.model(model))).search

    def found() -> schemas.LabelPage:
        total, positions = search.find(q, parent=parent, page=page, size=size)
        labels = search.labels
        facts = [
            schemas.LabelFacts(
                id=labels.ids[position],
                name=labels.names[position],
                alternatives=list(labels.alt_names[position]),
                description=labels.descriptions[position],
                parents=list(labels.parents[position]),
                children_count=search.children_count(position),
                count=int(labels.counts[position]),
            )
            for position in positions
        ]
        return schemas.LabelPage(total=total, page=page, size=size, labels=facts)

    return await asyncio.to_thread(found)


@rest_router.post("/feedback", status_code=201, responses=problem_responses(*POST_PROBLEMS))
async def feedback(
    request: schemas.FeedbackRequest, service: InService
) -> schemas.FeedbackResponse:
    """Store a text with its right labels as a training row; it is on the disk when answered."""
    model = service.model(request.model)
    service.feedback_store()
    (text,) = service.checked_texts([request.text])
    known = (await service.loaded(model)).predictor.labels.index
    id, labels = request.id or uuid.uuid4().hex, list(dict.fromkeys(request.labels))
    row: dict[str, Any] = {"id": id, "text": text, "labels": labels}
    if request.suggested is not None:
        row["suggested"] = request.suggested
    await service.store(model, [row])
    unknown = [label for label in labels if label not in known]
    return schemas.FeedbackResponse(id=id, unknown_labels=unknown)


@health_router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Say that the server is alive."""
    return {"status": "ok"}


@health_router.get("/readyz", responses=problem_responses(503))
async def readyz(service: InService) -> dict[str, str]:
    """Say whether the server takes requests: it is not stopping and its models are readable."""
    if service.stopping:
        raise Problem(503, "the server is stopping")
    for model in service.models.values():
        try:
            await asyncio.to_thread(model.facts)
        except (GlocalError, OSError) as error:
            raise Problem(503, f"model '{model.id}' is not readable") from error
    return {"status": "ready"}


@health_router.get("/metrics", response_class=PlainTextResponse, responses=problem_responses(401))
async def metrics(service: InService) -> Response:
    """Return the metrics of the server for Prometheus."""
    text = service.metrics.render(service.models, service.feedback)
    return Response(text, media_type=CONTENT_TYPE)

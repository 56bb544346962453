"""The ASGI application: routes, errors, and the life of the models behind them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from glocal._version import __version__
from glocal.data.readers import read_corpus
from glocal.errors import GlocalError
from glocal.serve import annif
from glocal.serve.annif import annif_router
from glocal.serve.batching import Busy
from glocal.serve.docs_page import docs_page
from glocal.serve.feedback_store import FeedbackStore
from glocal.serve.guard import REFUSED, Application, Guard, Observer
from glocal.serve.label_studio import label_studio_router
from glocal.serve.problems import Problem, busy, describe_validation
from glocal.serve.rest import health_router, rest_router
from glocal.serve.serve_settings import ServeSettings
from glocal.serve.served_models import ServedModel, UnknownLabels, model_ids, watch
from glocal.serve.server_metrics import ServerMetrics
from glocal.serve.service import Service
from glocal.serve.similar_texts import SimilarTexts
from glocal.serve.tei import tei_router

STATIC = Path(__file__).parent / "static"


def create_app(settings: ServeSettings, *, log: Callable[[str], None] | None = None) -> Application:
    """Build the application.

    Args:
        settings: Settings of the server.
        log: Writes one line of the access log; to stderr by default.

    Raises:
        ConfigError: The settings cannot be served.
        DataError: The similar texts cannot be read.
    """
    settings.check()
    metrics = ServerMetrics()
    models = {
        id: ServedModel(
            id,
            path,
            settings,
            on_batch=partial(metrics.count_batch, id),
            on_load=partial(metrics.loads.add, id),
        )
        for id, path in zip(model_ids(settings.models), settings.models, strict=True)
    }
    for model in models.values():
        model.facts()  # a directory that is not a model is refused at the start
    shown = settings.similar_texts
    similar = None if shown is None else SimilarTexts(read_corpus(shown))
    service = Service(settings, models, metrics, similar=similar)
    inner = _routes(service)
    return Observer(Guard(inner, settings, metrics), metrics, log=log)


def _routes(service: Service) -> FastAPI:
    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        if service.settings.feedback is not None:
            service.feedback = FeedbackStore(service.settings.feedback)
        models, seconds = service.models.values(), service.settings.limits.reload_seconds
        watching = asyncio.create_task(watch(models, seconds))
        try:
            yield
        finally:
            service.stopping = True
            watching.cancel()
            for model in models:
                model.close()
            if service.feedback is not None:
                service.feedback.close()

    app = FastAPI(
        title="glocal",
        version=__version__,
        description="Tags texts with the right few labels out of thousands to millions.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        separate_input_output_schemas=False,
    )
    app.state.service = service
    for router in (rest_router, annif_router, tei_router, health_router):
        app.include_router(router)
    for prefix in ("/label-studio", "/label-studio/{model}"):
        app.include_router(label_studio_router, prefix=prefix)
    _add_page(app)
    _add_errors(app)
    return app


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(docs_page(app.openapi()))

    app.mount("/static", StaticFiles(directory=STATIC), name="static")


def _add_errors(app: FastAPI) -> None:
    async def handle(request: Request, error: Any) -> Response:
        problem = _problem(error)
        request.scope[REFUSED] = problem.status == 429
        tags = getattr(request.scope.get("route"), "tags", ())
        if problem.status == 422 and annif.TAG in tags:  # Annif knows no other
            problem.status = 400
        return problem.response()

    for kind in (Problem, Busy, RequestValidationError, HTTPException, GlocalError):
        app.add_exception_handler(kind, handle)


def _problem(error: Any) -> Problem:
    """Return the problem that an exception stands for."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, Busy):
        return busy("too many texts wait for this model; try again")
    if isinstance(error, RequestValidationError):
        return Problem(422, describe_validation(error.errors()))
    if isinstance(error, HTTPException):
        return Problem(error.status_code, str(error.detail), headers=error.headers)
    return Problem(404 if isinstance(error, UnknownLabels) else 422, error.message)

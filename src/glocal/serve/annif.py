"""Annif's REST interface, so that glocal can stand in for an Annif server.

A model is a project, its labels are a vocabulary; a label's id is the URI of a subject. Paths,
fields and statuses follow the OpenAPI file of Annif 1.4.
"""

from __future__ import annotations

import asyncio
import uuid
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from glocal._version import __version__
from glocal.predict.language_routing import MOST_LANGUAGES, known_words, supported_languages
from glocal.serve.problems import Problem, problem_responses
from glocal.serve.served_models import ServedModel
from glocal.serve.service import InService, Service

TAG = "Annif"
UNDETERMINED = "und"  # the language of a server that was not told one

_LANGUAGES: list[Any] = supported_languages()


class SuggestOptions(BaseModel):
    """How many subjects are wanted, and in which language."""

    limit: int = Field(10, ge=0, le=2**31 - 1, description="Largest number of subjects.")
    threshold: float = Field(
        0.0, ge=0, le=1, allow_inf_nan=False, description="Lowest score of a subject."
    )
    language: str | None = Field(
        None, max_length=100, description="Language of the subjects' labels."
    )


class SuggestForm(SuggestOptions):
    """A text to tag; further fields are accepted and not used."""

    # A form with an empty text is valid to Annif, and one without the field is not.
    model_config = ConfigDict(json_schema_extra={"required": ["text"]})
    text: str = Field("", description="The text.")


class ApiInfo(BaseModel):
    """The name and version of the interface."""

    title: str
    version: str


class Vocabulary(BaseModel):
    """The labels of a model."""

    vocab_id: str
    languages: list[str]
    size: int | None
    loaded: bool


class VocabularyList(BaseModel):
    """All vocabularies."""

    vocabs: list[Vocabulary]


class ProjectBackend(BaseModel):
    """The kind of a project."""

    backend_id: str


class Project(BaseModel):
    """A model as Annif describes it."""

    project_id: str
    name: str
    language: str
    backend: ProjectBackend
    vocab: Vocabulary
    vocab_language: str
    is_trained: bool
    modification_time: datetime


class ProjectList(BaseModel):
    """All projects."""

    projects: list[Project]


class Subject(BaseModel):
    """A suggested label."""

    uri: str
    label: str
    notation: str | None
    score: float


class Suggestions(BaseModel):
    """The suggested labels of a text, best first."""

    results: list[Subject]


class BatchSuggestions(Suggestions):
    """The suggested labels of one of several texts."""

    document_id: str | None


class AnnifDocument(BaseModel):
    """A text to tag."""

    text: str
    document_id: str | None = None
    metadata: dict[str, str] | None = None


class DocumentBatch(BaseModel):
    """Texts to tag."""

    documents: list[AnnifDocument] = Field(max_length=32)


class SubjectReference(BaseModel):
    """A label of a text."""

    uri: str = Field(max_length=1_000)
    label: str | None = None


class IndexedDocument(BaseModel):
    """A text with its right labels."""

    text: str | None = None
    metadata: dict[str, str] | None = None
    subjects: list[SubjectReference] | None = None


class LanguageRequest(BaseModel):
    """A text whose language is asked for."""

    text: str = Field(examples=["A quick brown fox jumped over the lazy dog."])
    languages: list[Annotated[str, Field(json_schema_extra={"enum": _LANGUAGES})]] = Field(
        min_length=1, max_length=MOST_LANGUAGES, examples=[["en", "fi"]]
    )


class DetectedLanguage(BaseModel):
    """A language and the share of the text's words it knows; null for unknown words."""

    language: str | None
    score: float


class DetectedLanguages(BaseModel):
    """The languages asked for, the likeliest first."""

    results: list[DetectedLanguage]


annif_router = APIRouter(
    prefix="/v1", tags=[TAG], responses=problem_responses(400, 401, 403, 404, 503)
)
_POSTS = problem_responses(408, 413, 415, 429)


@annif_router.get("/")
async def info() -> ApiInfo:
    """Show the name and version of the interface."""
    return ApiInfo(title="glocal, with the interface of Annif", version=__version__)


@annif_router.get("/vocabs")
async def vocabs(service: InService) -> VocabularyList:
    """List the vocabularies, one for each model."""
    found = await _projects(service)
    return VocabularyList(vocabs=[project.vocab for project in found])


@annif_router.get("/projects")
async def projects(service: InService) -> ProjectList:
    """List the projects, one for each model."""
    found = await _projects(service)
    return ProjectList(projects=found)


@annif_router.get("/projects/{project_id}")
async def show_project(project_id: str, service: InService) -> Project:
    """Show a project."""
    return await asyncio.to_thread(_project, service, service.model(project_id))


@annif_router.post("/projects/{project_id}/suggest", responses=_POSTS)
async def suggest(
    project_id: str, service: InService, form: Annotated[SuggestForm, Form()], request: Request
) -> Suggestions:
    """Suggest subjects for a text."""
    if "text" not in await request.form():
        raise Problem(400, "the field 'text' is missing; send the text in it")
    found = await _suggestions(project_id, service, [form.text], form)
    return Suggestions(results=found[0])


@annif_router.post("/projects/{project_id}/suggest-batch", responses=_POSTS)
async def suggest_batch(
    project_id: str,
    service: InService,
    batch: DocumentBatch,
    options: Annotated[SuggestOptions, Query()],
) -> list[BatchSuggestions]:
    """Suggest subjects for up to 32 texts."""
    texts = [document.text for document in batch.documents]
    found = await _suggestions(project_id, service, texts, options)
    return [
        BatchSuggestions(results=results, document_id=document.document_id)
        for results, document in zip(found, batch.documents, strict=True)
    ]


@annif_router.post("/projects/{project_id}/learn", status_code=204, responses=_POSTS)
async def learn(project_id: str, service: InService, documents: list[IndexedDocument]) -> Response:
    """Store texts with their right subjects as training rows for the next training."""
    model = service.model(project_id)
    service.feedback_store()
    usable = [d for d in documents if d.text and d.text.strip() and d.subjects is not None]
    texts = [text for d in usable for text in service.checked_texts([d.text or ""])]
    rows = [
        {
            "id": uuid.uuid4().hex,
            "text": text,
            "labels": list(
                dict.fromkeys(subject.uri for subject in d.subjects or () if subject.uri)
            ),
        }
        for text, d in zip(texts, usable, strict=True)
    ]
    if rows:
        await service.store(model, rows)
    return Response(status_code=204, media_type="application/json")  # as Annif does


@annif_router.post("/detect-language", responses=_POSTS)
async def detect_language(request: LanguageRequest, service: InService) -> DetectedLanguages:
    """Detect the language of a text among some candidates."""
    (text,) = service.checked_texts([request.text])
    if not set(_LANGUAGES).issuperset(request.languages):
        known = ", ".join(_LANGUAGES)
        raise Problem(400, f"unsupported candidate languages; there are {known}")
    found = await asyncio.to_thread(known_words, text, request.languages)
    return DetectedLanguages(
        results=[
            DetectedLanguage(language=None if name == "unk" else name, score=share)
            for name, share in sorted(found.items(), key=lambda item: -item[1])
        ]
    )


async def _projects(service: Service) -> list[Project]:
    found = (asyncio.to_thread(_project, service, m) for m in service.models.values())
    return list(await asyncio.gather(*found))


def _project(service: Service, model: ServedModel) -> Project:
    facts, language = model.facts(), service.settings.language
    vocabulary = Vocabulary(
        vocab_id=model.id, languages=[language], size=facts["n_labels"], loaded=facts["loaded"]
    )
    return Project(
        project_id=model.id,
        name=facts["name"],
        language=language,
        backend=ProjectBackend(backend_id="glocal"),
        vocab=vocabulary,
        vocab_language=language,
        is_trained=True,
        modification_time=model.modified(),
    )


async def _suggestions(
    project_id: str, service: Service, texts: list[str], options: SuggestOptions
) -> list[list[Subject]]:
    model, known = service.model(project_id), service.settings.language
    if options.language and known not in (options.language, UNDETERMINED):
        raise Problem(400, f'language "{options.language}" not supported by vocabulary')
    if not texts or not options.limit:
        return [[] for _ in texts]
    loaded = await service.loaded(model)
    found = await service.tag(loaded, texts, k=options.limit, threshold=options.threshold)
    labels = loaded.predictor.labels
    return [
        [
            Subject(
                uri=tag.id,
                label=tag.name,
                notation=labels.notations[labels.index[tag.id]] or None,
                score=tag.score,
            )
            for tag in tags
        ]
        for tags in found
    ]

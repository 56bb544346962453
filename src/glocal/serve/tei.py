"""The `/predict` of text-embeddings-inference, as clients of text classifiers use it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from glocal.log_odds import log_odds
from glocal.serve.problems import POST_PROBLEMS, problem_responses
from glocal.serve.service import InService

_K = 10  # labels for each text

_One = Annotated[list[str], Field(min_length=1, max_length=1)]
_Several = Annotated[list[str] | list[_One], Field(min_length=1)]


class ClassifyRequest(BaseModel):
    """A text or several, each also in a list of its own."""

    model_config = ConfigDict(
        strict=True, json_schema_extra={"examples": [{"inputs": ["Burn of the right hand"]}]}
    )
    inputs: str | _Several = Field(description="One text, or a list of texts.")
    truncate: bool = Field(False, description="Cut a text that is too long instead of refusing it.")
    raw_scores: bool = Field(False, description="Return log-odds instead of probabilities.")


class ScoredLabel(BaseModel):
    """A label's id, its name and its score."""

    label: str
    name: str
    score: float


tei_router = APIRouter(tags=["text-embeddings-inference"])


@tei_router.post("/predict", responses=problem_responses(*POST_PROBLEMS))
async def classify(
    request: ClassifyRequest, service: InService
) -> list[ScoredLabel] | list[list[ScoredLabel]]:
    """Return the ten best labels of a text, or of each text of a list."""
    single = isinstance(request.inputs, str)
    given = [request.inputs] if isinstance(request.inputs, str) else request.inputs
    texts = [text if isinstance(text, str) else text[0] for text in given]
    loaded = await service.loaded(service.model(None))
    found = await service.tag(loaded, texts, k=_K, truncate=request.truncate)
    scores = log_odds(found.scores) if request.raw_scores else found.scores
    rows = [
        [
            ScoredLabel(label=tag.id, name=tag.name, score=float(score))
            for tag, score in zip(tags, row, strict=False)
        ]
        for tags, row in zip(found, scores, strict=True)
    ]
    return rows[0] if single else rows

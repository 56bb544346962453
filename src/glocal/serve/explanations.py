"""Explanations and labels as the REST interface shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glocal.serve import schemas
from glocal.serve.label_search import LabelSearch

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor


def explain(
    predictor: Predictor,
    text: str,
    *,
    model: str,
    k: int,
    labels: Sequence[str] | None,
    similar: bool,
) -> schemas.ExplainResponse:
    """Explain the best tags of a text, or the given labels."""
    found = predictor.explain(text, k=k, labels=labels)
    return schemas.ExplainResponse(
        model=model,
        tags=[schemas.ExplainedTag(**tag.to_dict()) for tag in found],
        similar=_similar_texts(predictor, text) if similar else [],
    )


def _similar_texts(predictor: Predictor, text: str) -> list[schemas.SimilarText]:
    found = predictor.explain_teacher(text)
    return [
        schemas.SimilarText(
            id=neighbour.id,
            text=None,
            labels=list(neighbour.labels),
            similarity=neighbour.similarity,
        )
        for neighbour in (found.neighbours if found is not None else ())
    ]


def label_page(
    search: LabelSearch, query: str, *, parent: str | None, page: int, size: int
) -> schemas.LabelPage:
    """Return a page of labels that match a query."""
    found, labels = search.find(query, parent=parent, page=page, size=size), search.labels
    return schemas.LabelPage(
        total=found.total,
        page=page,
        size=size,
        labels=[
            schemas.LabelFacts(
                id=labels.ids[position],
                name=labels.names[position],
                alternatives=list(labels.alt_names[position]),
                description=labels.descriptions[position],
                parents=list(labels.parents[position]),
                children_count=search.children_count(position),
                count=int(labels.counts[position]),
            )
            for position in found.positions
        ],
    )

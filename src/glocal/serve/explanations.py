"""Explanations and labels as the REST interface shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glocal.serve import schemas
from glocal.serve.label_search import LabelSearch
from glocal.serve.similar_texts import SimilarText, SimilarTexts

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor

_SIMILAR = 10  # similar texts of an explanation


def similar_texts(
    predictor: Predictor, text: str, similar: SimilarTexts | None
) -> list[schemas.SimilarText]:
    """Return the texts that a teacher found, or else those with similar words."""
    if similar is None:
        return []
    space = predictor.labels

    def name_of(id_: str) -> str:
        return space.names[space.index[id_]] if id_ in space.index else id_

    teacher = predictor.explain_teacher(text)
    found: list[SimilarText]
    if teacher is None:
        found = similar.find(text, _SIMILAR)
    else:
        found = [
            SimilarText(n.id, similar.beginning(n.id), n.labels, n.similarity)
            for n in teacher.neighbours[:_SIMILAR]
        ]
    return [
        schemas.SimilarText(
            id=one.id,
            text=one.text,
            labels=[schemas.LabelName(id=id_, name=name_of(id_)) for id_ in one.labels],
            similarity=one.similarity,
        )
        for one in found
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

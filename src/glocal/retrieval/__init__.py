"""Similar training texts and the labels they suggest: TReaderXML's teacher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glocal._lazy import lazy_names

if TYPE_CHECKING:
    from glocal.retrieval.explanation import TeacherExplanation
    from glocal.retrieval.index import SimilarityIndex
    from glocal.retrieval.recall import ScopeRecall, scope_recall
    from glocal.retrieval.teacher import Teacher
    from glocal.retrieval.votes import Scopes

_MODULES = {
    "ScopeRecall": "recall",
    "Scopes": "votes",
    "SimilarityIndex": "index",
    "Teacher": "teacher",
    "TeacherExplanation": "explanation",
    "scope_recall": "recall",
}

__all__ = [
    "ScopeRecall",
    "Scopes",
    "SimilarityIndex",
    "Teacher",
    "TeacherExplanation",
    "scope_recall",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)

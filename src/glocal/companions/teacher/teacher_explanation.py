"""The explanation of a teacher's suggestions for one text: neighbours, votes, parents."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Neighbour:
    """A similar training text.

    Args:
        id: Its id; that of the first of several equal texts.
        similarity: Cosine similarity, above 0.
        labels: Its labels in the label space.
    """

    id: str
    similarity: float
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Vote:
    """A label that neighbours have.

    Args:
        label: Id of the label.
        description: A few words about it.
        weight: Share of the neighbours' similarities that voted for it.
        neighbours: Ids of the neighbours that have it, nearest first.
    """

    label: str
    description: str
    weight: float
    neighbours: tuple[str, ...]


@dataclass(frozen=True)
class AddedParent:
    """A label above some that neighbours have, which none of them has itself.

    Args:
        label: Id of the label.
        description: A few words about it.
        children: The labels voted for that are right below it.
    """

    label: str
    description: str
    children: tuple[str, ...]


@dataclass(frozen=True)
class TeacherExplanation:
    """A text's scope and its origin.

    Args:
        neighbours: Similar training texts, nearest first.
        votes: Labels they vote for, best first.
        parents: Labels added above these.
    """

    neighbours: tuple[Neighbour, ...]
    votes: tuple[Vote, ...]
    parents: tuple[AddedParent, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return nested mappings and lists for JSON."""
        return asdict(self)

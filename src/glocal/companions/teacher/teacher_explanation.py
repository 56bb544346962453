"""What a teacher found for one text, and why: neighbours, votes, parents."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["AddedParent", "Neighbour", "TeacherExplanation", "Vote"]


@dataclass(frozen=True)
class Neighbour:
    """A similar training text.

    Args:
        id: Its id; of several equal texts, the first one's.
        similarity: The cosine, above 0.
        labels: Its labels that the model knows.
    """

    id: str
    similarity: float
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Vote:
    """A label that neighbours have.

    Args:
        label: Its id.
        description: What it is about.
        weight: The share of the neighbours' similarities that voted for it.
        neighbours: The ids of those that have it, nearest first.
    """

    label: str
    description: str
    weight: float
    neighbours: tuple[str, ...]


@dataclass(frozen=True)
class AddedParent:
    """A label that no neighbour has, above some that they have.

    Args:
        label: Its id.
        description: What it is about.
        children: The labels voted for that it stands right above.
    """

    label: str
    description: str
    children: tuple[str, ...]


@dataclass(frozen=True)
class TeacherExplanation:
    """A text's scope and where it comes from.

    Args:
        neighbours: The similar training texts, nearest first.
        votes: The labels they vote for, best first.
        parents: The labels added above them.
    """

    neighbours: tuple[Neighbour, ...]
    votes: tuple[Vote, ...]
    parents: tuple[AddedParent, ...]

    def to_dict(self) -> dict[str, Any]:
        """Nested mappings and lists, for JSON."""
        return asdict(self)

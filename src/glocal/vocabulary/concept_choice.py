"""Which concepts of a vocabulary become labels, and in which language they are named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from glocal.arrays import Bools
from glocal.errors import ConfigError


@dataclass(frozen=True)
class ConceptChoice:
    """Which concepts of a vocabulary become labels.

    A concept is taken if it passes every filter that is given. Branches and lists apply to any
    label table, the rest to SKOS vocabularies.

    Args:
        languages: Languages of the names, most wanted first. A concept without a name in any of
            them has its name without a language, else in the first other language by the alphabet.
        schemes: Only concepts of these concept schemes.
        types: Only concepts of these types (`rdf:type`).
        branches: Only these concepts and all concepts below them.
        ids: Only these concepts.
        exclude_schemes: No concepts of these schemes.
        exclude_types: No concepts of these types.
        exclude_branches: Not these concepts, nor any below them.
        exclude_ids: Not these concepts.
        deprecated: Take deprecated concepts too.

    Example:
        >>> from glocal import ConceptChoice
        >>> ConceptChoice(languages=("fi", "en")).languages
        ('fi', 'en')
    """

    languages: tuple[str, ...] = ("en",)
    schemes: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    exclude_schemes: tuple[str, ...] = ()
    exclude_types: tuple[str, ...] = ()
    exclude_branches: tuple[str, ...] = ()
    exclude_ids: tuple[str, ...] = ()
    deprecated: bool = False

    def __post_init__(self) -> None:
        for name in self.languages:
            if not name.replace("-", "").isalnum():
                raise ConfigError(
                    f"{name!r} is not a language code; expected some as in 'en' or 'de-AT'"
                )

    @property
    def skos_only(self) -> list[str]:
        """Names of the given filters that need a SKOS vocabulary."""
        names = ("schemes", "types", "exclude_schemes", "exclude_types", "deprecated")
        return [name for name in names if getattr(self, name)]

    @property
    def has_places(self) -> bool:
        """Whether branches or lists are given."""
        return bool(self.branches or self.ids or self.exclude_branches or self.exclude_ids)

    def key(self) -> list[Any]:
        """Return the choice as JSON values."""
        return [getattr(self, field.name) for field in fields(self)]

    def language_rank(self, language: str | None) -> int:
        """Return how much a language is wanted: 0 is best, `len(languages)` is none at all."""
        if language is None:
            return len(self.languages)
        tag = language.lower()
        for rank, wanted in enumerate(self.languages):
            if tag == wanted.lower() or tag.startswith(f"{wanted.lower()}-"):
                return rank
        return len(self.languages) + 1

    def by_place(
        self, ids: Sequence[str], index: dict[str, int], parents: Callable[[int], Iterable[int]]
    ) -> Bools:
        """Apply branches and lists.

        Args:
            ids: The concepts.
            index: Position of each.
            parents: Returns the positions of the concepts right above one.

        Returns:
            Whether each concept is taken.

        Raises:
            ConfigError: A branch is not in the vocabulary.
        """
        for branch in (*self.branches, *self.exclude_branches):
            if branch not in index:
                raise ConfigError(
                    f"the branch {branch!r} is not in the vocabulary; expected the id of a concept"
                )
        inside = np.ones(len(ids), dtype=bool)
        if self.ids:
            inside &= _listed(self.ids, ids)
        if self.branches:
            inside &= _below(self.branches, len(ids), index, parents)
        inside &= ~_listed(self.exclude_ids, ids)
        return inside & ~_below(self.exclude_branches, len(ids), index, parents)


def _listed(chosen: Sequence[str], ids: Sequence[str]) -> Bools:
    wanted = set(chosen)
    return np.array([id_ in wanted for id_ in ids], dtype=bool)


def _below(
    tops: Sequence[str],
    n_concepts: int,
    index: dict[str, int],
    parents: Callable[[int], Iterable[int]],
) -> Bools:
    """Return whether each concept is one of `tops` or below one; cycles are walked once."""
    inside = np.zeros(n_concepts, dtype=bool)
    children: dict[int, list[int]] = {}
    for concept in range(n_concepts if tops else 0):
        for parent in parents(concept):
            children.setdefault(parent, []).append(concept)
    pending = [index[top] for top in tops]
    while pending:
        concept = pending.pop()
        if not inside[concept]:
            inside[concept] = True
            pending += children.get(concept, ())
    return inside

"""Walking upwards from labels: parents, ancestors, depths.

A label may have several parents. Hierarchies in the wild contain cycles; walks stop where they meet
themselves, so nothing here runs for ever, and `cycles` names them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable, find_cycles

__all__ = ["Hierarchy"]


class Hierarchy:
    """The relation between labels and those above them.

    Args:
        parents: For each label those right above it. Labels that only occur as parents are roots.
    """

    def __init__(self, parents: Mapping[str, Sequence[str]]) -> None:
        self._parents = {label: tuple(above) for label, above in parents.items()}

    @classmethod
    def of(cls, labels: LabelTable | LabelSpace) -> Hierarchy:
        """The hierarchy of a label table or a label space."""
        return cls(dict(zip(labels.ids, labels.parents, strict=True)))

    def parents(self, label: str) -> tuple[str, ...]:
        """The labels right above a label; none for a root or an unknown label."""
        return self._parents.get(label, ())

    def ancestors(self, label: str) -> tuple[str, ...]:
        """All labels above a label, nearest first, without the label itself."""
        return tuple(list(self._levels(label))[1:])

    def with_ancestors(self, labels: Iterable[str]) -> tuple[str, ...]:
        """Labels and everything above them, each once, given labels first."""
        given = list(dict.fromkeys(labels))
        above = (ancestor for label in given for ancestor in self.ancestors(label))
        return tuple(dict.fromkeys([*given, *above]))

    def depth(self, label: str) -> int:
        """The number of steps from a label to the nearest root; 0 for a root.

        A label whose every way up ends in a cycle has the length of the shortest way into it.
        """
        levels = self._levels(label)
        roots = [steps for above, steps in levels.items() if not self.parents(above)]
        return min(roots) if roots else max(levels.values())

    @cached_property
    def cycles(self) -> list[list[str]]:
        """Circles in the hierarchy, each as the labels along it, from child to parent."""
        return find_cycles(self._parents)

    def _levels(self, label: str) -> dict[str, int]:
        """Every label reached by walking up, with the fewest steps to it, in that order."""
        steps = {label: 0}
        queue = deque([label])
        while queue:
            current = queue.popleft()
            for above in self.parents(current):
                if above not in steps:
                    steps[above] = steps[current] + 1
                    queue.append(above)
        return steps

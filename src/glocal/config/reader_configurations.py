"""TReaderXML's configurations: the rows of the paper's Table 3, and row 7, which is ours."""

from __future__ import annotations

from typing import NamedTuple


class Configuration(NamedTuple):
    """The parts of a reader network: the teacher and the attentions of its Reading."""

    teacher: bool
    attentions: tuple[str, ...] = ()  # `masked` (MMHSA) or `full` (MHSA)
    residual: bool = False  # around the first attention


CONFIGURATIONS = {
    0: Configuration(teacher=False),
    1: Configuration(teacher=True),
    2: Configuration(True, ("masked",), residual=True),
    3: Configuration(True, ("full",), residual=True),
    4: Configuration(True, ("full", "masked"), residual=True),
    5: Configuration(True, ("masked", "full")),
    6: Configuration(True, ("masked", "full"), residual=True),
    7: Configuration(False, ("masked", "full"), residual=True),
}

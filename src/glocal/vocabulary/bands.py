"""Frequency bands: named ranges of the number of training texts a label has.

The default bands are those of ME-XML (Table 3): few (at most 20 texts), medium (up to 100), many.
Labels without training texts are in no band.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Ints
from glocal.errors import ConfigError

ITEM = re.compile(r"\s*([^=,\s]+)\s*=\s*(\d+)\s*-\s*(\d*)\s*")
EXAMPLE = "few=1-20,medium=21-100,many=101-"


@dataclass(frozen=True, slots=True)
class Band:
    """One range of counts.

    Args:
        name: Name of the band.
        low: Smallest count.
        high: Largest count; None for no bound.
    """

    name: str
    low: int
    high: int | None

    def __str__(self) -> str:
        return f"{self.name}={self.low}-{'' if self.high is None else self.high}"


DEFAULT = (Band("few", 1, 20), Band("medium", 21, 100), Band("many", 101, None))


@dataclass(frozen=True, slots=True)
class Bands:
    """Ranges of counts that cover every count from 1 on, in ascending order.

    Args:
        bands: The ranges.

    Raises:
        ConfigError: They overlap, leave a gap, or do not reach from 1 to infinity.

    Example:
        >>> from glocal import Bands
        >>> Bands.parse("few=1-20,many=21-").names
        ['few', 'many']
    """

    bands: tuple[Band, ...] = DEFAULT

    def __post_init__(self) -> None:
        ConfigError.raise_any(_problems(self.bands))

    @classmethod
    def parse(cls, text: str) -> Bands:
        """Read bands from text such as `few=1-20,medium=21-100,many=101-`.

        Raises:
            ConfigError: The text is malformed, or the ranges do not fit together.
        """
        bands = []
        for item in text.split(","):
            match = ITEM.fullmatch(item)
            if match is None:
                raise ConfigError(
                    f"the band {item!r} is malformed; expected a list such as {EXAMPLE!r}"
                )
            name, low, high = match.groups()
            bands.append(Band(name, int(low), int(high) if high else None))
        return cls(tuple(bands))

    def __str__(self) -> str:
        return ",".join(map(str, self.bands))

    def __len__(self) -> int:
        return len(self.bands)

    @property
    def names(self) -> list[str]:
        """Names, from the rarest band to the most frequent."""
        return [band.name for band in self.bands]

    def assign(self, counts: NDArray[np.integer] | Sequence[int]) -> Ints:
        """Return the position of the band of each count; -1 for a count of 0."""
        lows = np.array([band.low for band in self.bands])
        return np.searchsorted(lows, np.asarray(counts), side="right").astype(np.int64) - 1


def _problems(bands: Sequence[Band]) -> list[str]:
    if not bands:
        return [f"no bands; expected some as in {EXAMPLE!r}"]
    found = []
    names = [band.name for band in bands]
    if len(set(names)) != len(names):
        found.append(f"two bands have the same name: {', '.join(names)}")
    if bands[0].low != 1:
        found.append(f"the first band {bands[0]} starts at {bands[0].low}, expected 1")
    for band, above in itertools.pairwise(bands):
        if band.high is None or above.low <= band.high:
            found.append(f"the bands {band} and {above} overlap or are out of order")
        elif above.low > band.high + 1:
            found.append(f"there is a gap between the bands {band} and {above}")
    found += [f"the band {b} is empty" for b in bands if b.high is not None and b.high < b.low]
    if bands[-1].high is not None:
        found.append(f"the last band {bands[-1]} must be open, as in {bands[-1].low}-")
    return found

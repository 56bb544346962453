"""Durations as people write and read them: `1h30m` in, `1 h 30 min` out."""

from __future__ import annotations

import math
import re

from glocal.errors import ConfigError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")


def parse_duration(text: str) -> float | None:
    """Return the seconds in `90s`, `10m`, `2h` or `1h30m`; None for an empty text.

    Raises:
        ConfigError: The text is not a duration, or the duration is zero.
    """
    given = text.strip().lower().replace(" ", "")
    if not given:
        return None
    parts = _PART.findall(given)
    if "".join(number + unit for number, unit in parts) != given:
        raise ConfigError(
            f"the budget '{text}' is not a time; expected a number and a unit, such as 90s, 10m, "
            "2h or 1h30m"
        )
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds <= 0:
        raise ConfigError(f"the budget '{text}' leaves no time; expected more than 0, such as 10m")
    return seconds


def format_seconds(seconds: float) -> str:
    """Return a duration as people say it: `40 s`, `3 min 20 s`, `2 h 05 min`."""
    if not math.isfinite(seconds):
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"

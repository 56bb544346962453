"""Settings of the server: its models, its address, its limits and their defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from glocal.errors import ConfigError, Remedy, no_such


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on what one request, and all requests together, may use.

    Attributes:
        max_body_bytes: Largest body of a request, also after decompression.
        max_texts: Largest number of texts in a request.
        max_characters: Longest text; longer ones are refused unless the request allows truncation.
        max_tags: Largest number of tags for a text.
        max_in_flight: Largest number of requests that compute or wait; more are refused at once.
        max_queued_texts: Largest number of texts that wait for a model; more are refused at once.
        max_batch: Largest number of texts that are computed together.
        max_connections: Largest number of open connections; more are refused at once.
        header_seconds: Time in which the head of a request must arrive.
        body_seconds: Time in which the body of a request must arrive.
        send_seconds: Time in which a client must read a part of the answer.
        request_seconds: Time after which a request that waits or computes is given up.
        keep_alive_seconds: Time after which an idle connection is closed.
        shutdown_seconds: Time that accepted requests get to finish when the server stops.
        reload_seconds: Time between two looks at the files of the models.
    """

    max_body_bytes: int = 2_000_000
    max_texts: int = 32
    max_characters: int = 100_000
    max_tags: int = 1_000
    max_in_flight: int = 512
    max_queued_texts: int = 2_048
    max_batch: int = 64
    max_connections: int = 2_048
    header_seconds: float = 10.0
    body_seconds: float = 20.0
    send_seconds: float = 20.0
    request_seconds: float = 60.0
    keep_alive_seconds: float = 30.0
    shutdown_seconds: float = 60.0
    reload_seconds: float = 2.0


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Everything the server needs to know.

    Attributes:
        models: Model directories; the first one answers requests that name none.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        api_keys: Keys of which a request must carry one; none for a server without keys.
        feedback: Folder for corrections; None if they are not accepted.
        similar_texts: File of training texts that explanations may show; None for none.
        language: Language of texts and labels, as told to Annif's clients.
        routes: The model directory of each language, for requests that name no model.
        device: The device to compute on: `auto`, `cpu`, `cuda` or `cuda:N`.
        limits: Bounds on requests.
    """

    models: tuple[Path, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    feedback: Path | None = None
    similar_texts: Path | None = None
    language: str = "und"
    routes: Mapping[str, Path] = field(default_factory=dict)
    device: str = "auto"
    limits: Limits = field(default_factory=Limits)

    def check(self) -> None:
        """Refuse settings that cannot be served.

        Raises:
            ConfigError: With every problem.
        """
        problems, remedies = [], []
        if not self.models:
            problems.append("there is no model to serve; give at least one model directory")
        if not self.api_keys and not is_loopback(self.host):
            problems.append(
                f"{self.host} can be reached from other machines, which needs an API key"
            )
            remedies.append(Remedy("api_key_file", "name a file with a key on each line", "…"))
        served = {model.resolve() for model in self.models}
        problems += [
            f"texts in {language} are to be tagged by {model}, which is not served; name it among "
            "the models as well"
            for language, model in self.routes.items()
            if model.resolve() not in served
        ]
        if self.feedback is not None:
            inside = [m for m in self.models if _is_inside(self.feedback, m)]
            problems += [
                f"the folder for feedback, {self.feedback}, is inside the model directory {model}; "
                "choose another place, since a model directory is replaced as a whole"
                for model in inside
            ]
        ConfigError.raise_any(problems, remedies=remedies)


def parse_limits(given: Sequence[str]) -> Limits:
    """Return the limits with some of them changed, each given as NAME=NUMBER.

    Raises:
        ConfigError: With every problem: a name that is not known, a value that is no number or is
            not above 0.
    """
    known: dict[str, type[int | float]] = {
        limit.name: type(getattr(Limits(), limit.name)) for limit in fields(Limits)
    }
    changes: dict[str, Any] = {}
    problems = []
    for setting in given:
        name, _, text = setting.partition("=")
        if name not in known:
            problems.append(no_such("limit", name, known))
            continue
        try:
            value = known[name](text)
            valid = 0 < value < float("inf")
        except ValueError:
            valid = False
        if valid:
            changes[name] = value
        else:
            kind = "whole number" if known[name] is int else "number"
            problems.append(f"the limit {name} must be a {kind} above 0, not '{text}'")
    ConfigError.raise_any(problems)
    return Limits(**changes)


@lru_cache(64)
def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_api_keys(path: Path) -> tuple[str, ...]:
    """Read a file with one key on each line; empty lines and lines that start with # are skipped.

    Raises:
        ConfigError: The file has no key, or one that is too short or not plain ASCII.
    """
    lines = path.read_text("utf-8").splitlines()
    keys = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    if not keys:
        raise ConfigError(f"{path} holds no API key; write one on each line")
    # The message must not show the key.
    for number, key in enumerate(keys, 1):
        if len(key) < MIN_KEY_LENGTH or not key.isascii() or not key.isprintable() or " " in key:
            raise ConfigError(
                f"{path}: key {number} must have at least {MIN_KEY_LENGTH} ASCII characters and no "
                "space; `openssl rand -hex 32` makes a good one"
            )
    return keys


MIN_KEY_LENGTH = 16


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())

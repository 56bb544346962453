"""A Ray cluster: how this process connects to it."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
from collections.abc import Iterator
from typing import Any

from glocal._version import __version__
from glocal.errors import ConfigError, GlocalError, require

_PORTS = {"ray": 10001, "": 6379}  # of Ray's client and of the cluster itself
_SECONDS = 5.0  # for a first answer of the cluster
# The first bytes of HTTP/2, on which gRPC builds, with an empty frame of settings; a server answers
# with a frame of its own settings, whose kind is its fourth byte.
_HTTP2_SETTINGS, _FRAME = b"\x04", 9
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + _HTTP2_SETTINGS + b"\0" * 5
_NODE_SECONDS = 120.0  # for the first task on every machine


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster within the block; yields the module `ray`.

    Args:
        address: `HOST:PORT`, `ray://HOST:PORT`, or `auto` for the cluster of this machine; None
            starts one on this machine, for as long as the block lasts. A process that is connected
            already stays so.

    Raises:
        ConfigError: Nothing answers at the address.
        GlocalError: The cluster has another version of Ray or Python, or one of its machines has
            another version of this library.
    """
    ray = require("ray", extra="ray", purpose="work on a Ray cluster")
    if ray.is_initialized():
        yield ray
        return
    if address not in (None, "auto"):
        _check_reachable(str(address))
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _connection_error(error, address) from error
    try:
        if address is not None:
            check_machines(ray)
        yield ray
    finally:
        ray.shutdown()


def check_machines(ray: Any) -> None:
    """Check that every machine of the cluster has this version of the library.

    Raises:
        GlocalError: One of them has another version, or none.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # Defined here, so that Ray sends the code itself: the library may be missing over there.
    def installed() -> str:
        try:
            from glocal._version import __version__
        except ImportError:
            return "no glocal"
        return f"glocal {__version__}"

    nodes = {node["NodeManagerAddress"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}
    ask = ray.remote(num_cpus=0)(installed)
    answers = {}
    for address, node in nodes.items():
        there = NodeAffinitySchedulingStrategy(node, soft=True)
        answers[address] = ask.options(scheduling_strategy=there).remote()
    done, _ = ray.wait(list(answers.values()), num_returns=len(answers), timeout=_NODE_SECONDS)
    found = {address: ray.get(answer) for address, answer in answers.items() if answer in done}
    expected = f"glocal {__version__}"
    others = [f"{place} has {version}" for place, version in found.items() if version != expected]
    if others:
        raise GlocalError(
            f"machines of the cluster differ from this process, which has {expected}: "
            f"{', '.join(others[:3])}; install the same version on all of them"
        )


def _check_reachable(address: str) -> None:
    """Check that a server of Ray's kind, gRPC, listens at an address; Ray would try for minutes.

    Raises:
        ConfigError: It is not an address, or nothing answers there.
    """
    found = re.fullmatch(r"(?:(ray)://)?([^/:\s]+)(?::(\d+))?", address)
    if found is None:
        raise ConfigError(
            f"'{address}' is not the address of a Ray cluster; expected HOST:PORT or ray://HOST:PORT"
        )
    host, port = found[2], int(found[3] or _PORTS[found[1] or ""])
    problem = "something else listens there"
    try:
        with socket.create_connection((host, port), timeout=_SECONDS) as server:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return
            server.sendall(_HTTP2_GREETING)
            if server.recv(_FRAME)[3:4] == _HTTP2_SETTINGS:
                return
    except OSError as error:
        problem = error.strerror or str(error)
    raise ConfigError(
        f"no Ray cluster answers at {host}:{port} ({problem}); check the address, and start one "
        "with: ray start --head"
    )


def _connection_error(error: Exception, address: str | None) -> GlocalError:
    """Return one line about a failed connection."""
    text = str(error)
    if "ersion mismatch" in text:
        versions = re.findall(r"(Ray|Python): (\S+)", text)
        pairs = ", ".join(f"{name} {version}" for name, version in dict.fromkeys(versions))
        return GlocalError(
            f"the cluster at {address or 'this machine'} has other versions than this process "
            f"({pairs}); install the same ones"
        )
    first = (text.splitlines() or [type(error).__name__])[0]
    return ConfigError(f"cannot connect to the Ray cluster {address or ''}: {first}")

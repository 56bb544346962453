"""Running the server: uvicorn with bounded connections, heads and time-outs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from glocal.companions.sparse.threads import n_threads
from glocal.errors import ConfigError
from glocal.serve.app import create_app
from glocal.serve.guard import REFUSED
from glocal.serve.serve_settings import Limits, ServeSettings

_MAX_HEAD_BYTES = 65_536
_BACKLOG = 1_024
_HOLD_SECONDS = 0.01  # before a connection that was refused is read again
_SWITCH_SECONDS = 0.0005  # after which a computing thread gives way to the loop that answers
_FULL = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\n"
    b"retry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


def serve(
    settings: ServeSettings, *, on_start: Callable[[str], None] = lambda address: None
) -> None:
    """Serve until interrupted; accepted requests are finished before it ends.

    Args:
        settings: Settings of the server.
        on_start: Called with the address once the server listens.

    Raises:
        ConfigError: The settings cannot be served, or the port is taken.
        KeyboardInterrupt: The server was interrupted, and has finished what it had accepted.
    """
    _leave_a_core_free()
    sys.setswitchinterval(_SWITCH_SECONDS)
    app = create_app(settings)
    listener = _listen(settings)
    host, port = settings.host, listener.getsockname()[1]
    config = uvicorn.Config(
        app,
        http=type("Protocol", (_BoundedProtocol,), {"limits": settings.limits}),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=int(settings.limits.keep_alive_seconds),
        timeout_graceful_shutdown=int(settings.limits.shutdown_seconds),
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        backlog=_BACKLOG,
    )
    server = _Server(config)
    on_start(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
    server.run(sockets=[listener])
    if server.interrupted:
        raise KeyboardInterrupt


def _leave_a_core_free() -> None:
    """Compute with one thread less than there are cores, unless the user chose a number.

    The loop that answers requests needs a core: when all of them compute, refusals wait, and on two
    cores the work itself takes twice as long.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, n_threads(0) - 1)))


class _Server(uvicorn.Server):
    """A server that knows that it was interrupted, also where the shell has SIGINT ignored.

    Uvicorn raises a signal again at its end, which has no effect on an ignored one (`nohup … &`).
    """

    interrupted = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after the requests that were accepted."""
        self.interrupted |= sig == signal.SIGINT
        super().handle_exit(sig, frame)


def _listen(settings: ServeSettings) -> socket.socket:
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)  # the address is announced before the loop runs
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}; choose "
            "another port, or 0 for any free one"
        ) from error
    return listener


class _BoundedProtocol(H11Protocol):
    """HTTP with a bound on connections and on the time in which a request's head arrives.

    A connection that was refused because the server is full is read again after a moment, so that
    clients that try again at once do not take the processor from the work that goes on.
    """

    limits = Limits()
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Refuse a connection too many, and wait for the head of a request."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            transport.write(_FULL)
            transport.close()
            return
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Read data; the first of a further request starts the clock again."""
        if self.timeout_keep_alive_task is not None:
            self._await_head()
        super().data_received(data)

    def handle_events(self) -> None:
        """Stop the clock when a request begins."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_timer()

    def on_response_complete(self) -> None:
        """Hold back a client that was refused."""
        refused = self.cycle.scope.get(REFUSED, False)
        super().on_response_complete()
        if refused and not self.transport.is_closing():
            self.flow.pause_reading()
            self.loop.call_later(_HOLD_SECONDS, self.flow.resume_reading)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_timer()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._stop_timer()
        self._head_timer = self.loop.call_later(self.limits.header_seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

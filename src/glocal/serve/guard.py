"""The guard between the network and the application: limits, keys, logs.

`Observer` is the outermost layer: it gives every request an id, adds the security headers, writes
the access log and counts requests. `Guard` checks where a request comes from and its key, reads the
body within its limits (also while it streams, also compressed) and bounds the number of requests in
flight and their time. Both are plain ASGI, since the body must be judged before it is read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import re
import sys
import time
import traceback
import uuid
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders

from glocal.serve.problems import Problem, busy
from glocal.serve.serve_settings import ServeSettings, is_loopback
from glocal.serve.server_metrics import ServerMetrics

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
# Answered without a key: they show nothing of the models.
OPEN_PATHS = frozenset({"/", "/healthz", "/readyz", "/docs", "/openapi.json", "/favicon.ico"})
OPEN_FOLDERS = ("/static/",)

REFUSED = "glocal.refused"  # in the scope of a request that found the server full

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LONGEST_PATH = 200  # characters of a path in the log


class Observer:
    """Gives requests an id, logs and counts them, and adds the security headers.

    Args:
        app: The application.
        metrics: Counts requests.
        log: Writes one line of the access log.
    """

    def __init__(
        self, app: Application, metrics: ServerMetrics, *, log: Callable[[str], None] | None = None
    ) -> None:
        self._app, self._metrics = app, metrics
        self._log = log or _log_line

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, state = time.perf_counter(), {"status": 0, "bytes": 0}
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                state["status"] = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            elif message["type"] == "http.response.body":
                state["bytes"] += len(message.get("body", b""))
            await send(message)

        failure: list[str] | None = None
        try:
            await self._app(scope, receive, observed)
        except Exception as error:
            # The message of an error may hold a text, so only its place is logged.
            failure = [type(error).__name__, *traceback.format_tb(error.__traceback__)]
            if not state["status"]:
                problem = Problem(
                    500, f"an unexpected fault; the log has it under request id {request_id}"
                )
                await problem.response()(scope, receive, observed)
        finally:
            self._record(scope, state, request_id, time.perf_counter() - started, failure)

    def _record(
        self,
        scope: Scope,
        state: dict[str, int],
        request_id: str,
        seconds: float,
        failure: list[str] | None,
    ) -> None:
        # Unknown paths share one name, so that they cannot fill the memory.
        route = getattr(scope.get("route"), "path", "other")
        status = str(state["status"] or 499)  # 499: the client went away
        self._metrics.requests.add(scope["method"], route, status)
        self._metrics.seconds.observe(seconds, route)
        client = scope.get("client")
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "request_id": request_id,
            "client": client[0] if client else None,
            "method": scope["method"],
            "path": scope["path"][:_LONGEST_PATH],
            "route": route,
            "status": int(status),
            "ms": round(1000 * seconds, 1),
            "bytes_in": scope.get("glocal.body_bytes", 0),
            "bytes_out": state["bytes"],
        }
        if failure is not None:
            entry["failure"] = failure
        self._log(json.dumps(entry))  # ASCII, with control characters escaped


class Guard:
    """Refuses requests that are not allowed, too large, too slow or too many.

    Args:
        app: The application.
        settings: Settings of the server.
        metrics: Knows the number of requests in flight.
    """

    def __init__(self, app: Application, settings: ServeSettings, metrics: ServerMetrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._limits = settings.limits
        self._digests = [_digest(key) for key in settings.api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def timely(message: Message) -> None:
            async with asyncio.timeout(self._limits.send_seconds):
                await send(message)

        try:
            headers = Headers(scope=scope)
            self._check_origin(scope, headers)
            self._check_key(scope, headers)
            if scope["method"] in ("GET", "HEAD", "OPTIONS"):
                await self._app(scope, receive, timely)
            else:
                await self._work(scope, headers, receive, timely)
        except Problem as problem:
            scope[REFUSED] = problem.status == 429
            await problem.response()(scope, receive, timely)
        except TimeoutError:
            return  # the client does not read its answer; the connection is closed

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """Refuse requests that another web site makes through a user's browser."""
        host = headers.get("host", "")
        name = _host_name(f"//{host}")
        local = not self._settings.api_keys and is_loopback(self._settings.host)
        if local and not is_loopback(name):
            raise Problem(
                403,
                "this server answers to localhost, 127.0.0.1 and [::1] only; to reach it under "
                "another name, start it with an API key",
            )
        origin = headers.get("origin")
        reads = scope["method"] in ("GET", "HEAD")
        if origin is not None and not reads and origin.partition("://")[2].lower() != host.lower():
            raise Problem(403, "requests from other web sites are not accepted")

    def _check_key(self, scope: Scope, headers: Headers) -> None:
        path = scope["path"]
        if not self._digests or path in OPEN_PATHS or path.startswith(OPEN_FOLDERS):
            return
        given = _digest(_given_key(headers))
        # Every key is compared, in constant time.
        matches = [hmac.compare_digest(given, digest) for digest in self._digests]
        if not any(matches):
            raise Problem(
                401,
                "this server needs an API key; send it in the header `Authorization: Bearer KEY` "
                "or `X-API-Key: KEY`",
                headers={"WWW-Authenticate": 'Bearer realm="glocal"'},
            )

    async def _work(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """Read the body, then let the application answer while there is room and time."""
        if self._metrics.in_flight >= self._limits.max_in_flight:
            raise busy(f"{self._limits.max_in_flight} requests are in flight; try again")
        body = await self._read_body(headers, receive)
        scope["glocal.body_bytes"] = len(body)
        if self._metrics.in_flight >= self._limits.max_in_flight:
            raise busy(f"{self._limits.max_in_flight} requests are in flight; try again")
        self._metrics.in_flight += 1
        try:
            await self._answer(scope, body, receive, send)
        finally:
            self._metrics.in_flight -= 1

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        given = iter([{"type": "http.request", "body": body, "more_body": False}])
        never = asyncio.Event()
        started = False

        async def replay() -> Message:
            if message := next(given, None):
                return message
            await never.wait()
            raise AssertionError

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        answering = asyncio.ensure_future(self._app(scope, replay, watched))
        leaving = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait(
                {answering, leaving},
                timeout=self._limits.request_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if answering.done() or started or leaving.done():
                if leaving.done() and not answering.done():
                    answering.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await answering
                return
            raise Problem(
                503,
                f"there was no result within {self._limits.request_seconds:g} seconds; try again",
                headers={"Retry-After": "5"},
            )
        finally:
            leaving.cancel()
            answering.cancel()

    async def _read_body(self, headers: Headers, receive: Receive) -> bytes:
        limit = self._limits.max_body_bytes
        encoding = headers.get("content-encoding", "identity").lower()
        if encoding not in ("identity", "gzip"):
            raise Problem(415, f"the content encoding '{encoding[:20]}' is not known; use gzip")
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > limit:
            raise _too_large(limit)
        unpack = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(400, "the connection was closed before the body was complete")
                    data = message.get("body", b"")
                    body += (
                        data if unpack is None else unpack.decompress(data, limit + 1 - len(body))
                    )
                    if len(body) > limit or (unpack is not None and unpack.unconsumed_tail):
                        raise _too_large(limit)
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise Problem(
                408, f"the body did not arrive within {self._limits.body_seconds:g} seconds"
            ) from None
        except zlib.error:
            raise Problem(400, "the body is not valid gzip") from None
        if unpack is not None and not unpack.eof:
            raise Problem(400, "the gzip body ends too early")
        return bytes(body)


def _too_large(limit: int) -> Problem:
    return Problem(
        413,
        f"the body is larger than {limit:,} bytes; send fewer or shorter texts",
        headers={"Connection": "close"},
    )


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _given_key(headers: Headers) -> str:
    """Return the key of a request: a bearer token, a basic password or an X-API-Key header."""
    if key := headers.get("x-api-key"):
        return key
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            decoded = base64.b64decode(value, validate=True).decode("latin-1")
        except (binascii.Error, ValueError):
            return ""
        return decoded.partition(":")[2]
    return ""


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _host_name(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _log_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")

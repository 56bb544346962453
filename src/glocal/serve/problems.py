"""Errors as `application/problem+json` (RFC 9457): type, title, status and detail."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from glocal.control_characters import escape_json

MEDIA_TYPE = "application/problem+json"
_LONGEST_DETAIL = 500


class ProblemDocument(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class Problem(Exception):
    """An answer with an error status.

    Args:
        status: The HTTP status.
        detail: What happened, the value seen, what was expected and what to do.
        headers: Headers of the answer.
    """

    def __init__(
        self, status: int, detail: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})

    def response(self) -> Response:
        """Return the answer; a long detail is cut."""
        detail = self.detail
        document = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": detail if len(detail) <= _LONGEST_DETAIL else f"{detail[:_LONGEST_DETAIL]}…",
        }
        return Response(dump_json(document), self.status, self.headers, MEDIA_TYPE)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of answers with these error statuses."""
    content = {"application/problem+json": {"schema": ProblemDocument.model_json_schema()}}
    named = {
        400: "The request is not valid.",
        401: "The API key is missing or wrong.",
        403: "The server does not allow this.",
        404: "There is no such model or label.",
        408: "The request did not arrive in time.",
        413: "The body, a text or the number of texts is too large.",
        415: "The content type or encoding is not supported.",
        422: "The request is not valid.",
        429: "Too many requests; try again after the time in Retry-After.",
        503: "The model cannot be loaded, or there was no result in time.",
    }
    return {status: {"description": named[status], "content": content} for status in statuses}


POST_PROBLEMS = (400, 401, 403, 404, 408, 413, 415, 422, 429, 503)
GET_PROBLEMS = (401, 403, 404, 422, 503)


def busy(detail: str) -> Problem:
    """Return the refusal of a server that has too much to do."""
    return Problem(429, detail, headers={"Retry-After": "1"})


def describe_validation(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return one line for the problems that validation found, without the values themselves."""
    shown = [f"{_place(error['loc'])}: {_lower(str(error['msg']))}" for error in errors[:5]]
    more = len(errors) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def dump_json(document: Any) -> bytes:
    """Return a document as UTF-8 JSON, with unsafe characters escaped."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return escape_json(text).encode()


def _place(location: Sequence[str | int]) -> str:
    """Word a place in the request: `body.texts[0]`."""
    place = ""
    for part in location:
        place += f"[{part}]" if isinstance(part, int) else f".{part:.60}" if place else part
    return place or "body"


def _lower(text: str) -> str:
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]

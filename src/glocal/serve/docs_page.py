"""The documentation of the interface as a plain HTML page, without scripts or outside requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>glocal: interface</title>
<link rel="stylesheet" href="/static/docs.css">
</head>
<body>
<main>
<h1>{title}</h1>
<p>{description} Version {version}. The same as
<a href="/openapi.json">OpenAPI document</a>; <a href="/">back to the page</a>.</p>
<p>Errors are <code>application/problem+json</code> documents with <code>type</code>,
<code>title</code>, <code>status</code> and <code>detail</code>.</p>
{operations}
</main>
</body>
</html>
"""


def docs_page(document: Mapping[str, Any]) -> str:
    """Return the page for an OpenAPI document."""
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            lines = "\n".join(_operation(document, method, path, operation))
            by_tag.setdefault(operation.get("tags", ["other"])[0], []).append(lines)
    sections = (f"<h2>{escape(tag)}</h2>\n" + "\n".join(parts) for tag, parts in by_tag.items())
    info = document["info"]
    return _PAGE.format(
        title=escape(info["title"]),
        description=escape(info.get("description", "")),
        version=escape(info["version"]),
        operations="\n".join(sections),
    )


def _operation(
    document: Mapping[str, Any], method: str, path: str, operation: Mapping[str, Any]
) -> Iterator[str]:
    yield "<section>"
    yield f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
    yield f"<p>{escape(operation.get('description') or operation.get('summary', ''))}</p>"
    for parameter in operation.get("parameters", ()):
        about = parameter.get("description") or parameter["schema"].get("description", "")
        kind = f"{parameter['in']}{', required' if parameter.get('required') else ''}"
        yield f"<p><code>{escape(parameter['name'])}</code> ({kind}) {escape(about)}</p>"
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = _resolved(document, content["schema"])
        yield f"<p>Body: <code>{escape(media)}</code></p>"
        yield from _fields(document, schema)
        yield from _example("Example request", schema)
    for status, answer in operation.get("responses", {}).items():
        yield f"<p><code>{status}</code> {escape(answer['description'])}</p>"
        for media, content in answer.get("content", {}).items():
            if media == "application/json":
                schema = _resolved(document, content.get("schema", {}))
                yield from _fields(document, schema)
                yield from _example("Example answer", schema)
    yield "</section>"


def _fields(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    if not schema.get("properties"):
        return
    yield "<dl>"
    for name, field in schema["properties"].items():
        about = field.get("description") or _resolved(document, field).get("description", "")
        mark = " (required)" if name in required and "default" not in field else ""
        yield f"<dt><code>{escape(name)}</code>{mark}</dt><dd>{escape(about)}</dd>"
    yield "</dl>"


def _example(title: str, schema: Mapping[str, Any]) -> Iterator[str]:
    for example in schema.get("examples", ()):
        shown = json.dumps(example, indent=2, ensure_ascii=False)
        yield f"<p>{title}:</p>\n<pre>{escape(shown)}</pre>"


def _resolved(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference to a named schema."""
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Mapping[str, Any] = document["components"]["schemas"].get(name, schema)
    return found

"""One HTML file that shows why a text got its tags: no script, no other file, any browser.

Everything from the model and the text is escaped and isolated (`<bdi>`), and the file's own policy
forbids scripts and requests, so that HTML or control characters in it stay text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from glocal.predict.explain import ALL, Span, TagExplanation

if TYPE_CHECKING:
    from glocal.companions.teacher.teacher_explanation import TeacherExplanation

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STRENGTHS = 4  # shades of a highlighted word


def html_report(
    text: str, tags: Sequence[TagExplanation], similar: TeacherExplanation | None = None
) -> str:
    """Return the report.

    Args:
        text: The text.
        tags: From `Predictor.explain`.
        similar: From `Predictor.explain_teacher`.
    """
    style = (resources.files("glocal.predict") / "explanation_report.css").read_text("utf-8")
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Why these tags?</title><style>\n{style}</style></head><body><main>",
        f"<h1>Why these {len(tags)} tags?</h1>",
        '<p class="legend">The darker a word, the more it counts for the tag. An expert’s bar is '
        "its share of what the text adds to the tag; red bars speak against it.</p>",
        *(section for tag in tags for section in _tag(text, tag)),
        *_similar(similar),
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _tag(text: str, tag: TagExplanation) -> Iterator[str]:
    known = "" if tag.id == tag.name else f" <code><bdi>{_safe(tag.id)}</bdi></code>"
    yield f"<section><h2><bdi>{_safe(tag.name)}</bdi>{known} <b>{_percent(tag.score)}</b></h2>"
    yield f'<p class="text" dir="auto">{_marked(text, tag.spans_of(ALL))}</p>'
    yield "<table><thead><tr><th>Expert<th>Share<th>Alone<th>Words</tr></thead><tbody>"
    for part in tag.experts:
        words = ", ".join(
            f"<bdi>{_safe(span.text)}</bdi> {_percent(span.weight)}"
            for span in tag.spans_of(part.name)
        )
        side = "against" if part.share < 0 else "for"
        size = max(1, round(10 * abs(part.share)))
        yield (
            f'<tr><th scope="row">{_safe(part.name)}<td class="{side}">'
            f'<span aria-hidden="true">{"█" * size}</span> {_percent(part.share)}'
            f"<td>{_percent(part.score)}<td>{words or '–'}</tr>"
        )
    yield "</tbody></table></section>"


def _marked(text: str, spans: Sequence[Span]) -> str:
    strongest = max((span.weight for span in spans), default=1.0)
    pieces, place = [], 0
    for span in sorted(spans, key=lambda span: span.start):
        level = max(1, round(_STRENGTHS * span.weight / strongest))
        pieces.append(_safe(text[place : span.start]))
        pieces.append(f'<mark class="w{level}">{_safe(text[span.start : span.end])}</mark>')
        place = span.end
    return "".join([*pieces, _safe(text[place:])])


def _similar(found: TeacherExplanation | None) -> Iterator[str]:
    if found is None or not found.neighbours:
        return
    yield "<section><h2>Similar training texts</h2><ul>"
    for text in found.neighbours:
        labels = ", ".join(f"<bdi>{_safe(label)}</bdi>" for label in text.labels)
        yield f"<li><bdi>{_safe(text.id)}</bdi> {_percent(text.similarity)}: {labels}</li>"
    yield "</ul></section>"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _safe(text: str) -> str:
    """Escape a text; controls that could reorder or hide it become visible."""
    shown = "".join(_VISIBLE.get(character, character) for character in text)
    return escape(shown)


# Bidirectional controls, and control characters other than line breaks and tabs.
_VISIBLE = {
    chr(code): f"\\u{code:04x}"
    for code in (
        *range(0x09),
        *range(0x0B, 0x20),
        *range(0x7F, 0xA0),
        0x061C,
        0x200E,
        0x200F,
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    )
}

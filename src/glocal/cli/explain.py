"""`glocal explain`: the words behind each tag of a text, and the contribution of each expert.

On a terminal the words are coloured, stronger where they count for more; elsewhere they are in
[brackets]. For a long text only the surroundings of these words are shown. If the model has a
teacher, the similar training texts and their votes follow in a few lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console, options
from glocal.cli.parameters import argument, option

if TYPE_CHECKING:
    from rich.text import Text

    from glocal.companions.teacher.teacher_explanation import TeacherExplanation
    from glocal.predict.explain import ExpertPart, Span, TagExplanation

app = typer.Typer()

WHOLE_TEXT = 600  # characters up to which a text is shown in full
# The title of each kind of expert, and what it looks at.
_KINDS = {
    "D": ("global", "whole text"),
    "A": ("local", "words that matter for the label"),
    "R": ("reader", "label text read beside the text"),
    "T": ("teacher", "labels of similar training texts"),
    "S": ("words", "linear model of words"),
}
SHOWN_NEIGHBOURS, SHOWN_VOTES = 5, 8
CONTEXT = 40  # characters shown on either side of a word in a longer text


@app.command()
def explain(
    model: options.Model,
    text: Annotated[str, argument("The text, or - to read it from stdin.", metavar="TEXT")],
    *,
    k: options.TopK = None,
    words: Annotated[int, option("Words shown for each label.", min=1)] = 8,
    html: Annotated[
        Path | None, option("Write a report that any browser can open.", metavar="FILE")
    ] = None,
    device: options.Device = "auto",
) -> None:
    """Show the words behind each tag of a text."""
    content = options.given_text(text)

    from glocal.predict.predictor import Predictor

    predictor = Predictor.load(model, device=device)
    width = options.choose_k(k, len(predictor.labels))
    predictor.check_k(width)
    explanations = predictor.explain(content, k=width, words=words)
    taught = predictor.explain_teacher(content)
    if html is not None:
        from glocal.data.atomic import write_text
        from glocal.predict.explanation_report import html_report

        write_text(html, html_report(content, explanations, taught))
        console.note(f"Written: {html}")
    if console.settings.as_json:
        document: dict[str, Any] = {
            "text": content,
            "tags": [tag.to_dict() for tag in explanations],
        }
        document |= {} if taught is None else {"teacher": taught.to_dict()}
        console.print_json(document)
        return
    show_legend(explanations)
    show_explanations(content, explanations)
    if taught is not None:
        show_teacher(taught)


def show_legend(explanations: Sequence[TagExplanation]) -> None:
    """Print how to read the lines that follow."""
    kinds = {part.name[:1]: None for tag in explanations for part in tag.experts}
    experts = ["{} ({})".format(*_KINDS[kind]) for kind in kinds if kind in _KINDS]
    lines = ["Each tag: its probability in %, name and id."]
    if len(kinds) > 1:
        lines.append(
            "Experts: their share of what the text adds to the tag (below 0 they speak against "
            "it), the probability by each alone, and its words."
        )
    lines += [f"They are: {', '.join(experts)}."] if experts else []
    if any(tag.spans for tag in explanations):
        marked = "Coloured" if console.stdout().is_terminal else "[Bracketed]"
        lines.append(f"{marked} words count most for the tag.")
    console.stdout().print("\n".join(lines) + "\n", style="dim")


def show_explanations(text: str, explanations: Iterable[TagExplanation]) -> None:
    """Print each tag with its probability, its words and the experts' contributions."""
    from rich.text import Text

    out = console.stdout()
    for tag in explanations:
        heading = Text(f"{100 * tag.score:5.1f}  ", style="bold green")
        heading.append(tag.name, style="bold")
        if tag.name != tag.id:
            heading.append(f"  {tag.id}", style="cyan")
        out.print(heading)
        if tag.spans_of():
            out.print(highlight(text, tag.spans_of(), brackets=not out.is_terminal))
        titles = expert_titles([part.name for part in tag.experts])
        width = max(map(len, titles.values()), default=0)
        for part in tag.experts:
            line = _expert_line(part, f"{titles[part.name]:>{width}}", tag.spans_of(part.name))
            out.print(Text(f"       {line}", style="dim"))
        out.print()


def _expert_line(part: ExpertPart, title: str, spans: Sequence[Span]) -> str:
    phrases = "; ".join(f"{' '.join(span.text.split())} {100 * span.weight:.0f}" for span in spans)
    return f"{title} {100 * part.share:+4.0f} %, alone {100 * part.score:5.1f}  {phrases}"


def show_teacher(found: TeacherExplanation) -> None:
    """Print a line each of similar texts, the labels they vote for, and the labels above."""
    from rich.text import Text

    texts = [f"{n.id} {n.similarity:.2f}" for n in found.neighbours[:SHOWN_NEIGHBOURS]]
    votes = [f"{v.description} {100 * v.weight:.0f}%" for v in found.votes[:SHOWN_VOTES]]
    above = [parent.description for parent in found.parents[:SHOWN_VOTES]]
    rows = {"similar texts": texts, "they vote for": votes, "labels above": above}
    out = console.stdout()
    if not texts:
        out.print(Text("teacher: no similar training text", style="dim"))
    for title, items in rows.items():
        if items:
            out.print(
                Text(f"{title:>13}  ", style="bold").append("; ".join(items), style="default")
            )


def expert_titles(names: Sequence[str]) -> dict[str, str]:
    """Return a readable title for each expert, with its name where a title occurs twice."""
    kinds = {name: _KINDS.get(name[:1], (name,))[0] for name in names}
    several = {kind for kind in kinds.values() if list(kinds.values()).count(kind) > 1}
    return {name: f"{kind} {name}" if kind in several else kind for name, kind in kinds.items()}


def highlight(text: str, spans: Sequence[Span], *, brackets: bool) -> Text:
    """Return the text, or the parts of it around the spans, with the spans marked."""
    from rich.text import Text

    strongest = max((span.weight for span in spans), default=0.0) or 1.0
    marked, end_before = Text(" " * 7), 0
    ordered = sorted(spans, key=lambda span: span.start)
    for start, end, weight in _pieces(text, ordered):
        if start > end_before:
            marked.append(" … ", style="dim")
        end_before = end
        piece = text[start:end].replace("\n", " ")
        if weight is None:
            marked.append(piece)
        else:
            style = "bold black on yellow" if weight >= strongest / 2 else "yellow"
            marked.append(f"[{piece}]" if brackets else piece, style=style)
    if end_before < len(text):
        marked.append(" …", style="dim")
    return marked


def _pieces(text: str, spans: Sequence[Span]) -> Iterator[tuple[int, int, float | None]]:
    """Yield start, end and weight (None outside a span) of the parts to show, in order."""
    context = len(text) if len(text) <= WHOLE_TEXT else CONTEXT
    position = 0
    for number, span in enumerate(spans):
        next_start = spans[number + 1].start if number + 1 < len(spans) else len(text)
        before = max(position, span.start - context)
        if before < span.start:
            yield before, span.start, None
        yield span.start, span.end, span.weight
        position = min(span.end + context, next_start)
        if position > span.end:
            yield span.end, position, None

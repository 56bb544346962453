"""`glocal explain`: the words behind each tag of a text, and the probability by each expert.

On a terminal the words are coloured, stronger where the attention is higher; elsewhere they are in
[brackets]. For a long text only the surroundings of these words are shown. If the model has a
teacher, the similar training texts and their votes follow in a few lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console
from glocal.cli.options import AsJson, Device, Model, TopK, choose_k, given_text

if TYPE_CHECKING:
    from rich.text import Text

    from glocal.companions.teacher.teacher_explanation import TeacherExplanation
    from glocal.predict.explain import Span, TagExplanation

app = typer.Typer()

WHOLE_TEXT = 600  # characters up to which a text is shown in full
_TITLES = {"D": "global", "A": "local", "R": "reader", "T": "teacher", "S": "words"}
_MEANINGS = {
    "D": "whole text",
    "A": "words that matter for the label",
    "R": "label text read beside the text",
    "T": "labels of similar training texts",
    "S": "linear model of words",
}
SHOWN_NEIGHBOURS, SHOWN_VOTES = 5, 8
CONTEXT = 40  # characters shown on either side of a word in a longer text


@app.command()
def explain(
    model: Model,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The text, or - to read it from stdin.")
    ],
    *,
    k: TopK = None,
    words: Annotated[int, typer.Option(min=1, help="Words shown for each label.")] = 8,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Show the words behind each tag of a text."""
    content = given_text(text)

    from glocal.predict.predictor import Predictor

    predictor = Predictor.load(model, device=device)
    width = choose_k(k, len(predictor.labels))
    predictor.check_k(width)
    explanations = predictor.explain(content, k=width, words=words)
    taught = predictor.explain_teacher(content)
    if as_json:
        document: dict[str, Any] = {
            "text": content,
            "labels": [tag.to_dict() for tag in explanations],
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
    kinds = {name[:1]: None for tag in explanations for name in tag.expert_scores}
    experts = [f"{_TITLES[kind]} ({_MEANINGS[kind]})" for kind in kinds if kind in _TITLES]
    lines = ["Each tag: its probability in %, the probability by each expert, name and id."]
    lines += [f"Experts: {', '.join(experts)}."] if experts else []
    if any(tag.spans for tag in explanations):
        marked = "Coloured" if console.stdout().is_terminal else "[Bracketed]"
        lines.append(f"{marked} words have the highest attention for the tag.")
    if any(tag.weighed for tag in explanations):
        lines.append("words: the phrases that add most to the tag, in log-odds.")
    console.stdout().print("\n".join(lines) + "\n", style="dim")


def show_explanations(text: str, explanations: Iterable[TagExplanation]) -> None:
    """Print each tag with its probability, the probability by each expert and its words."""
    from rich.text import Text

    out = console.stdout()
    for tag in explanations:
        heading = Text(f"{100 * tag.score:5.1f}  ", style="bold green")
        heading.append(f"{_shares(tag.expert_scores)}  ", style="dim")
        heading.append(tag.label_name, style="bold")
        if tag.label_name != tag.label_id:
            heading.append(f"  {tag.label_id}", style="cyan")
        out.print(heading)
        if tag.spans:
            out.print(highlight(text, tag.spans, brackets=not out.is_terminal))
        if tag.weighed:
            phrases = (f"{' '.join(span.text.split())} +{span.weight:.1f}" for span in tag.weighed)
            out.print(Text(f"       words: {'; '.join(phrases)}"))
        out.print()


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
    kinds = {name: _TITLES.get(name[:1], name) for name in names}
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


def _shares(expert_scores: Mapping[str, float]) -> str:
    """Return the probabilities by expert in one line."""
    titles = expert_titles(list(expert_scores))
    return "  ".join(f"{titles[name]} {100 * score:5.1f}" for name, score in expert_scores.items())

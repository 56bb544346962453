"""Reads the files of a subcommand and reports the rows that were skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glocal.cli import console
from glocal.cli.failures import warning_text
from glocal.errors import ConfigError

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.vocabulary.concept_choice import ConceptChoice
    from glocal.vocabulary.label_names import NamedLabels
    from glocal.vocabulary.label_table import LabelTable

MOST_NAMED = 20  # skipped rows that are listed one by one


def read_file(*paths: str, known: Sequence[NamedLabels | None] = (), **reading: Any) -> Corpus:
    """Read one corpus from one or more files and report the rows that were skipped.

    Args:
        *paths: The files.
        known: Labels that texts may name in place of their ids.
        **reading: How they are read.
    """
    from glocal.data.readers import read_corpora

    corpus = read_corpora(paths, **reading)
    report_skipped(corpus.skipped)
    for labels in known:
        if labels is not None:
            corpus = _with_ids(corpus, labels)
    return corpus


def _with_ids(corpus: Corpus, labels: NamedLabels) -> Corpus:
    from glocal.vocabulary.label_names import with_label_ids

    corpus, names = with_label_ids(corpus, labels)
    if names:
        shown = ", ".join(repr(name) for name in names[:3]) + (", …" if len(names) > 3 else "")
        given = "1 label is" if len(names) == 1 else f"{len(names):,} labels are"
        console.note(f"{corpus.source}: {given} given by name ({shown}); their ids are used.")
    return corpus


def advise_on_labels(corpus: Corpus, *, has_label_table: bool) -> None:
    """Print warnings about labels that look wrong, and point out a missing label table."""
    from glocal.data.label_checks import label_warnings, missing_table_hint

    for warning in label_warnings(corpus):
        console.warn(warning_text(warning))
    if not has_label_table and (hint := missing_table_hint(corpus)) is not None:
        console.note(warning_text(hint))


def report_skipped(problems: Sequence[str], *, verb: str = "skipped") -> None:
    """Print how many rows were not used, and which."""
    if not problems:
        return
    rows = "row was" if len(problems) == 1 else "rows were"
    if verb != "skipped":
        rows = "row" if len(problems) == 1 else "rows"
    shown = [f"  {problem}" for problem in problems[:MOST_NAMED]]
    if len(problems) > MOST_NAMED:
        shown.append(f"  … and {len(problems) - MOST_NAMED:,} more")
    console.warn("\n".join([f"{len(problems):,} {rows} {verb}:", *shown]))


def read_labels_file(path: str | None, *, choice: ConceptChoice | None = None) -> LabelTable | None:
    """Read a label table or SKOS vocabulary; None without a path."""
    from glocal.vocabulary.label_table import read_label_table

    if path is None:
        return None
    with console.progress_bar("reading the vocabulary", unit="triples") as progress:
        return read_label_table(path, choice=choice, progress=progress)


def read_label_list(path: str | None) -> list[str] | None:
    """Read label ids from a text file, one on each line; None without a file.

    Raises:
        ConfigError: When the file has none.
    """
    if path is None:
        return None
    from glocal.data.formats.rows import Problems
    from glocal.data.formats.source import Source

    ids = [text for _, line in Source(path).lines(Problems()) if (text := line.strip())]
    if not ids:
        raise ConfigError(f"{path} is empty; expected label ids, one on each line")
    return ids

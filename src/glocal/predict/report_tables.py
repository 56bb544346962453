"""Evaluation reports as tables for the terminal, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from glocal.metrics.bootstrap import BootstrapResult
from glocal.metrics.metric_names import MICRO
from glocal.predict.band_calibration import LIKELY, BandCalibration
from glocal.predict.band_ranking import BandRanking, Interval
from glocal.predict.evaluation import EvaluationReport
from glocal.ranking.decision import Decision
from glocal.table import Cell, Column, Table, columns

_WIDTH = 9  # metric columns side by side; this many of the widest still fit
_MAIN, _MORE = ("P", "nDCG", "PSP"), ("R", "RP", "PSnDCG")


def report_tables(report: EvaluationReport) -> Iterator[Table]:
    """Yield the tables of a report in the order to print them."""
    parts = report.parts()
    scores = {name: part.scores for name, part in parts.items()}
    yield from _metric_tables(report, scores, _MAIN, "Scores", _counts_line(report))
    if report.deduplicated is not None:
        without = {name: part.deduplicated or {} for name, part in parts.items()}
        note = f"{report.n_duplicates:,} near-duplicates of training documents skipped"
        yield from _metric_tables(report, without, _MAIN, "Scores without near-duplicates", note)
    if any(part.gains for part in parts.values()):
        yield _gains(report)
    yield from _metric_tables(report, scores, _MORE, "More scores")
    yield _decisions(report)
    if any(found.n for found in report.ranges):
        yield _ranges(report)
    yield _bands(report)


def _metric_tables(
    report: EvaluationReport,
    scores: dict[str, dict[str, float]],
    families: tuple[str, ...],
    title: str,
    note: str = "",
) -> Iterator[Table]:
    names = [f"{family}@{k}" for family in families for k in report.ks]
    for start in range(0, len(names), _WIDTH):
        yield _scores_table(scores, names[start : start + _WIDTH], title, note)


def _scores_table(
    scores: dict[str, dict[str, float]], names: list[str], title: str, note: str
) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (part, *(values[name] for name in names)) for part, values in scores.items()
    ]
    return Table(title, [Column("", "text"), *columns("share", *names)], rows, note)


def _gains(report: EvaluationReport) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (name if place == 0 else "", metric, found.difference, found.low, found.high)
        for name, part in report.parts().items()
        for place, (metric, found) in enumerate(part.gains.items())
    ]
    head = [*columns("text", "combined over", "metric"), *columns("points", "gain", "from", "to")]
    note = "in points, with 95% intervals by paired bootstrap over the documents"
    return Table("Gain from combining experts", head, rows, note)


def _decisions(report: EvaluationReport) -> Table:
    parts = report.parts()
    bins = next((part.calibration.bins for part in parts.values() if part.calibration), 0)
    note = f"ECE: {bins} bins, first {max(report.ks)} predictions of each document" if bins else ""
    scores = {name: part.scores for name, part in parts.items()}
    title = f"{_tags_in_words(report.decision)}, and calibration"
    return _scores_table(scores, ["micro-P", "micro-R", MICRO, "ECE"], title, note)


def _tags_in_words(decision: Decision) -> str:
    least = f"at least {decision.threshold:g}"
    if not decision.at_least and not decision.own:
        return f"Labels that score {least}"
    own = f", {len(decision.own):,} labels by their own threshold" if decision.own else ""
    best = f", and the best {decision.at_least} of each text" if decision.at_least else ""
    return f"Tags by default (labels that score {least}{own}{best})"


def _ranges(report: EvaluationReport) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (f"{found.low:g} to {found.high:g}", found.n, found.mean, found.observed)
        for found in report.ranges
    ]
    head = [Column("probability", "text"), Column("predictions", "count")]
    head += columns("share", "mean", "gold")
    note = "the model's probabilities: their mean, and the share of these labels that is gold"
    if (sums := report.label_sums) is not None:
        note += (
            f"; of all labels of a text they sum to {sums.expected:.2f}, and it has "
            f"{sums.observed:.2f} gold labels (mean of {sums.n_documents:,} texts)"
        )
    return Table("Calibration by range", head, rows, note)


def _bands(report: EvaluationReport) -> Table:
    k = max(report.ks)
    rows: list[tuple[Cell, ...]] = []
    for name, part in report.parts().items():
        for place, (band, found) in enumerate(part.macro[k].items()):
            every, gold = found.all_labels, found.with_gold
            rows.append(
                (
                    *(name if place == 0 else "", band),
                    *(every.n_labels, every.precision, every.recall, every.f1),
                    *(gold.n_labels, gold.precision, gold.recall, gold.f1),
                )
            )
    head = columns("text", "", "band")
    for population in ("labels", "with gold"):
        head += [Column(population, "count"), *columns("share", "P", "R", "F1")]
    title = f"Macro averages at {k} by training frequency of the labels"
    note = "left: over all labels of a band; right: over those with test gold"
    return Table(title, head, rows, note)


def comparison_table(
    comparison: Iterable[tuple[str, BootstrapResult]], title: str, *, head: str = "metric"
) -> Table:
    """Return a table of differences between two methods with their intervals."""
    return Table(
        title,
        [
            *columns("text", head),
            *columns("points", "difference", "from", "to"),
            *columns("number", "p"),
        ],
        [(name, c.difference, c.low, c.high, c.p_value) for name, c in comparison],
        note="In points, with 95% intervals by paired bootstrap over the test texts.",
    )


def ranking_table(rankings: Sequence[BandRanking]) -> Table:
    """Return the scores of each band's labels ranked among themselves."""
    rows = [
        (
            *(r.band, r.part, f"{r.n_labels:,}" + " with gold" * r.with_gold, r.n_documents),
            *(_interval(value) for value in r.scores.values()),
        )
        for r in rankings
    ]
    return Table(
        "Labels of each band ranked among themselves, with 95% bootstrap intervals",
        [
            *columns("text", "band", "", "labels"),
            *columns("count", "texts"),
            *columns("text", *rankings[0].scores),
        ],
        rows,
        note="with gold: only the labels that some text has are ranked; –: the model knows none",
    )


def band_calibration_table(rows: Sequence[BandCalibration]) -> Table:
    """Return the probabilities of each band's labels beside what was observed."""
    return Table(
        "Calibration by band",
        [
            *columns("text", "band"),
            *columns("count", "predictions"),
            *columns("share", "calibration error"),
            *columns("count", f"of {LIKELY} or more"),
            *columns("share", "mean", "gold"),
        ],
        [(r.band, r.n, r.error, r.n_likely, r.mean, r.observed) for r in rows],
        note="of the best 100 labels of each text; right: those with a probability of "
        f"{LIKELY} or more, their mean, and the share of them that is gold",
    )


def _interval(found: Interval | None) -> str:
    if found is None:
        return "–"
    return f"{found.value:.1%} ({found.low:.1%} to {found.high:.1%})"


def _counts_line(report: EvaluationReport) -> str:
    text = f"{report.n_evaluated:,} documents"
    if report.n_left_out:
        text += f" ({report.n_left_out:,} without gold labels skipped)"
    text += f", {report.n_labels:,} labels"
    if report.n_unseen_gold:
        share = report.n_unseen_gold / report.n_gold
        text += f"; {share:.1%} of gold labels are outside the label space and count as misses"
    return text

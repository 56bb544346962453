import sys
from pathlib import Path

import pytest

from glocal.errors import MissingExtraError
from glocal.lab.plots import Panel, bar_plot, check_plots, dot_plot, line_plot

TWO = {"first": [1.0, None, 3.0], "second": [2.0, 2.5, float("nan")]}


def draw(kind, stem):
    panels = [Panel("P@1", TWO), Panel("P@5", {"only": [5.0, 6.0, 7.0]})]
    if kind == "lines":
        return line_plot(
            stem, panels, x=[0, 1, 2], x_label="layer", title="Title", note="note " * 40
        )
    if kind == "dots":
        return dot_plot(stem, panels, rows=["a", "b", "c"], title="Title")
    return bar_plot(stem, panels, groups=["few", "medium", "many"], title="Title", note="note")


@pytest.mark.parametrize("kind", ["lines", "dots", "bars"])
def test_light_and_dark_png_and_svg(tmp_path, kind):
    paths = draw(kind, tmp_path / "plot")
    assert [path.name for path in paths] == [
        "plot.png",
        "plot.svg",
        "plot-dark.png",
        "plot-dark.svg",
    ]
    for path in paths:
        start = path.read_bytes()[:8]
        assert start == b"\x89PNG\r\n\x1a\n" if path.suffix == ".png" else start == b"<?xml ve"
    light, dark = (Path(paths[i]).read_text(encoding="utf-8") for i in (1, 3))
    assert "#ffffff" in light
    assert "#16181d" in dark
    assert "#ffffff" not in dark


def test_the_same_numbers_give_the_same_file(tmp_path):
    first, second = (draw("lines", tmp_path / name)[1].read_bytes() for name in ("a", "b"))
    assert first == second


def test_letters_stay_letters_and_one_legend_names_every_series(tmp_path):
    for kind in ("lines", "dots", "bars"):
        text = draw(kind, tmp_path / kind)[1].read_text(encoding="utf-8")
        assert all(text.count(f">{name}</text>") == 1 for name in ("first", "second", "only"))
        assert ">P@1</text>" in text


def test_no_legend_where_every_panel_has_one_line(tmp_path):
    panels = [Panel("P@1", {"gain": [1.0, 2.0]}), Panel("P@5", {"divergence": [3.0, 4.0]})]
    paths = line_plot(tmp_path / "plot", panels, x=[0, 1], x_label="layer", title="Title")
    text = paths[1].read_text(encoding="utf-8")
    assert ">gain</text>" not in text
    assert ">divergence</text>" not in text


@pytest.mark.parametrize(("low", "logarithmic"), [(0.01, True), (0.0, False)])
def test_logarithmic_scale_where_all_values_are_above_zero(tmp_path, low, logarithmic):
    panel = Panel("KL", {"a": [10.0, None, low], "b": [1.0, 2.0, 3.0]}, log=True)
    paths = line_plot(tmp_path / "plot", [panel], x=[0, 1, 2], x_label="layer", title="Title")
    assert ("\\mathdefault" in paths[1].read_text(encoding="utf-8")) == logarithmic


def test_matplotlib_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'glocal\[plots\]'"):
        check_plots()

import json
import re

import pytest
from rich.console import Console

from glocal.cli.explain import CONTEXT, expert_titles, highlight
from glocal.predict.explain import Span

TEXT = "the red fox a a a"


def test_tags_with_words_and_experts(run, model):
    result = run("explain", model, TEXT, "-k", "2")
    assert result.exit_code == 0, result.output
    document = json.loads(run("explain", model, TEXT, "-k", "2", "--json").stdout)
    _legend, *shown = result.stdout.strip().split("\n\n")
    for tag, lines in zip(document["tags"], shown, strict=True):
        heading, marked, *experts = lines.splitlines()
        assert heading.split() == [f"{100 * tag['score']:.1f}", *tag["name"].split(), tag["id"]]
        assert re.findall(r"\[(.+?)\]", marked) == words_of(tag, "all")
        for name, title, line in zip(("D-last", "A-1"), ("global", "local"), experts, strict=True):
            assert line.split()[0] == title
            weighed = line.partition("alone")[2].split(maxsplit=1)[1:]
            phrases = re.findall(r"(\D+) \d+(?:; |$)", "".join(weighed))
            assert sorted(phrases) == sorted(words_of(tag, name))


def words_of(tag, expert):
    """The words of an expert's spans in the order of the text."""
    spans = [span for span in tag["spans"] if span["expert"] == expert]
    return [span["text"] for span in sorted(spans, key=lambda span: span["start"])]


@pytest.mark.parametrize("recipe", ["fast", "glocalxml"])
def test_the_word_that_names_a_label_stands_behind_its_tag(run, model, files, tmp_path, recipe):
    if recipe == "fast":
        model = tmp_path / "fast"
        run("train", files.train, "--dev", files.dev, "--recipe", "fast", "--out", model)
    document = json.loads(run("explain", model, TEXT, "-k", "2", "--words", "1", "--json").stdout)
    named = {tag["id"]: words_of(tag, "all") for tag in document["tags"] if tag["id"] in TEXT}
    assert named["red"] == ["red"]
    assert all(words == [label] for label, words in named.items())


def test_a_legend_says_how_to_read_it(run, model):
    shown = run("explain", model, TEXT, "-k", "2").stdout
    legend, _, tags = shown.partition("\n\n")
    legend = " ".join(legend.split())
    assert "its probability in %" in legend
    assert "global (whole text), local (words that matter for the label)" in legend
    assert "Experts: their share of what the text adds to the tag" in legend
    assert "[Bracketed] words" in legend
    assert "alone" in tags


def test_json_maps_words_to_characters(run, model):
    document = json.loads(run("explain", model, TEXT, "-k", "3", "--json").stdout)
    assert document["text"] == TEXT
    assert len(document["tags"]) == 3
    for tag in document["tags"]:
        assert [part["name"] for part in tag["experts"]] == ["D-last", "A-1"]
        assert {span["expert"] for span in tag["spans"]} == {"all", "D-last", "A-1"}
        for span in tag["spans"]:
            assert TEXT[span["start"] : span["end"]] == span["text"]


def test_the_command_and_the_library_agree(run, model):
    from glocal import Tagger

    document = json.loads(run("explain", model, TEXT, "-k", "3", "--json").stdout)
    explained = Tagger.load(model).explain(TEXT, k=3)
    assert document["tags"] == [tag.to_dict() for tag in explained]


def test_words_limits_the_words(run, model):
    document = json.loads(run("explain", model, TEXT, "--words", "1", "--json").stdout)
    for tag in document["tags"]:
        experts = [span["expert"] for span in tag["spans"]]
        assert len(experts) == len(set(experts))


def test_html_writes_a_report(run, model, tmp_path):
    file = tmp_path / "why.html"
    result = run("explain", model, TEXT, "-k", "2", "--html", file)
    assert result.exit_code == 0, result.output
    page = file.read_text("utf-8")
    assert page.count("<section>") == 2
    assert "<mark" in page
    assert f"Written: {file}" in " ".join(result.stderr.split())


def test_stdin(run, model):
    arguments = ("-k", "2", "--json")
    assert run("explain", model, "-", *arguments, input=TEXT).stdout == (
        run("explain", model, TEXT, *arguments).stdout
    )


def test_stdin_that_is_not_utf8(run, model):
    result = run("explain", model, "-", input=b"caf\xe9")
    assert result.exit_code == 1
    assert "the text on stdin is not UTF-8 (byte 4)" in result.stderr


def test_empty_text(run, model):
    result = run("explain", model, "  ")
    assert result.exit_code == 1
    assert "the text is empty" in result.stderr


def test_k_above_the_number_of_labels(run, model):
    result = run("explain", model, TEXT, "-k", "99")
    assert result.exit_code == 1
    assert "15 labels" in result.stderr


def test_several_experts_of_a_kind_are_told_apart():
    assert expert_titles(["D-last", "A-1"]) == {"D-last": "global", "A-1": "local"}
    titles = expert_titles(["D-last", "A-1", "A-middle"])
    assert titles == {"D-last": "global", "A-1": "local A-1", "A-middle": "local A-middle"}


def span(text, word, weight=1.0):
    start = text.index(word)
    return Span(start, start + len(word), word, weight, "all")


def test_short_text_is_shown_whole():
    shown = highlight("a red fox\nran", [span("a red fox\nran", "fox")], brackets=True)
    assert shown.plain.strip() == "a red [fox] ran"


def test_adjacent_and_unordered_words():
    text = "red fox"
    spans = [span(text, "fox"), span(text, "red", 0.1)]
    assert highlight(text, spans, brackets=True).plain.strip() == "[red] [fox]"


def test_long_text_is_cut_around_the_words():
    text = "start " + "x" * 2000 + " needle " + "y" * 2000
    shown = highlight(text, [span(text, "needle")], brackets=True).plain
    assert "[needle]" in shown
    assert len(shown) < 3 * CONTEXT + 30
    assert shown.strip().startswith("…")
    assert shown.endswith("…")


@pytest.mark.parametrize("terminal", [True, False])
def test_strong_words_stand_out(terminal):
    shown = highlight("red fox", [span("red fox", "fox")], brackets=False)
    console = Console(force_terminal=terminal, color_system="standard" if terminal else None)
    with console.capture() as capture:
        console.print(shown)
    assert ("\x1b[" in capture.get()) is terminal


@pytest.fixture(scope="module")
def taught_model(tmp_path_factory):
    from tests.tiny import tiny_recipe
    from tests.train.runs import train

    out = tmp_path_factory.mktemp("explain") / "taught"
    train(tiny_recipe("glocalxml", 'experts=["D-last", "T"]', "train.epochs=1"), out)
    return out


def test_a_teacher_is_shown_in_a_few_lines(run, taught_model):
    result = run("explain", taught_model, TEXT, "-k", "2")
    assert result.exit_code == 0, result.output
    assert "teacher" in result.stdout  # its share of each tag
    assert "similar texts" in result.stdout
    assert "they vote for" in result.stdout
    document = json.loads(run("explain", taught_model, TEXT, "--json").stdout)
    assert len(document["teacher"]["neighbours"]) == 3
    assert run("explain", taught_model, "§", "-k", "1").stdout.endswith(
        "teacher: no similar training text\n"
    )


def test_a_model_without_a_teacher_says_nothing_of_one(run, model):
    assert "teacher" not in json.loads(run("explain", model, TEXT, "--json").stdout)

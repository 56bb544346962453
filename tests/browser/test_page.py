"""The page in a real browser: by mouse and keyboard alone, light, dark and on a phone."""

import json
import re

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.chromium import Server
from tests.browser.conftest import HOSTILE

pytestmark = pytest.mark.slow

TEXT = "Burn of second degree of back of right hand, initial encounter"


def names(page):
    return page.texts("#tags .tag-name > bdi")


def tagged(page, text=TEXT):
    page.write(text)
    page.see("#tags .tag.suggested")
    page.settled()
    return names(page)


def choose_model(page, name):
    page.run(
        "const s = document.getElementById('model'); s.value = arguments[0]; s.onchange()", name
    )


def test_a_first_visit_shows_an_empty_state(page):
    assert "1,280 labels" in page.see(".state").text
    assert page.all("#tags .tag") == []
    assert not page.find("#send").is_displayed()
    page.check("empty")


def test_tags_appear_as_you_type_and_words_light_up(page):
    found = tagged(page)
    assert any("urn" in name for name in found)
    assert "%" in page.see("#tags .score").text
    page.find("#tags .tag-main").click()
    page.see(".reasons .words", "Because of")
    page.wait(lambda: page.texts(".behind mark"))
    marked = page.texts(".behind mark")
    assert set(marked) <= set(page.texts(".reasons q"))
    assert all(word in TEXT for word in marked)
    # Marks lie exactly behind the words of the text field.
    assert page.texts(".behind") == [TEXT + "\u200b"]
    page.check("tag")
    page.find("#tags .tag-main").click()
    page.wait(lambda: not page.texts(".behind mark"))


def test_answers_to_earlier_texts_are_dropped(page):
    page.run("""
        const real = window.fetch; let calls = 0;
        window.fetch = async (...args) => {
          const slow = String(args[0]).endsWith('/v1/predict') && (calls += 1) === 1;
          const answer = await real(args[0], {...args[1], signal: undefined});
          if (slow) await new Promise((done) => setTimeout(done, 1500));
          return answer;
        };
    """)
    page.write("Burn of hand")
    page.wait(lambda: page.all(".card.busy"))
    page.write("Fracture of left femur")
    page.see("#tags .tag.suggested")
    found = page.wait(lambda: names(page))
    page.run("return new Promise((done) => setTimeout(done, 2000))")
    assert names(page) == found
    assert not any("urn" in name for name in names(page))


def test_a_text_of_emoji_and_marks_lights_up_the_right_words(page):
    text = "🐈‍⬛ 👩🏽‍🚀 e\u0301 burn of hand 🇫🇮 second degree"
    tagged(page, text)
    page.find("#tags .tag-main").click()
    marked = page.wait(lambda: page.texts(".behind mark"))
    assert all(re.fullmatch(r"[\w ]+", word) for word in marked), marked
    assert page.texts(".behind") == [text + "\u200b"]


def test_corrections_by_keyboard_alone(page, server):
    page.tab_to("#tab-tag")
    page.tab_to("#text")
    page.press(TEXT)
    page.see("#tags .tag.suggested")
    page.settled()
    before = names(page)
    page.tab_to("#tags .tag-main")
    page.press("r")  # the first tag is wrong
    page.see("#tags .tag.rejected")
    assert page.run("return document.activeElement.dataset.part") == "main"
    page.press(Keys.ENTER)
    page.see(".reasons .words", "Because of")
    if len(before) > 1:
        page.press(Keys.ARROW_DOWN)
        page.press("a")
        page.see("#tags .tag.accepted")
    page.tab_to("[role=combobox]")
    page.press("femur")
    page.see("[role=option][aria-selected=true]")
    page.check("search")
    page.press(Keys.ENTER)
    added = page.see("#tags .tag.added").text
    assert "emur" in added
    page.check("corrected")
    page.tab_to("#send")
    page.press(Keys.ENTER)
    page.see(".note", "Stored on the server")
    assert page.find("#text").get_attribute("value") == ""
    rows = [json.loads(line) for line in read_feedback(server).splitlines()]
    assert rows[-1]["text"] == TEXT
    assert rows[-1]["labels"] != rows[-1]["suggested"]


def read_feedback(server):
    return "".join(path.read_text("utf-8") for path in sorted(server.feedback.rglob("*.jsonl")))


def test_corrections_are_exported_and_survive_a_reload(page):
    tagged(page)
    page.find("#tags .mark-button.rejected").click()
    page.find("#keep").click()
    page.see(".note", "Kept for export")
    page.write("Typhoid fever, unspecified")
    page.see("#tags .tag.suggested")
    page.driver.refresh()
    page.see("#tags .tag.suggested")
    assert page.find("#text").get_attribute("value") == "Typhoid fever, unspecified"
    page.see("#export", "Export 1 row").click()
    (row,) = map(json.loads, page.downloaded("corrections.jsonl").splitlines())
    assert row["text"] == TEXT
    assert row["labels"] == row["suggested"][1:]


def test_a_text_file_and_an_html_file_are_read(page, tmp_path):
    html = tmp_path / "letter.html"
    html.write_text(
        "<title>Letter</title><script>document.title='owned'</script>"
        "<p>Burn of the hand</p><style>p{}</style><p>second&nbsp;degree</p>"
    )
    page.find("#text-file").send_keys(str(html))
    page.see("#tags .tag")
    assert page.find("#text").get_attribute("value") == "Letter\nBurn of the hand\nsecond degree"
    binary = tmp_path / "picture.txt"
    binary.write_bytes(b"\x89PNG\x00\x01")
    page.find("#text-file").send_keys(str(binary))
    page.see(".state.failed", "picture.txt is not a text file")


def test_every_expert_shows_its_contribution_and_its_words(page):
    choose_model(page, "animals")
    page.write("the white fox and a black cat")
    page.see("#tags .tag")
    page.settled()
    page.find("#tags .tag-main").click()
    page.see(".experts", "What each expert contributed")
    shown = page.texts(".expert-name")
    assert shown == ["Together", "Whole text", "Label’s words", "Words", "Similar texts"]
    together = page.texts(".behind mark")
    page.find('.expert input[value="S"]').click()
    assert page.find('.expert input[value="S"]').is_selected()
    assert page.texts(".behind mark") is not together
    page.see(".similar summary", "similar training texts").click()
    page.see(".similar li", "similarity")
    assert all("the " in text for text in page.texts(".similar-text"))
    page.see(".similar li:first-of-type .chip.same")
    page.check("experts")


def test_a_word_at_several_places_is_named_once(page):
    tagged(page, "Burn of hand, burn of wrist, second degree burn")
    page.find("#tags .tag-main").click()
    page.see(".reasons .words", "Because of")
    words = [word.lower() for word in page.texts(".reasons q")]
    assert len(words) == len(set(words))
    assert " times)" in page.find(".reasons .words").text


def test_another_model_starts_without_reasons_and_corrections(page):
    tagged(page)
    page.find("#tags .tag-main").click()
    page.see(".reasons .words", "Because of")
    page.find("#tags .mark-button.accepted").click()
    choose_model(page, "animals")
    page.settled()
    assert not page.all(".reasons .words")
    assert not page.texts(".behind mark")
    assert not page.all("#tags .tag.accepted, #tags .tag.added")


def test_html_scripts_and_controls_in_labels_and_texts_stay_text(page):
    choose_model(page, "animals")
    text = "red blue green cat <img src=x onerror=\"document.title='owned'\"> \u202e<b>x</b>"
    page.write(text)
    page.see("#tags .tag")
    page.see("#more").click()
    page.wait(lambda: len(page.all("#tags .tag")) > 8)
    page.settled()
    shown = set(names(page))
    assert {HOSTILE["red"], HOSTILE["blue"], HOSTILE["cat"], "safe \\u202egnp.exe"} <= shown
    assert page.all("#panels img, #panels script, #panels b") == []
    assert "owned" not in page.driver.title
    assert page.find("#text").get_attribute("value") == text
    page.find("#tags .tag-main").click()
    page.see(".reasons .words")
    page.check("hostile")


def test_more_candidates_come_below_the_suggestions(page):
    n = len(tagged(page))
    page.see("#more", "More candidates").click()
    page.wait(lambda: len(page.all("#tags .tag.candidate")) == 10)
    page.settled()
    assert len(names(page)) == n + 10
    page.check("candidates")
    page.see("#more", "Fewer").click()
    page.wait(lambda: len(names(page)) == n)


def test_a_file_is_tagged_row_by_row(page, tmp_path):
    rows = [json.dumps({"id": str(i), "text": f"Burn of hand {i}"}) for i in range(70)]
    rows[3], rows[5], rows[6] = "not json", '{"id": "5", "text": 5}', '{"id": "6", "text": ""}'
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(rows))
    page.find("#tab-batch").click()
    page.check("batch-empty")
    page.find("#batch-file").send_keys(str(file))
    page.see("#batch-start", "Tag 70 rows").click()
    page.see("#batch-status", "67 rows tagged, 3 with a problem")
    shown = page.see(".problems").text
    assert "Line 4: it is not valid JSON" in shown
    assert "Line 6: “text” is not a text" in shown
    page.check("batch")
    page.find("#batch-jsonl").click()
    lines = [json.loads(line) for line in page.downloaded("rows.tags.jsonl").splitlines()]
    assert len(lines) == 70
    assert lines[0]["id"] == "0"
    assert lines[0]["tags"][0].keys() == {"id", "name", "score"}
    assert lines[3] == {"line": 4, "error": "it is not valid JSON"}
    page.find("#batch-csv").click()
    table = page.downloaded("rows.tags.csv").splitlines()
    assert table[0] == "line,id,text,tags,names,scores,error"
    assert len(table) == 71


def test_a_table_with_quotes_is_read_and_another_column_can_be_chosen(page, tmp_path):
    file = tmp_path / "table.csv"
    file.write_text('id,note,text\n1,"Burn, of ""hand""\nsecond line",x\n2,short\n')
    page.find("#tab-batch").click()
    page.find("#batch-file").send_keys(str(file))
    page.see("#batch-start", "Tag 2 rows")
    page.run(
        "const s = document.getElementById('batch-column'); s.value = 'note'; "
        "const r = document.getElementById('batch-rule'); r.value = 'k'; "
        "r.dispatchEvent(new Event('change'))"
    )
    number = page.see("#batch-number")
    number.clear()
    number.send_keys("2")
    page.find("#batch-start").click()
    page.see("#batch-status", "1 row tagged, 1 with a problem")
    assert "Line 4: it has 2 columns, not 3" in page.see(".problems").text
    page.find("#batch-jsonl").click()
    row = json.loads(page.downloaded("table.tags.jsonl").splitlines()[0])
    assert row["note"] == 'Burn, of "hand"\nsecond line'
    assert len(row["tags"]) == 2


def test_a_run_can_be_cancelled(page, tmp_path):
    file = tmp_path / "many.csv"
    file.write_text("text\n" + "burn of hand\n" * 3000)
    page.find("#tab-batch").click()
    page.run("""
        const real = window.fetch;
        window.fetch = async (...args) => {
          await new Promise((done) => setTimeout(done, 200));
          return real(...args);
        };
    """)
    page.find("#batch-file").send_keys(str(file))
    page.see("#batch-start").click()
    page.wait(lambda: not page.find("#batch-status").text.startswith("0"))
    page.see("#batch-stop").click()
    page.see("#batch-status", "not done")
    assert page.find("#batch-jsonl").is_enabled()


def test_the_model_tab_shows_card_scores_charts_and_labels(page):
    page.find("#tab-model").click()
    page.see(".facts", "1,280")
    page.see("figure svg")
    assert page.texts("figcaption strong") == [
        "Can the probabilities be trusted?",
        "Does it know rare labels?",
    ]
    assert page.texts("figure circle")
    assert "Tags texts with the right few of 1,280 labels" in page.see(".prose").text
    page.see(".labels button.label-name").click()
    page.see(".crumbs", "All labels")
    page.settled()
    page.check("model")
    page.find("#browse").send_keys("femur")
    page.wait(lambda: all("emur" in text for text in page.texts(".labels li")))
    page.see(".labels li", "emur")


def test_tabs_by_arrow_keys_and_colours_by_the_switch(page):
    page.tab_to("#tab-tag")
    page.press(Keys.ARROW_RIGHT)
    assert page.find("#panel-batch").is_displayed()
    page.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    page.see(".facts")
    assert page.driver.current_url.endswith("#model")
    page.find("#theme").click()
    assert page.run("return document.documentElement.dataset.theme") == "dark"
    page.driver.refresh()
    page.see(".facts")
    assert page.run("return getComputedStyle(document.body).colorScheme") == "dark"


def test_a_busy_server_is_named_and_can_be_asked_again(page):
    page.run("""
        window.realFetch = window.fetch;
        window.fetch = async (...args) => String(args[0]).endsWith('/v1/predict')
          ? new Response(JSON.stringify({detail: '512 requests are in flight; try again'}),
                         {status: 429, headers: {'Retry-After': '1'}})
          : window.realFetch(...args);
    """)
    page.write("burn of hand")
    page.see(".state.failed", "The server is busy")
    page.check("busy")
    page.run("window.fetch = window.realFetch")
    page.find(".state.failed button").click()
    page.see("#tags .tag")


def test_a_text_that_is_too_long_can_be_cut(page):
    page.run(
        "const t = document.getElementById('text'); t.value = 'burn of hand '.repeat(9000);"
        "t.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    page.see(".state.failed button", "Tag the beginning only").click()
    page.see("#tags .tag.suggested")
    assert page.complaints()  # the browser logs the refusal


def test_the_key_is_asked_for_and_kept_in_memory_only(browser, diagnoses, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("correct-horse-battery-staple\n")
    server = Server(diagnoses, "--api-key-file", keys)
    try:
        server.warm(diagnoses.name)
        browser.open(server.url)
        browser.see("#key-dialog")
        browser.check("key")
        browser.press("wrong", Keys.ENTER)
        browser.see("#key-problem", "does not accept")
        browser.press("correct-horse-battery-staple", Keys.ENTER)
        browser.see("#panel-tag .state", "labels")
        browser.write("burn of hand")
        browser.see("#tags .tag")
        kept = "return JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
        assert "horse" not in browser.run(kept)
        browser.see("#send").click()
        browser.see(".note", "does not store corrections")
    finally:
        server.stop()
    browser.write("another text")
    browser.see(".state.failed", "The server does not answer")
    browser.check("down")
    browser.complaints()

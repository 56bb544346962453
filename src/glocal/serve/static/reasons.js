/** Why a tag: what each expert contributed, the words behind it, similar training texts. */

import { isAborted, request } from "/static/api.js";
import { announce, el, name, percent, plural, visible } from "/static/dom.js";

const ALL = "all";
const KINDS = {
  D: ["Whole text", "reads the text as a whole"],
  A: ["Label’s words", "looks for the words that matter for this label"],
  S: ["Words", "linear model of words and word pairs"],
  T: ["Similar texts", "labels of similar training texts"],
  R: ["Reader", "reads the text beside the labels of similar texts"],
};
const LONGEST = 400; // characters of a similar text
const SIMILAR = 5; // similar texts shown

/** Return a readable title of an expert and what it does. */
export function expertTitle(expert) {
  return KINDS[expert.charAt(0)] ?? [expert, ""];
}

export class Reasons {
  /** @param {{mark: (spans: object[]) => void}} calls Lights up words of the text. */
  constructor({ mark }) {
    this.mark = mark;
    this.tag = null;
    this.root = el("div", { class: "reasons" });
  }

  close() {
    this.tag = null;
    this.cancel?.abort();
  }

  /** Drop what belongs to an earlier text; the tag stays open. */
  forget() {
    this.cancel?.abort();
    if (this.tag) this.root.replaceChildren(el("p", { class: "quiet", text: "The text has changed …" }));
  }

  async open(tag, { model, text, truncate }) {
    this.cancel?.abort();
    this.cancel = new AbortController();
    const same = this.tag?.id === tag.id;
    this.tag = tag;
    if (!same) this.root.replaceChildren(el("div", { class: "bone" }), el("div", { class: "bone short" }));
    if (!same) this.mark([]);
    try {
      const body = { model: model.id, text, labels: [tag.id], truncate };
      const found = await request("/v1/explain", { body, signal: this.cancel.signal });
      this.show(found.tags[0], found.similar);
    } catch (error) {
      if (isAborted(error)) return;
      this.root.replaceChildren(
        el("p", { class: "problem", text: error.message }),
        el("button", { type: "button", class: "plain", text: "Try again", on: { click: () => this.open(tag, { model, text, truncate }) } }),
      );
    }
  }

  show(tag, similar) {
    this.explained = tag;
    const experts = [ALL, ...tag.experts.map((part) => part.name)];
    this.chosen = experts.includes(this.chosen) ? this.chosen : ALL;
    this.words = el("p", { class: "words" });
    const parts = tag.experts.length > 1 ? [this.choices(tag)] : [];
    this.root.replaceChildren(this.words, ...parts, ...this.similar(similar, tag));
    this.light();
    announce(this.words.textContent);
  }

  choices(tag) {
    const rows = [{ name: ALL, title: "Together" }, ...tag.experts.map((part) => ({ ...part, title: expertTitle(part.name)[0] }))];
    const titles = rows.map((row) => row.title);
    const group = el("fieldset", { class: "experts" }, el("legend", { text: "What each expert contributed; below 0 it speaks against the tag" }));
    for (const row of rows) {
      const twice = titles.filter((title) => title === row.title).length > 1;
      const input = el("input", {
        type: "radio",
        name: "expert",
        value: row.name,
        on: { change: () => { this.chosen = row.name; this.light(); } },
      });
      input.checked = row.name === this.chosen;
      const bar = el("span", { class: "share", "aria-hidden": "true" }, el("span", { class: row.share < 0 ? "fill against" : "fill" }));
      bar.firstChild.style.width = `${100 * Math.abs(row.share ?? 0)}%`;
      const share = row.share === undefined ? "" : `${row.share <= -0.005 ? "−" : ""}${Math.round(100 * Math.abs(row.share))} %`;
      const alone = row.share === undefined ? percent(tag.score, 1) : `alone ${percent(row.score, 1)}`;
      group.append(
        el("label", { class: "expert", title: row.share === undefined ? "" : expertTitle(row.name)[1] }, input,
          el("span", { class: "expert-name", text: twice ? `${row.title} ${row.name}` : row.title }),
          row.share === undefined ? el("span", { class: "share none" }) : bar,
          el("span", { class: "number", text: share }),
          el("span", { class: "number quiet", text: alone })),
      );
    }
    return group;
  }

  light() {
    const spans = this.explained.spans.filter((span) => span.expert === this.chosen);
    this.mark(spans);
    // The same word at several places is named once.
    const times = new Map();
    for (const { text } of spans) {
      const [first, n] = times.get(text.toLowerCase()) ?? [text, 0];
      times.set(text.toLowerCase(), [first, n + 1]);
    }
    const quoted = [...times.values()].flatMap(([text, n], place) => [place ? ", " : "", el("q", {}, name(shorten(text, 60))), n > 1 ? ` (${n} times)` : ""]);
    this.words.replaceChildren(...(spans.length ? ["Because of ", ...quoted] : ["No single word speaks for this tag."]));
  }

  /** Similar training texts; those that have the tag come first. */
  similar(texts, tag) {
    if (!texts.length) return [];
    const has = (found) => found.labels.some((label) => label.id === tag.id);
    const shown = [...texts.filter(has), ...texts.filter((found) => !has(found))].slice(0, SIMILAR);
    const chip = (label) => el("span", { class: label.id === tag.id ? "chip small same" : "chip small" }, name(label.name));
    const items = shown.map((found) =>
      el("li", {},
        el("div", { class: "similar-head" }, name(found.id), el("span", { class: "quiet", text: `similarity ${found.similarity.toFixed(2)}` })),
        found.text ? el("p", { dir: "auto", class: "similar-text", text: visible(shorten(found.text, LONGEST)) }) : null,
        el("p", { class: "similar-labels" }, ...found.labels.slice(0, 12).map(chip))));
    const tagged = shown.filter(has).length;
    const summary = `${plural(items.length, "similar training text")}, ${tagged} with this tag`;
    return [el("details", { class: "similar" }, el("summary", { text: summary }), el("ol", {}, ...items))];
  }
}

function shorten(text, length) {
  const points = [...text.replace(/\s+/g, " ")];
  return points.length > length ? `${points.slice(0, length).join("")}…` : points.join("");
}

/** A text field whose words can light up: marks lie behind a transparent text field. */

import { acceptDrops, announce, el } from "/static/dom.js";
import { readTextFile, utf16Places, wellFormed } from "/static/text.js";

const STRENGTHS = 4;

export class Editor {
  /**
   * @param {{onChange: (text: string) => void, onProblem: (message: string) => void}} calls
   */
  constructor({ onChange, onProblem }) {
    this.behind = el("div", { class: "behind", "aria-hidden": "true", dir: "auto" });
    this.field = el("textarea", {
      id: "text",
      dir: "auto",
      spellcheck: "false",
      "aria-describedby": "text-hint",
      placeholder: "Paste or type a text, or drop a .txt or .html file here",
      on: { input: () => this.changed(), scroll: () => this.align() },
    });
    this.input = el("input", {
      type: "file",
      id: "text-file",
      class: "hidden-text",
      accept: ".txt,.md,.html,.htm,text/plain,text/html",
      "aria-label": "Open a text file",
      on: { change: () => this.open(this.input.files[0]) },
    });
    this.root = el("div", { class: "editor" }, this.behind, this.field);
    this.onChange = onChange;
    this.onProblem = onProblem;
    acceptDrops(this.root, (file) => this.open(file));
    new ResizeObserver(() => this.align()).observe(this.field);
    this.changed(false);
  }

  get text() {
    return wellFormed(this.field.value);
  }

  /** Replace the text. */
  set(text) {
    this.field.value = text;
    this.field.scrollTop = 0;
    this.changed();
  }

  async open(file) {
    if (!file) return;
    try {
      this.set(await readTextFile(file));
      announce(`${file.name} is open`);
    } catch (error) {
      this.onProblem(error.message);
    }
    this.input.value = "";
  }

  changed(tell = true) {
    this.mark([]);
    if (tell) this.onChange(this.text);
  }

  /**
   * Light up words.
   * @param {{start: number, end: number, weight: number}[]} spans Places in code points.
   */
  mark(spans) {
    const text = this.field.value;
    const places = utf16Places(text, spans.flatMap((span) => [span.start, span.end]));
    const strongest = Math.max(...spans.map((span) => span.weight), 0);
    const parts = [];
    let done = 0;
    for (const span of [...spans].sort((a, b) => a.start - b.start)) {
      const [start, end] = [places.get(span.start), places.get(span.end)];
      if (start < done) continue;
      const strength = Math.max(1, Math.round((STRENGTHS * span.weight) / strongest));
      parts.push(text.slice(done, start), el("mark", { class: `w${strength}`, text: text.slice(start, end) }));
      done = end;
    }
    // A last line break would have no height without something after it.
    this.behind.replaceChildren(...parts, `${text.slice(done)}\u200b`);
    this.align();
    this.show(spans, places);
  }

  /** Scroll the strongest word into view. */
  show(spans, places) {
    if (!spans.length || this.field.scrollHeight <= this.field.clientHeight) return;
    const marks = [...this.behind.querySelectorAll("mark")];
    const inView = marks.some((mark) => {
      const top = mark.offsetTop - this.field.scrollTop;
      return top >= 0 && top < this.field.clientHeight - 24;
    });
    const first = marks.find((mark) => mark.className === `w${STRENGTHS}`) ?? marks[0];
    if (!inView && first && places.size) this.field.scrollTop = first.offsetTop - this.field.clientHeight / 3;
    this.align();
  }

  align() {
    const bar = this.field.offsetWidth - this.field.clientWidth - 2;
    this.behind.style.setProperty("--scrollbar", `${Math.max(0, bar)}px`);
    this.behind.scrollTop = this.field.scrollTop;
    this.behind.scrollLeft = this.field.scrollLeft;
  }
}

/** The Tag tab: a text, its tags as you type, the reasons for each, and corrections. */

import { isAborted, request } from "/static/api.js";
import { LabelSearch } from "/static/combobox.js";
import { Corrections } from "/static/corrections.js";
import { announce, count, debounce, el, name, percent, plural } from "/static/dom.js";
import { Editor } from "/static/editor.js";
import { Reasons } from "/static/reasons.js";

const WAIT = 250; // milliseconds after the last key
const MORE = 10; // further candidates

export class TagView {
  constructor(root) {
    this.tags = [];
    this.more = null; // candidates below the threshold, once asked for
    this.truncate = false;
    this.editor = new Editor({ onChange: (text) => this.typed(text), onProblem: (message) => this.problem(message) });
    this.corrections = new Corrections({ onChange: () => this.draw(), onClear: () => this.clear() });
    this.reasons = new Reasons({ mark: (spans) => this.editor.mark(spans) });
    this.search = new LabelSearch({ label: "Add a label", onChoose: (label) => this.corrections.add(label) });
    this.later = debounce(WAIT, () => this.predict());
    this.list = el("ul", { class: "tags", id: "tags", "aria-label": "Tags", on: { keydown: (event) => this.press(event) } });
    this.state = el("div", { class: "state" });
    this.moreButton = el("button", { class: "plain more", type: "button", id: "more", on: { click: () => this.toggleMore() } });
    this.status = el("span", { class: "quiet count" });
    root.append(el("div", { class: "columns" }, this.textCard(), this.tagCard()));
    this.restore();
    this.draw();
  }

  textCard() {
    const open = el("label", { class: "button plain", for: "text-file", text: "Open a file" });
    const clear = el("button", { class: "plain", type: "button", id: "clear", text: "New text", on: { click: () => this.clear() } });
    this.length = el("span", { class: "quiet count" });
    return el(
      "div",
      { class: "card text-card" },
      el("div", { class: "card-head" }, el("h2", {}, el("label", { for: "text", text: "Text" })), this.editor.input, open, clear),
      this.editor.root,
      el("div", { class: "card-foot" }, el("span", { id: "text-hint", class: "quiet", text: "Nothing is stored unless you send a correction." }), this.length),
    );
  }

  tagCard() {
    return el(
      "div",
      { class: "card tag-card" },
      el("div", { class: "card-head" }, el("h2", { text: "Tags" }), this.status),
      el("div", { class: "busy-line", "aria-hidden": "true" }),
      this.state,
      this.list,
      this.moreButton,
      this.search.root,
      this.corrections.root,
    );
  }

  useModel(model) {
    if (this.model && this.model.id !== model.id) {
      // Tags and reasons of another model say nothing about this one.
      this.reasons.close();
      this.editor.mark([]);
      this.tags = [];
    }
    this.model = model;
    this.search.useModel(model);
    this.corrections.useModel(model);
    this.more = null;
    this.predict();
  }

  // --- predicting ----------------------------------------------------------------------------

  restore() {
    const text = sessionStorage.getItem("glocal-text");
    if (text) this.editor.set(text);
  }

  typed(text) {
    sessionStorage.setItem("glocal-text", text);
    this.truncate = false;
    this.length.textContent = text ? plural([...text].length, "character") : "";
    this.reasons.forget();
    this.later();
  }

  clear() {
    this.corrections.reset();
    this.reasons.close();
    this.editor.set("");
    this.predict();
    this.editor.field.focus();
  }

  async predict() {
    this.later.cancel();
    this.cancel?.abort();
    const text = this.editor.text;
    if (!this.model || !text.trim()) {
      Object.assign(this, { tags: [], error: null, loading: false });
      this.more = this.more && [];
      return this.draw();
    }
    this.cancel = new AbortController();
    const { signal } = this.cancel;
    this.loading = true;
    this.draw();
    try {
      const body = { model: this.model.id, texts: [text], truncate: this.truncate };
      const best = await request("/v1/predict", { body, signal });
      const tags = best.results[0].tags;
      const more = this.more ? await this.candidates(body, tags, signal) : null;
      Object.assign(this, { tags, more, error: null, loading: false });
      this.model.loaded = true;
      announce(tags.length ? `${plural(tags.length, "tag")}: ${tags.map((tag) => tag.name).join(", ")}` : "No tag");
      this.draw();
      if (this.reasons.tag) this.explain(this.reasons.tag);
    } catch (error) {
      if (isAborted(error)) return undefined;
      Object.assign(this, { tags: [], error, loading: false });
      this.more = this.more && [];
      announce(error.message);
      this.draw();
    }
    return undefined;
  }

  async candidates(body, tags, signal) {
    const known = new Set(tags.map((tag) => tag.id));
    const k = Math.min(tags.length + MORE, this.model.n_labels);
    const found = await request("/v1/predict", { body: { ...body, k }, signal });
    return found.results[0].tags.filter((tag) => !known.has(tag.id));
  }

  toggleMore() {
    this.more = this.more ? null : [];
    if (this.more) this.predict();
    else this.draw();
  }

  problem(message) {
    this.error = new Error(message);
    this.draw();
  }

  // --- the list ------------------------------------------------------------------------------

  draw() {
    const focused = document.activeElement?.closest?.("[data-part]");
    const wanted = focused && this.list.contains(focused) ? [focused.closest("li").dataset.id, focused.dataset.part] : null;
    const added = this.corrections.addedTags([...this.tags, ...(this.more ?? [])]);
    this.corrections.suggest(this.error || (this.loading && !this.tags.length) ? "" : this.editor.text, this.tags);
    const items = [...this.tags.map((tag) => this.item(tag)), ...added.map((tag) => this.item(tag, "added"))];
    items.push(...(this.more ?? []).map((tag) => this.item(tag, "candidate")));
    this.list.replaceChildren(...items);
    this.list.closest(".card")?.classList.toggle("busy", Boolean(this.loading));
    this.list.setAttribute("aria-busy", String(Boolean(this.loading)));
    this.drawState();
    const empty = !this.editor.text.trim();
    this.moreButton.hidden = empty || Boolean(this.error);
    this.moreButton.textContent = this.more ? "Fewer candidates" : "More candidates";
    this.moreButton.setAttribute("aria-expanded", String(Boolean(this.more)));
    this.status.textContent = empty || this.error ? "" : plural(this.tags.length, "suggestion");
    this.search.root.hidden = empty;
    if (wanted) this.list.querySelector(`li[data-id="${CSS.escape(wanted[0])}"] [data-part="${wanted[1]}"]`)?.focus();
  }

  drawState() {
    const empty = !this.editor.text.trim();
    this.state.hidden = false;
    this.state.className = "state";
    if (this.error) {
      this.state.className = "state failed";
      const busy = this.error.status === 429;
      const long = this.error.status === 413 && !this.truncate;
      const act = long ? () => { this.truncate = true; this.predict(); } : () => this.predict();
      this.state.replaceChildren(
        el("p", { class: "state-title", text: busy ? "The server is busy" : "No tags" }),
        el("p", { text: this.error.message }),
        el("button", { type: "button", class: "plain", text: long ? "Tag the beginning only" : "Try again", on: { click: act } }),
      );
    } else if (empty) {
      const labels = this.model ? ` out of ${count(this.model.n_labels)} labels` : "";
      this.state.replaceChildren(
        el("p", { class: "state-title", text: "No text yet" }),
        el("p", { text: `Tags appear here as you type${labels}, each with the probability that it is right.` }),
      );
    } else if (this.loading && !this.tags.length) {
      this.state.className = "state skeleton";
      const first = this.model.loaded ? [] : [el("p", { class: "quiet", text: "The model is being loaded, which takes a moment the first time …" })];
      this.state.replaceChildren(...first, ...[1, 2, 3].map(() => el("div", { class: "bone" })));
    } else if (!this.tags.length) {
      this.state.replaceChildren(
        el("p", { class: "state-title", text: "No label reaches the threshold" }),
        el("p", { text: "Look at more candidates, or add a label yourself." }),
      );
    } else {
      this.state.hidden = true;
    }
  }

  item(tag, kind = "suggested") {
    const verdict = this.corrections.verdict(tag.id);
    const open = this.reasons.tag?.id === tag.id;
    const mark = (part, to, label, symbol) =>
      el("button", {
        type: "button",
        class: `mark-button ${to}`,
        data: { part },
        "aria-pressed": String(verdict === to),
        "aria-label": `${label} ${tag.name}`,
        title: label,
        on: { click: () => this.judge(tag, to) },
      }, el("span", { "aria-hidden": "true", text: symbol }));
    const score = tag.score === undefined ? null : el("span", { class: "score", text: percent(tag.score) });
    const meter = el("span", { class: "meter", "aria-hidden": "true" }, el("span", { class: "fill" }));
    meter.firstChild.style.width = `${100 * (tag.score ?? 0)}%`;
    const main = el(
      "button",
      { type: "button", class: "tag-main", data: { part: "main" }, "aria-expanded": String(open), on: { click: () => this.toggle(tag) } },
      el("span", { class: "tag-name" }, name(tag.name), tag.id === tag.name ? null : el("code", {}, name(tag.id))),
      kind === "added" && tag.score === undefined ? el("span", { class: "badge", text: "added" }) : score,
      tag.score === undefined ? null : meter,
    );
    const row = el("div", { class: "tag-row" }, main, mark("accept", "accepted", "Accept", "✓"), mark("reject", "rejected", "Reject", "✕"));
    return el("li", { class: `tag ${kind} ${verdict}`, data: { id: tag.id } }, row, open ? this.reasons.root : null);
  }

  judge(tag, verdict) {
    const now = this.corrections.judge(tag, verdict);
    announce(`${tag.name}: ${now || "undecided"}`);
  }

  toggle(tag) {
    if (this.reasons.tag?.id === tag.id) {
      this.reasons.close();
      this.editor.mark([]);
      this.draw();
    } else {
      this.explain(tag);
    }
  }

  explain(tag) {
    this.reasons.open(tag, { model: this.model, text: this.editor.text, truncate: this.truncate });
    this.draw();
  }

  press(event) {
    const item = event.target.closest("li.tag");
    const part = event.target.dataset.part;
    if (!item || !part || event.ctrlKey || event.metaKey || event.altKey) return;
    const items = [...this.list.children];
    const place = items.indexOf(item);
    const to = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: items.length - 1 }[event.key];
    if (to !== undefined) {
      items[Math.min(Math.max(to, 0), items.length - 1)].querySelector(`[data-part="${part}"]`).focus();
    } else if (event.key === "a" || event.key === "r") {
      item.querySelector(`[data-part="${event.key === "a" ? "accept" : "reject"}"]`).click();
    } else {
      return;
    }
    event.preventDefault();
  }
}

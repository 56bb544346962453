/** The user's decisions about one text, and the corrections collected so far. */

import { request } from "/static/api.js";
import { announce, download, el, name, plural } from "/static/dom.js";

const STORED = "glocal-corrections";

export class Corrections {
  /** @param {{onChange: () => void, onClear: () => void}} calls After a decision; after a text is done. */
  constructor({ onChange, onClear }) {
    Object.assign(this, { onChange, onClear, suggested: [], text: "", sending: false, refused: false });
    this.verdicts = new Map(); // id → accepted | rejected
    this.added = new Map(); // id → label
    this.rows = JSON.parse(sessionStorage.getItem(STORED) ?? "[]");
    this.final = el("p", { class: "final", id: "final" });
    this.keep = this.button("keep", "Keep for export", () => this.keepRow());
    this.send = this.button("send", "Send correction", () => this.sendRow(), "primary");
    this.save = this.button("export", "", () => this.exportRows(), "plain");
    this.note = el("p", { class: "note", role: "status" });
    this.root = el("div", { class: "corrections" }, this.final, el("div", { class: "row" }, this.send, this.keep, this.save), this.note);
    this.draw();
  }

  button(id, text, call, kind = "secondary") {
    return el("button", { id, type: "button", class: kind, text, on: { click: call } });
  }

  useModel(model) {
    if (this.model && this.model.id !== model.id) this.reset(); // labels of another model
    this.model = model;
    this.refused = false;
  }

  reset() {
    this.verdicts.clear();
    this.added.clear();
    this.note.textContent = "";
  }

  /** Tell what the model suggests for a text; an empty text cannot be corrected. */
  suggest(text, tags) {
    this.text = text;
    this.suggested = tags;
    this.draw();
  }

  verdict(id) {
    return this.verdicts.get(id) ?? "";
  }

  /** Accept or reject a tag, or take that back; returns the verdict that holds now. */
  judge(tag, verdict) {
    if (this.verdicts.get(tag.id) === verdict) this.verdicts.delete(tag.id);
    else this.verdicts.set(tag.id, verdict);
    const now = this.verdict(tag.id);
    if (now === "accepted") this.added.set(tag.id, tag);
    else this.added.delete(tag.id);
    this.note.textContent = "";
    this.onChange();
    return now;
  }

  add(label) {
    this.added.set(label.id, { id: label.id, name: label.name });
    this.verdicts.set(label.id, "accepted");
    announce(`${label.name} added`);
    this.note.textContent = "";
    this.onChange();
  }

  /** Return the labels that were added and are not in a list of tags. */
  addedTags(tags) {
    const known = new Set(tags.map((tag) => tag.id));
    return [...this.added.values()].filter((tag) => !known.has(tag.id));
  }

  /** Return the labels the text has by now: suggested and not rejected, or accepted. */
  labels() {
    const kept = this.suggested.filter((tag) => this.verdict(tag.id) !== "rejected");
    return [...kept, ...this.addedTags(kept)];
  }

  row() {
    return {
      id: crypto.randomUUID?.() ?? String(Date.now()),
      text: this.text,
      labels: this.labels().map((tag) => tag.id),
      suggested: this.suggested.map((tag) => tag.id),
    };
  }

  draw() {
    const labels = this.labels();
    const usable = Boolean(this.text.trim());
    this.root.hidden = !usable && !this.rows.length && !this.note.textContent;
    this.final.hidden = !usable;
    this.send.hidden = !usable || this.refused;
    this.keep.hidden = !usable;
    this.final.replaceChildren(
      el("span", { class: "quiet", text: labels.length ? `${plural(labels.length, "label")} for this text: ` : "No label for this text." }),
      ...labels.map((tag) => el("span", { class: "chip" }, name(tag.name))),
    );
    this.send.disabled = this.sending;
    this.save.hidden = !this.rows.length;
    this.save.textContent = `Export ${plural(this.rows.length, "row")} (JSONL)`;
  }

  done(message) {
    this.onClear();
    this.note.textContent = message;
    announce(message);
    this.draw();
  }

  keepRow() {
    this.rows.push(this.row());
    sessionStorage.setItem(STORED, JSON.stringify(this.rows));
    this.done("Kept for export. Ready for the next text.");
  }

  async sendRow() {
    this.sending = true;
    this.draw();
    try {
      await request("/v1/feedback", { body: { model: this.model.id, ...this.row() } });
      this.sending = false;
      this.done("Stored on the server as a training row. Ready for the next text.");
    } catch (error) {
      this.sending = false;
      this.refused = error.status === 403;
      this.note.textContent = error.status === 403 ? "This server does not store corrections. Keep them for export instead." : error.message;
      this.draw();
    }
  }

  exportRows() {
    const lines = this.rows.map((row) => `${JSON.stringify(row)}\n`).join("");
    download("corrections.jsonl", lines, "application/jsonl");
    announce(`${plural(this.rows.length, "row")} exported`);
  }
}

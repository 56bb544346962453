/** The Batch tab: a file of texts in, their tags out, with progress and problems by row. */

import { isAborted, patientRequest } from "/static/api.js";
import { acceptDrops, announce, count, download, el, name, percent, plural, visible } from "/static/dom.js";
import { csvCell, readRows, textOf } from "/static/rows.js";
import { wellFormed } from "/static/text.js";

const TEXTS = 32; // texts of one request
const CHARACTERS = 300_000; // of one request, well below the server's limit
const SHOWN = 50; // rows on the page
const LARGEST = 200_000_000;

export class BatchView {
  constructor(root) {
    this.input = el("input", { type: "file", id: "batch-file", class: "hidden-text", accept: ".jsonl,.ndjson,.csv,.tsv", "aria-label": "Choose a file of texts", on: { change: () => this.open(this.input.files[0]) } });
    this.drop = el("div", { class: "drop" },
      el("p", { class: "state-title", text: "Drop a file of texts" }),
      el("p", { class: "quiet", text: "JSONL with a field “text”, or CSV or TSV with a header. Every row comes back with its tags." }),
      this.input, el("label", { class: "button primary", for: "batch-file", text: "Choose a file" }));
    acceptDrops(this.drop, (file) => this.open(file));
    this.work = el("div", { class: "work", hidden: true });
    this.problem = el("p", { class: "problem", role: "alert" });
    root.append(el("div", { class: "card wide" }, el("div", { class: "card-head" }, el("h2", { text: "Tag a file" })), this.drop, this.problem, this.work));
  }

  useModel(model) {
    this.model = model;
  }

  async open(file) {
    if (!file || this.running) return;
    this.problem.textContent = "";
    try {
      if (file.size > LARGEST) throw new Error(`${file.name} is larger than 200 MB. Use glocal predict on the command line for it.`);
      this.source = { file, ...readRows(file.name, await file.text()) };
      this.results = [];
      this.prepare();
    } catch (error) {
      this.problem.textContent = error.message;
    }
    this.input.value = "";
  }

  prepare() {
    const { file, rows, columns, column } = this.source;
    this.column = el("select", { id: "batch-column" }, ...columns.map((found) => el("option", { value: found, text: visible(found) })));
    this.column.value = column;
    this.rule = el("select", { id: "batch-rule", on: { change: () => this.drawRule() } },
      el("option", { value: "model", text: "the model’s own decision" }),
      el("option", { value: "k", text: "a fixed number of tags" }),
      el("option", { value: "threshold", text: "tags from a probability on" }));
    this.number = el("input", { id: "batch-number", type: "number", "aria-label": "Number", hidden: true });
    this.start = el("button", { type: "button", class: "primary", id: "batch-start", text: `Tag ${plural(rows.length, "row")}`, on: { click: () => this.run() } });
    this.stop = el("button", { type: "button", class: "secondary", id: "batch-stop", text: "Cancel", hidden: true, on: { click: () => this.cancel.abort() } });
    this.bar = el("progress", { max: rows.length, value: 0, "aria-label": "Progress" });
    this.bar.hidden = true;
    this.status = el("p", { class: "quiet", id: "batch-status", role: "status" });
    this.output = el("div", { class: "output" });
    this.work.hidden = false;
    this.work.replaceChildren(
      el("h3", {}, name(file.name), el("span", { class: "quiet", text: ` ${plural(rows.length, "row")}` })),
      el("div", { class: "fields" },
        el("label", { for: "batch-column", text: "Text in" }), this.column,
        el("label", { for: "batch-rule", text: "Tags by" }), el("span", { class: "row" }, this.rule, this.number)),
      el("div", { class: "row" }, this.start, this.stop), this.bar, this.status, this.output);
    this.start.focus();
  }

  drawRule() {
    const kind = this.rule.value;
    this.number.hidden = kind === "model";
    const limits = kind === "k" ? { min: 1, max: this.model.n_labels, step: 1 } : { min: 0, max: 1, step: 0.01 };
    for (const [limit, value] of Object.entries(limits)) this.number.setAttribute(limit, value);
    this.number.value = kind === "k" ? 5 : 0.5;
    this.number.setAttribute("aria-label", kind === "k" ? "Number of tags" : "Lowest probability");
  }

  // --- running -------------------------------------------------------------------------------

  options() {
    if (this.rule.value === "model") return {};
    if (!this.number.checkValidity()) throw new Error(this.number.validationMessage);
    return { [this.rule.value]: Number(this.number.value) };
  }

  async run() {
    let options;
    try {
      options = { model: this.model.id, ...this.options() };
    } catch (error) {
      this.problem.textContent = error.message;
      return;
    }
    this.problem.textContent = "";
    this.setRunning(true);
    const { rows } = this.source;
    this.results = rows.map((row) => ({ row, ...textOf(row, this.column.value) }));
    this.done = this.results.filter((result) => result.problem).length;
    this.progress();
    const queue = chunks(this.results.filter((result) => !result.problem));
    const next = async () => {
      for (let chunk = queue.shift(); chunk; chunk = queue.shift()) await this.tag(chunk, options);
    };
    try {
      await Promise.all([next(), next()]); // two at a time keep the server busy
    } catch (error) {
      this.cancel.abort();
      if (!isAborted(error)) this.problem.textContent = `${error.message} ${count(this.done)} rows are done; the rest was not tagged.`;
    }
    this.setRunning(false);
    this.finish();
  }

  /** Tag some rows; if the server refuses them, find the row that it refuses. */
  async tag(chunk, options) {
    const body = { ...options, texts: chunk.map((result) => wellFormed(result.text)) };
    try {
      const answer = await patientRequest("/v1/predict", { body, signal: this.cancel.signal });
      chunk.forEach((result, place) => { result.tags = answer.results[place].tags; });
    } catch (error) {
      if (![413, 422].includes(error.status)) throw error;
      if (chunk.length > 1) {
        for (const result of chunk) await this.tag([result], options);
        return;
      }
      chunk[0].problem = error.message;
    }
    this.done += chunk.length;
    this.progress();
  }

  setRunning(running) {
    this.running = running;
    if (running) this.cancel = new AbortController();
    this.stop.hidden = !running;
    this.start.hidden = running;
    this.bar.hidden = !running;
    for (const field of [this.column, this.rule, this.number]) field.disabled = running;
    this.output.replaceChildren();
    if (running) this.stop.focus();
  }

  progress() {
    this.bar.value = this.done;
    this.status.textContent = `${count(this.done)} of ${plural(this.results.length, "row")}`;
  }

  finish() {
    const tagged = this.results.filter((result) => result.tags);
    const bad = this.results.filter((result) => result.problem);
    const left = this.results.length - tagged.length - bad.length;
    this.status.textContent = [
      `${plural(tagged.length, "row")} tagged`,
      bad.length ? `${count(bad.length)} with a problem` : "",
      left ? `${count(left)} not done` : "",
    ].filter(Boolean).join(", ");
    announce(this.status.textContent);
    this.start.textContent = "Tag again";
    const stem = this.source.file.name.replace(/\.[^.]*$/, "");
    const button = (id, text, call) => el("button", { id, type: "button", class: "secondary", text, disabled: !tagged.length, on: { click: call } });
    this.output.replaceChildren(
      el("div", { class: "row" },
        button("batch-jsonl", "Download JSONL", () => download(`${stem}.tags.jsonl`, this.jsonl(), "application/jsonl")),
        button("batch-csv", "Download CSV", () => download(`${stem}.tags.csv`, this.csv(), "text/csv"))),
      ...(bad.length ? [this.problems(bad)] : []),
      ...(tagged.length ? [this.table(tagged)] : []),
    );
    (this.output.querySelector("button:not(:disabled)") ?? this.start).focus();
  }

  jsonl() {
    return this.results.map(({ row, tags, problem }) => {
      const kept = row.problem ? { line: row.line } : row.values;
      return `${JSON.stringify(tags ? { ...kept, tags } : { ...kept, error: problem ?? "not done" })}\n`;
    }).join("");
  }

  csv() {
    const lines = [["line", "id", "text", "tags", "names", "scores", "error"]];
    for (const { row, text, tags, problem } of this.results) {
      const parts = (key) => (tags ?? []).map((tag) => (key === "score" ? tag.score.toFixed(4) : tag[key])).join(";");
      lines.push([row.line, row.values.id ?? "", text ?? "", parts("id"), parts("name"), parts("score"), tags ? "" : problem ?? "not done"]);
    }
    return lines.map((line) => `${line.map(csvCell).join(",")}\r\n`).join("");
  }

  problems(bad) {
    const items = bad.slice(0, SHOWN).map((result) => el("li", { text: `Line ${count(result.row.line)}: ${visible(result.problem)}` }));
    return el("details", { class: "problems", open: true }, el("summary", { text: `${plural(bad.length, "row")} with a problem` }), el("ul", {}, ...items),
      bad.length > SHOWN ? el("p", { class: "quiet", text: `The first ${SHOWN} are shown; the download has all.` }) : null);
  }

  table(tagged) {
    const rows = tagged.slice(0, SHOWN).map(({ row, text, tags }) =>
      el("tr", {}, el("td", { class: "number", text: count(row.line) }), el("td", { class: "cell-text", dir: "auto", text: visible(text.slice(0, 160)) + (text.length > 160 ? "…" : "") }),
        el("td", {}, ...(tags.length ? tags.map((tag) => el("span", { class: "chip small" }, name(tag.name), el("span", { class: "quiet", text: percent(tag.score) }))) : [el("span", { class: "quiet", text: "none" })]))));
    const caption = tagged.length > SHOWN ? `The first ${SHOWN} of ${plural(tagged.length, "row")}` : plural(tagged.length, "row");
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tagged rows" },
      el("table", {}, el("caption", { text: caption }), el("thead", {}, el("tr", {}, ...["Line", "Text", "Tags"].map((head) => el("th", { scope: "col", text: head })))), el("tbody", {}, ...rows)));
  }
}

/** Split rows into requests, none of them too large. */
function chunks(results) {
  const found = [];
  let size = 0;
  for (const result of results) {
    const last = found.at(-1);
    if (!last || last.length === TEXTS || size + result.text.length > CHARACTERS) {
      found.push([result]);
      size = result.text.length;
    } else {
      last.push(result);
      size += result.text.length;
    }
  }
  return found;
}

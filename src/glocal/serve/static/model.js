/** The Model tab: facts, card, scores, charts and the label browser. */

import { request } from "/static/api.js";
import { bands, reliability } from "/static/charts.js";
import { count, el, name, percent, plural, visible } from "/static/dom.js";
import { LabelBrowser } from "/static/labels.js";
import { markdown } from "/static/markdown.js";
import { expertTitle } from "/static/reasons.js";

const SCORES = ["P@1", "P@3", "P@5", "nDCG@5", "R@5", "PSP@5", "micro-F1"];

export class ModelView {
  constructor(root) {
    this.browser = new LabelBrowser();
    this.facts = el("div", { class: "card", "aria-live": "off" });
    this.charts = el("div", { class: "card" });
    this.card = el("div", { class: "card" });
    const labels = el("div", { class: "card" }, el("div", { class: "card-head" }, el("h2", { text: "Labels" })), this.browser.root);
    root.append(el("div", { class: "columns even" }, el("div", { class: "stack" }, this.facts, this.charts, this.card), el("div", { class: "stack" }, labels)));
  }

  useModel(model) {
    this.model = model;
    this.loaded = null;
    this.browser.useModel(model);
  }

  /** Load what the tab shows, when it is first shown. */
  async shown() {
    if (!this.model || this.loaded === this.model) return;
    const model = this.model;
    this.loaded = model;
    this.facts.replaceChildren(el("div", { class: "state skeleton" }, ...[1, 2, 3].map(() => el("div", { class: "bone" }))));
    this.browser.start();
    try {
      const details = await request(`/v1/models/${encodeURIComponent(model.id)}`);
      if (model === this.model) this.draw(details);
    } catch (error) {
      this.loaded = null;
      this.facts.replaceChildren(el("div", { class: "state failed" }, el("p", { class: "state-title", text: "The model cannot be shown" }), el("p", { text: error.message }),
        el("button", { type: "button", class: "plain", text: "Try again", on: { click: () => this.shown() } })));
    }
  }

  draw(details) {
    const report = details.metrics.dev_report;
    this.facts.replaceChildren(el("div", { class: "card-head" }, el("h2", {}, name(details.name || details.id))), this.table(details));
    const macro = report?.macro?.combined?.["5"];
    const calibration = report?.calibration?.combined;
    const parts = [];
    if (report?.scores) parts.push(this.scores(report.scores, report.documents));
    if (calibration?.counts) parts.push(reliability(calibration));
    if (macro) parts.push(bands(macro));
    this.charts.replaceChildren(el("div", { class: "card-head" }, el("h2", { text: "Quality" })),
      ...(parts.length ? parts : [el("p", { class: "quiet", text: "This model was trained without dev texts, so nothing was measured." })]));
    this.card.hidden = !details.card;
    this.card.replaceChildren(el("div", { class: "card-head" }, el("h2", { text: "Model card" })), el("div", { class: "prose" }, ...markdown(details.card, 3)));
  }

  table(details) {
    const experts = details.experts.map((expert) => `${expertTitle(expert)[0]} (${expert})`).join(", ");
    const least = details.default.min_tags ? `, at least ${plural(details.default.min_tags, "tag")}` : "";
    const own = details.default.own_thresholds ? `; ${plural(details.default.own_thresholds, "label")} with a threshold of their own` : "";
    const goal = details.default.goal ? `, tuned for ${details.default.goal}` : "";
    const facts = {
      Labels: count(details.n_labels),
      Experts: experts,
      Tags: `from ${percent(details.default.threshold, 1)} on${least}${own}${goal}`,
      System: details.recipe.system ?? "",
      Encoder: details.recipe.encoder?.name ?? "",
      Written: details.created.slice(0, 10),
    };
    const rows = Object.entries(facts).filter(([, value]) => value);
    return el("dl", { class: "facts" }, ...rows.flatMap(([term, value]) => [el("dt", { text: term }), el("dd", { text: visible(value) })]));
  }

  scores(scores, documents) {
    const parts = Object.entries(scores);
    const heads = SCORES.filter((score) => score in scores.combined);
    const title = (part) => (part === "combined" ? "Together" : expertTitle(part)[0]);
    const rows = parts.map(([part, values]) => el("tr", {}, el("th", { scope: "row", text: title(part) }), ...heads.map((score) => el("td", { class: "number", text: values[score] === null ? "–" : (100 * values[score]).toFixed(1) }))));
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Scores" },
      el("table", {}, el("caption", { text: `Scores in % on ${plural(documents?.evaluated ?? 0, "dev text")}` }),
        el("thead", {}, el("tr", {}, el("td"), ...heads.map((head) => el("th", { scope: "col", text: head })))), el("tbody", {}, ...rows)));
  }
}

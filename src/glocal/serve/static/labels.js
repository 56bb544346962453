/** The label browser: search, or walk down the hierarchy; a page at a time, for any number of labels. */

import { isAborted, request } from "/static/api.js";
import { announce, count, debounce, el, name, plural, visible } from "/static/dom.js";

const SIZE = 25;

export class LabelBrowser {
  constructor() {
    this.path = []; // labels from the top down to the one that is open
    this.page = 1;
    this.later = debounce(200, () => this.load(1));
    this.field = el("input", { type: "search", id: "browse", placeholder: "Search all labels", "aria-label": "Search all labels", on: { input: () => this.later() } });
    this.crumbs = el("nav", { "aria-label": "Hierarchy", class: "crumbs" });
    this.list = el("ul", { class: "labels" });
    this.note = el("p", { class: "quiet", role: "status" });
    this.back = el("button", { type: "button", class: "plain", text: "Previous", on: { click: () => this.load(this.page - 1) } });
    this.forth = el("button", { type: "button", class: "plain", text: "Next", on: { click: () => this.load(this.page + 1) } });
    this.root = el("div", { class: "browser" }, this.field, this.crumbs, this.list, el("div", { class: "row pages" }, this.back, this.note, this.forth));
  }

  useModel(model) {
    this.model = model;
    this.path = [];
    this.field.value = "";
  }

  start() {
    this.load(1);
  }

  async load(page) {
    this.cancel?.abort();
    this.cancel = new AbortController();
    const query = this.field.value.trim();
    const parameters = new URLSearchParams({ model: this.model.id, page, size: SIZE });
    if (query) parameters.set("q", query);
    else parameters.set("parent", this.path.at(-1)?.id ?? "");
    this.root.setAttribute("aria-busy", "true");
    try {
      const found = await request(`/v1/labels?${parameters}`, { signal: this.cancel.signal });
      this.page = found.page;
      this.draw(found, query);
    } catch (error) {
      if (isAborted(error)) return;
      this.list.replaceChildren(el("li", { class: "problem" }, error.message, " ", el("button", { type: "button", class: "plain", text: "Try again", on: { click: () => this.load(page) } })));
      this.note.textContent = "";
    }
    this.root.setAttribute("aria-busy", "false");
  }

  draw(found, query) {
    const steps = [{ id: "", name: "All labels" }, ...this.path];
    this.crumbs.hidden = Boolean(query) || !this.path.length;
    this.crumbs.replaceChildren(...steps.map((step, depth) =>
      depth === steps.length - 1
        ? el("span", { "aria-current": "page" }, name(step.name))
        : el("button", { type: "button", class: "plain", on: { click: () => this.go(this.path.slice(0, depth)) } }, name(step.name))));
    this.list.replaceChildren(...found.labels.map((label) => this.item(label)));
    const pages = Math.max(1, Math.ceil(found.total / SIZE));
    this.back.disabled = this.page <= 1;
    this.forth.disabled = this.page >= pages;
    this.back.hidden = this.forth.hidden = pages < 2;
    const where = pages > 1 ? `, page ${count(this.page)} of ${count(pages)}` : "";
    this.note.textContent = found.total ? `${plural(found.total, "label")}${where}` : query ? `No label matches “${visible(query)}”.` : "There is no label below this one.";
    announce(this.note.textContent);
  }

  item(label) {
    const title = label.children_count
      ? el("button", { type: "button", class: "label-name open", on: { click: () => this.go([...this.path, label]) } }, name(label.name), el("span", { class: "quiet", text: ` ${count(label.children_count)} below` }))
      : el("span", { class: "label-name" }, name(label.name));
    return el("li", {},
      el("div", { class: "label-head" }, title, label.id === label.name ? null : el("code", {}, name(label.id)), el("span", { class: "quiet count", text: plural(label.count, "text") })),
      label.alternatives.length ? el("p", { class: "quiet" }, "also: ", ...label.alternatives.slice(0, 8).flatMap((other, place) => [place ? ", " : "", name(other)])) : null,
      label.description ? el("p", { class: "description", text: visible(label.description) }) : null);
  }

  go(path) {
    this.path = path;
    this.field.value = "";
    this.load(1);
    this.list.setAttribute("tabindex", "-1");
    this.list.focus({ preventScroll: true });
  }
}

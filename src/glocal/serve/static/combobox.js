/** A field that searches all labels on the server: by keyboard, names and alternative names. */

import { isAborted, request } from "/static/api.js";
import { announce, count, debounce, el, name, plural, visible } from "/static/dom.js";

const SHOWN = 12;
let numbers = 0;

export class LabelSearch {
  /**
   * @param {{label: string, onChoose: (label: object) => void}} options The label of the field, and
   *     what to do with a label that was chosen.
   */
  constructor({ label, onChoose }) {
    const id = `search-${(numbers += 1)}`;
    this.onChoose = onChoose;
    this.found = [];
    this.active = -1;
    this.list = el("ul", { id: `${id}-list`, role: "listbox", class: "options", "aria-label": "Labels found", hidden: true });
    this.note = el("p", { class: "search-note quiet", hidden: true });
    this.field = el("input", {
      id,
      type: "text",
      role: "combobox",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "Search all labels",
      "aria-autocomplete": "list",
      "aria-expanded": "false",
      "aria-controls": `${id}-list`,
      on: {
        input: () => this.later(),
        keydown: (event) => this.press(event),
        focus: () => this.found.length && this.field.value && this.open(true),
        blur: () => setTimeout(() => this.open(false), 150),
      },
    });
    this.popup = el("div", { class: "popup", hidden: true }, this.list, this.note);
    this.root = el("div", { class: "search" }, el("label", { for: id, text: label }), this.field, this.popup);
    this.later = debounce(180, () => this.search());
  }

  useModel(model) {
    this.model = model;
    this.clear();
  }

  clear() {
    this.field.value = "";
    this.found = [];
    this.open(false);
  }

  async search() {
    const query = this.field.value.trim();
    this.cancel?.abort();
    if (!query || !this.model) return this.open(false);
    this.cancel = new AbortController();
    const parameters = new URLSearchParams({ model: this.model.id, q: query, size: SHOWN });
    try {
      const page = await request(`/v1/labels?${parameters}`, { signal: this.cancel.signal });
      this.show(page, query);
    } catch (error) {
      if (isAborted(error)) return undefined;
      this.found = [];
      this.list.replaceChildren();
      this.note.textContent = error.message;
      this.open(true);
    }
    return undefined;
  }

  show(page, query) {
    this.found = page.labels;
    this.active = -1;
    this.list.replaceChildren(...page.labels.map((label, place) => this.option(label, place, query)));
    const more = page.total > page.labels.length ? `${count(page.labels.length)} of ${count(page.total)} labels; type more to narrow the search` : "";
    this.note.textContent = page.total ? more : `No label matches “${visible(query)}”.`;
    announce(page.total ? `${plural(page.total, "label")} found` : this.note.textContent);
    this.open(true);
    if (page.labels.length) this.move(0);
    this.popup.scrollIntoView({ block: "nearest" });
  }

  option(label, place, query) {
    const other = label.alternatives.find((known) => known.toLowerCase().includes(query.toLowerCase()));
    const direct = label.name.toLowerCase().includes(query.toLowerCase());
    return el(
      "li",
      {
        id: `${this.list.id}-${place}`,
        role: "option",
        "aria-selected": "false",
        on: { mousedown: (event) => event.preventDefault(), click: () => this.choose(place) },
      },
      name(label.name),
      other && !direct ? el("span", { class: "quiet" }, "also: ", name(other)) : null,
      label.id === label.name ? null : el("code", {}, name(label.id)),
    );
  }

  open(shown) {
    this.popup.hidden = !shown;
    this.list.hidden = !this.found.length;
    this.note.hidden = !this.note.textContent;
    this.field.setAttribute("aria-expanded", String(shown && this.found.length > 0));
    if (!shown) this.field.removeAttribute("aria-activedescendant");
  }

  move(place) {
    this.active = (place + this.found.length) % this.found.length;
    [...this.list.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === this.active)));
    this.field.setAttribute("aria-activedescendant", `${this.list.id}-${this.active}`);
    this.list.children[this.active].scrollIntoView({ block: "nearest" });
  }

  press(event) {
    const isOpen = !this.popup.hidden && this.found.length > 0;
    if (event.key === "Escape" && isOpen) this.open(false);
    else if (event.key === "ArrowDown" && isOpen) this.move(this.active + 1);
    else if (event.key === "ArrowUp" && isOpen) this.move(this.active - 1);
    else if (event.key === "Enter" && isOpen && this.active >= 0) this.choose(this.active);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  choose(place) {
    const label = this.found[place];
    this.clear();
    this.onChoose(label);
    this.field.focus();
  }
}

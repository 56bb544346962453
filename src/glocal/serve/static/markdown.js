/** Markdown of model cards as elements: headings, lists, tables, code; links and HTML stay text. */

import { el, visible } from "/static/dom.js";

/** Return the elements of a Markdown text; headings start at the given level. */
export function markdown(source, level = 4) {
  const lines = source.replace(/\r/g, "").split("\n");
  const found = [];
  let place = 0;
  const takeWhile = (test) => {
    const start = place;
    while (place < lines.length && test(lines[place])) place += 1;
    return lines.slice(start, place);
  };
  while (place < lines.length) {
    const line = lines[place];
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    if (!line.trim()) place += 1;
    else if (heading) {
      found.push(el(`h${Math.min(6, level + heading[1].length - 1)}`, {}, ...inline(heading[2])));
      place += 1;
    } else if (/^```/.test(line)) {
      place += 1;
      found.push(el("pre", { tabindex: "0" }, el("code", { text: takeWhile((next) => !/^```/.test(next)).map(visible).join("\n") })));
      place += 1;
    } else if (/^\s*\|/.test(line)) found.push(table(takeWhile((next) => /^\s*\|/.test(next))));
    else if (/^\s*[-*]\s+/.test(line)) {
      const items = takeWhile((next) => /^\s*[-*]\s+/.test(next));
      found.push(el("ul", {}, ...items.map((item) => el("li", {}, ...inline(item.replace(/^\s*[-*]\s+/, ""))))));
    } else {
      const first = place;
      const text = takeWhile((next) => next.trim() && (place === first || !/^(#{1,6}\s|```|\s*\||\s*[-*]\s)/.test(next)));
      found.push(el("p", {}, ...inline(text.join(" "))));
    }
  }
  return found;
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
  const [head, rule, ...body] = lines;
  const rows = rule && /^[\s|:-]+$/.test(rule) ? body : [rule, ...body].filter(Boolean);
  const row = (line, kind, scope) => el("tr", {}, ...cells(line).map((cell) => el(kind, scope ? { scope } : {}, ...inline(cell))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" },
    el("table", {}, el("thead", {}, row(head, "th", "col")), el("tbody", {}, ...rows.map((line) => row(line, "td")))));
}

function inline(text) {
  return visible(text).split(/(`[^`]+`|\*\*[^*]+\*\*)/).filter(Boolean).map((part) => {
    if (/^`[^`]+`$/.test(part)) return el("code", { text: part.slice(1, -1) });
    if (/^\*\*[^*]+\*\*$/.test(part)) return el("strong", { text: part.slice(2, -2) });
    return part;
  });
}

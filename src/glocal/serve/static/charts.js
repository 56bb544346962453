/** Charts as SVG elements, each with a table of its numbers beside it. */

import { count, el, percent } from "/static/dom.js";

const SPACE = "http://www.w3.org/2000/svg";

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const label = (x, y, text, anchor = "middle") => svg("text", { x, y, "text-anchor": anchor, class: "axis" }, text);

/** Return a figure: a chart with its heading, and its numbers as a table. */
export function figure(title, caption, drawing, heads, rows) {
  return el("figure", { class: "chart" },
    el("figcaption", {}, el("strong", { text: title }), el("span", { class: "quiet", text: caption })),
    drawing,
    el("details", {}, el("summary", { text: "Numbers" }),
      el("table", {}, el("caption", { class: "hidden-text", text: title }), el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col", text: head })))),
        el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", { text: cell }))))))));
}

/**
 * Draw a reliability diagram: for each bin of probabilities, the share that is right.
 * @param {{counts: number[], confidence: number[], accuracy: number[], ECE: number}} calibration
 */
export function reliability(calibration) {
  const [size, left, top] = [240, 44, 10];
  const x = (value) => left + size * value;
  const y = (value) => top + size * (1 - value);
  const chart = svg("svg", { viewBox: `0 0 ${left + size + 12} ${top + size + 44}`, role: "img", "aria-label": "Reliability diagram: how often tags of a given probability are right" });
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    chart.append(
      svg("line", { x1: x(0), x2: x(1), y1: y(tick), y2: y(tick), class: "grid" }),
      label(left - 8, y(tick) + 4, `${100 * tick}`, "end"), label(x(tick), top + size + 18, `${100 * tick}`));
  }
  chart.append(svg("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: "ideal" }));
  const most = Math.max(...calibration.counts, 1);
  const filled = calibration.counts.map((n, place) => ({ n, p: calibration.confidence[place], right: calibration.accuracy[place] })).filter(({ n }) => n);
  chart.append(svg("polyline", { points: filled.map(({ p, right }) => `${x(p)},${y(right)}`).join(" "), class: "line" }));
  for (const { n, p, right } of filled) {
    const dot = svg("circle", { cx: x(p), cy: y(right), r: 3 + 6 * Math.sqrt(n / most), class: "dot" });
    dot.append(svg("title", {}, `${count(n)} tags of about ${percent(p, 1)}: ${percent(right, 1)} right`));
    chart.append(dot);
  }
  chart.append(label(x(0.5), top + size + 38, "probability in %"));
  const rows = filled.map(({ n, p, right }) => [percent(p, 1), percent(right, 1), count(n)]);
  return figure("Can the probabilities be trusted?", `On dev, calibration error ${percent(calibration.ECE, 1)}. Dots on the diagonal are exact.`, chart, ["Mean probability", "Share that is right", "Tags"], rows);
}

const BANDS = { few: "rare labels", medium: "medium", many: "frequent labels" };

/**
 * Draw macro scores by training frequency of the labels.
 * @param {object} macro By band, of labels with gold.
 */
export function bands(macro) {
  const names = Object.keys(BANDS).filter((band) => macro[band]?.with_gold?.n_labels);
  const scores = [["precision", "P"], ["recall", "R"], ["f1", "F1"]];
  const [width, height, left, top] = [260, 200, 40, 10];
  const y = (value) => top + height * (1 - value);
  const chart = svg("svg", { viewBox: `0 0 ${left + width + 8} ${top + height + 66}`, role: "img", "aria-label": "Precision, recall and F1 by how frequent a label is in the training texts" });
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) chart.append(svg("line", { x1: left, x2: left + width, y1: y(tick), y2: y(tick), class: "grid" }), label(left - 8, y(tick) + 4, `${100 * tick}`, "end"));
  const step = width / Math.max(1, names.length);
  names.forEach((band, place) => {
    const wide = Math.min(22, step / 4);
    scores.forEach(([score], column) => {
      const value = macro[band].with_gold[score] ?? 0;
      const bar = svg("rect", { x: left + step * (place + 0.5) + (column - 1.5) * wide, y: y(value), width: wide - 2, height: Math.max(1, height * value), class: `band-${score}` });
      bar.append(svg("title", {}, `${BANDS[band]}: ${score} ${percent(value, 1)}`));
      chart.append(bar);
    });
    chart.append(label(left + step * (place + 0.5), top + height + 18, BANDS[band]), label(left + step * (place + 0.5), top + height + 34, count(macro[band].with_gold.n_labels)));
  });
  scores.forEach(([score, short], place) => {
    const at = left + 40 + 70 * place;
    chart.append(svg("rect", { x: at, y: top + height + 46, width: 12, height: 12, class: `band-${score}` }), label(at + 18, top + height + 57, short, "start"));
  });
  const rows = names.map((band) => [BANDS[band], count(macro[band].with_gold.n_labels), ...scores.map(([score]) => percent(macro[band].with_gold[score] ?? 0, 1))]);
  return figure("Does it know rare labels?", "Macro scores of the five best tags on dev, by training texts of a label.", chart, ["Band", "Labels", "Precision", "Recall", "F1"], rows);
}

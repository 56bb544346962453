/** Elements without HTML: whatever comes from texts, labels or models is only ever text. */

/**
 * Build an element.
 * @param {string} tag Name of the element.
 * @param {object} [options] `class`, `text`, `on` (listeners by event), `data`, or any attribute.
 * @param {...(Node|string|null|undefined|false)} children Elements and texts; empty ones are skipped.
 */
export function el(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, call] of Object.entries(value)) node.addEventListener(event, call);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// Characters that could reorder, hide or break a line of text.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** Return a text in which control characters are visible. */
export function visible(text) {
  return String(text).replace(CONTROLS, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
}

/** Return an element that shows a name as it is, isolated from the text around it. */
export function name(text, options = {}) {
  return el("bdi", { ...options, text: visible(text) });
}

/** Say something to users of a screen reader. */
export function announce(text) {
  document.getElementById("live").textContent = text;
}

/** Return a number as a percentage. */
export function percent(value, digits = 0) {
  const shown = 100 * value;
  if (digits === 0 && shown > 0 && shown < 1) return "< 1 %";
  if (digits === 0 && shown < 100 && shown > 99) return "> 99 %";
  return `${shown.toFixed(digits)} %`;
}

/** Return a whole number with separators. */
export function count(value) {
  return Number(value).toLocaleString("en");
}

/** Return `1 tag`, `2 tags`. */
export function plural(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** Call a function some time after its last call. */
export function debounce(milliseconds, call) {
  let timer;
  const later = (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...args), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

/** Let the user save a text as a file. */
export function download(filename, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: address, download: filename });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Make an element accept dropped files. */
export function acceptDrops(node, take) {
  let inside = 0;
  const mark = (change) => {
    inside = Math.max(0, inside + change);
    node.classList.toggle("dropping", inside > 0);
  };
  const hasFiles = (event) => [...event.dataTransfer.types].includes("Files");
  node.addEventListener("dragenter", (event) => hasFiles(event) && (event.preventDefault(), mark(1)));
  node.addEventListener("dragleave", (event) => hasFiles(event) && mark(-1));
  node.addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  node.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    mark(-inside);
    take(event.dataTransfer.files[0]);
  });
}

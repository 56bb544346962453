/** Places in texts, and texts from files. */

/**
 * Return the UTF-16 place of code points. The server counts code points, JavaScript UTF-16 units.
 * @param {string} text The text.
 * @param {number[]} places Places in code points, in any order.
 * @returns {Map<number, number>} The place in UTF-16 units of each.
 */
export function utf16Places(text, places) {
  const wanted = [...new Set(places)].sort((a, b) => a - b);
  const found = new Map();
  let unit = 0;
  let point = 0;
  for (const place of wanted) {
    while (point < place && unit < text.length) {
      unit += text.codePointAt(unit) > 0xffff ? 2 : 1;
      point += 1;
    }
    found.set(place, unit);
  }
  return found;
}

/** Return the text without halves of UTF-16 pairs, which no server accepts. */
export function wellFormed(text) {
  return text.toWellFormed ? text.toWellFormed() : text.replace(/[\ud800-\udfff]/gu, "\ufffd");
}

const LARGEST = 20_000_000;

/** Read the text of a file; of an HTML file, what a reader would see of it. */
export async function readTextFile(file) {
  if (file.size > LARGEST) throw new Error(`${file.name} is larger than 20 MB. Use the Batch tab or the command line.`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (bytes.includes(0)) throw new Error(`${file.name} is not a text file. Give a .txt or .html file.`);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    text = new TextDecoder("windows-1252").decode(bytes);
  }
  return /\.html?$/i.test(file.name) || file.type === "text/html" ? htmlText(text) : text.replace(/\r\n?/g, "\n");
}

const BLOCKS = "p,div,section,article,header,footer,h1,h2,h3,h4,h5,h6,li,tr,blockquote,pre,br,td,th,dt,dd";

/** Return the readable text of an HTML document; nothing in it is run or loaded. */
export function htmlText(source) {
  // The page's policy would refuse styles, with a complaint for each.
  const plain = source.replace(/<style\b[\s\S]*?(<\/style\s*>|$)/gi, "").replace(/\sstyle\s*=\s*("[^"]*"|'[^']*')/gi, "");
  const page = new DOMParser().parseFromString(plain, "text/html");
  for (const node of page.querySelectorAll("script,style,template,noscript,svg,head > *:not(title)")) node.remove();
  for (const node of page.querySelectorAll(BLOCKS)) node.append("\n");
  const title = page.title.trim();
  const body = (page.body?.textContent ?? "").replace(/[^\S\n]+/g, " ").replace(/ ?\n ?/g, "\n").replace(/\n{3,}/g, "\n\n").trim();
  return title && !body.startsWith(title) ? `${title}\n${body}` : body;
}

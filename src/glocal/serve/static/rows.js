/** Rows of JSONL, CSV and TSV files, with the problems of those that cannot be used. */

const TEXT_NAMES = ["text", "content", "body", "abstract", "title", "description"];

/**
 * Read the rows of a file.
 * @param {string} filename Its name, which tells the format.
 * @param {string} content Its content.
 * @returns {{columns: string[], column: string, rows: {line: number, values: object, problem?: string}[]}}
 *     The columns, the one that seems to hold the text, and the rows.
 */
export function readRows(filename, content) {
  const body = content.replace(/^\ufeff/, "");
  const isJson = /\.(jsonl|ndjson|json)$/i.test(filename) || /^\s*\{/.test(body);
  const rows = isJson ? jsonRows(body) : tableRows(body, /\.tsv$/i.test(filename) || (!body.split("\n", 1)[0].includes(",") && body.includes("\t")) ? "\t" : ",");
  if (!rows.length) throw new Error(`${filename} has no rows.`);
  const columns = [...new Set(rows.slice(0, 200).flatMap((row) => Object.keys(row.values)))];
  const column = TEXT_NAMES.find((name) => columns.includes(name)) ?? longestColumn(rows, columns);
  if (column === undefined) throw new Error(`${filename} has no column with text. Give JSONL with a field “text”, or CSV with a header.`);
  return { columns, column, rows };
}

/** Return the text of a row, or the reason why there is none. */
export function textOf(row, column) {
  if (row.problem) return { problem: row.problem };
  const value = row.values[column];
  if (value === undefined || value === null) return { problem: `there is no “${column}”` };
  if (typeof value !== "string") return { problem: `“${column}” is not a text` };
  if (!value.trim()) return { problem: "the text is empty" };
  return { text: value };
}

function longestColumn(rows, columns) {
  const size = (name) => rows.slice(0, 50).reduce((total, row) => total + (typeof row.values[name] === "string" ? row.values[name].length : 0), 0);
  const best = columns.map((name) => [size(name), name]).sort((a, b) => b[0] - a[0])[0];
  return best && best[0] > 0 ? best[1] : undefined;
}

function jsonRows(body) {
  const rows = [];
  body.split("\n").forEach((line, place) => {
    if (!line.trim()) return;
    const row = { line: place + 1, values: {} };
    try {
      const value = JSON.parse(line);
      if (value && typeof value === "object" && !Array.isArray(value)) row.values = value;
      else row.problem = "it is not a JSON object";
    } catch {
      row.problem = "it is not valid JSON";
    }
    rows.push(row);
  });
  return rows;
}

function tableRows(body, separator) {
  const [head, ...records] = records_(body, separator);
  if (!head) return [];
  const names = head.cells.map((cell, place) => cell.trim() || `column ${place + 1}`);
  return records.map(({ cells, line }) => {
    const values = Object.fromEntries(names.map((name, place) => [name, cells[place]]));
    const problem = cells.length === names.length ? undefined : `it has ${cells.length} columns, not ${names.length}`;
    return { line, values, problem };
  });
}

/** Split a table into records, as RFC 4180 says: quotes may hold separators and line breaks. */
function records_(body, separator) {
  const records = [];
  let cells = [];
  let cell = "";
  let quoted = false;
  let line = 1;
  let start = 1;
  const finish = () => {
    cells.push(cell);
    if (cells.length > 1 || cells[0].trim()) records.push({ cells, line: start });
    cells = [];
    cell = "";
  };
  for (let place = 0; place < body.length; place += 1) {
    const sign = body[place];
    if (sign === "\n") line += 1;
    if (quoted) {
      if (sign === '"' && body[place + 1] === '"') {
        cell += '"';
        place += 1;
      } else if (sign === '"') quoted = false;
      else cell += sign;
    } else if (sign === '"' && cell === "") quoted = true;
    else if (sign === separator) {
      cells.push(cell);
      cell = "";
    } else if (sign === "\n") {
      finish();
      start = line;
    } else if (sign !== "\r") cell += sign;
  }
  if (cell || cells.length) finish();
  return records;
}

/** Return one cell of a CSV file; a formula of a spreadsheet becomes text. */
export function csvCell(value) {
  const text = String(value ?? "");
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

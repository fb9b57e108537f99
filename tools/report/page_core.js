/* Words, numbers, elements and tables of the report. Names of models and files are hostile text:
 * they enter the page through text nodes and attributes only. */
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

/* ---- elements ------------------------------------------------------------------------------- */

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(2)) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}
const el = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

/* ---- numbers -------------------------------------------------------------------------------- */

const NOT_RECORDED = "not recorded";
const known = (x) => x !== null && x !== undefined && !Number.isNaN(x);
const NO_BREAK = "\u00a0";

function fixed(x, digits) {
  return x
    .toLocaleString("en-GB", { minimumFractionDigits: digits, maximumFractionDigits: digits })
    .replace("-", "\u2212");
}
/* Of 100: small shares keep two digits. */
const of100 = (x) => fixed(100 * x, x !== 0 && Math.abs(x) < 0.00995 ? 2 : 1);
/* For axes: no more digits than it needs, up to three. */
const plain = (x) => x.toLocaleString("en-GB", { maximumFractionDigits: 3 }).replace("-", "\u2212");
/* Formatters take null for what is not known. */
const F = {
  count: (x) => (known(x) ? fixed(x, 0) : NOT_RECORDED),
  decimal: (x) =>
    known(x) ? fixed(x, Math.abs(x) >= 100 ? 0 : Math.abs(x) >= 10 ? 1 : 2) : NOT_RECORDED,
  percent: (x) =>
    known(x)
      ? fixed(100 * x, x !== 0 && Math.abs(x) < 0.0995 ? 2 : 1) + NO_BREAK + "%"
      : NOT_RECORDED,
  points: (x) =>
    known(x) ? (x > 0 ? "+" : "") + fixed(100 * x, 1) + NO_BREAK + "points" : NOT_RECORDED,
  ms: (x) => {
    if (!known(x)) return NOT_RECORDED;
    if (Math.abs(x) >= 1e5) return fixed(x / 1000, 0) + NO_BREAK + "s";
    if (Math.abs(x) >= 1e4) return fixed(x / 1000, 1) + NO_BREAK + "s";
    return (
      fixed(x, Math.abs(x) >= 100 ? 0 : Math.abs(x) >= 10 ? 1 : Math.abs(x) >= 0.1 ? 2 : 3) +
      NO_BREAK +
      "ms"
    );
  },
  bytes: (x) => {
    if (!known(x)) return NOT_RECORDED;
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let i = 0;
    while (Math.abs(x) >= 1024 && i < units.length - 1) {
      x /= 1024;
      i++;
    }
    const digits = i === 0 || Math.abs(x) >= 100 ? 0 : Math.abs(x) >= 10 ? 1 : 2;
    return fixed(x, digits) + NO_BREAK + units[i];
  },
  rate: (x) => (known(x) ? F.bytes(x) + "/s" : NOT_RECORDED),
  speed: (x) => (known(x) ? F.decimal(x) + NO_BREAK + "tok/s" : NOT_RECORDED),
  text: (x) => (known(x) && x !== "" ? String(x) : NOT_RECORDED),
};
/* "12 slots (3.4 % of the experts, 56 MiB)". */
const slotsText = (slots, share, bytes) =>
  `${times(slots, "slot")} (${F.percent(share)} of the experts` +
  (known(bytes) ? `, ${F.bytes(bytes)})` : ")");
const times = (n, one, many) => F.count(n) + NO_BREAK + (n === 1 ? one : many || one + "s");

/* Round steps of an axis: at most about `wanted` of them between low and high. */
function ticks(low, high, wanted) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
    found.push(Math.abs(i * step) < step * 1e-9 ? 0 : i * step);
  return found;
}
/* Labels of axes. */
const axis = {
  percent: (v) => plain(100 * v) + NO_BREAK + "%",
  bytes: (v) => {
    const text = F.bytes(v),
      [number, unit] = text.split(NO_BREAK);
    return (number.includes(".") ? number.replace(/\.?0+$/, "") : number) + NO_BREAK + unit;
  },
};
/* Bytes have steps of powers of two. */
function byteTicks(low, high, wanted) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(1, high)) / 10));
  return ticks(low / unit, high / unit, wanted).map((x) => x * unit);
}

/* ---- the data ------------------------------------------------------------------------------- */

/* A table of the data as objects, one a row; none: []. */
function rowsOf(table) {
  if (!table) return [];
  return table.rows.map((row) =>
    Object.fromEntries(table.columns.map((name, i) => [name, row[i]])),
  );
}
const sum = (rows, key) => rows.reduce((total, row) => total + (row[key] || 0), 0);
const greatest = (list, least) => list.reduce((a, b) => (known(b) && b > a ? b : a), least);

/* ---- tables --------------------------------------------------------------------------------- */

/* columns: [{name, of: row => value, as: formatter, head: true for the row's own name}]. */
function table(columns, rows, caption) {
  const cells = (row) =>
    columns.map((column) => {
      const value = column.of(row);
      const format = column.as || F.text;
      const text = known(value) ? format(value) : column.none || NOT_RECORDED;
      const kind = [format === F.text ? "" : "number", known(value) ? "" : "unknown"]
        .join(" ")
        .trim();
      return el(
        column.head ? "th" : "td",
        { class: kind || null, scope: column.head ? "row" : null },
        text,
      );
    });
  return el(
    "table",
    {},
    el("caption", { class: "visually-hidden" }, caption),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        columns.map((column) =>
          el(
            "th",
            { scope: "col", class: column.as && column.as !== F.text ? "number" : null },
            column.name,
          ),
        ),
      ),
    ),
    el(
      "tbody",
      {},
      rows.map((row) => el("tr", {}, cells(row))),
    ),
  );
}

/* Wide tables scroll by themselves, also by keyboard. kind: "tall", or "whole" in height. */
function scrolling(node, label, kind) {
  return el(
    "div",
    { class: "scroll " + (kind || ""), tabindex: "0", role: "region", "aria-label": label },
    node,
  );
}

/* The numbers of a chart, made when they are first looked at: some have thousands of cells. */
function numbers(title, make) {
  const box = el("details", { class: "numbers" }, el("summary", {}, "Numbers"));
  box.addEventListener("toggle", () => {
    if (box.open && box.children.length === 1) box.append(scrolling(make(), title + ": numbers"));
  });
  return box;
}

/* ---- speaking ------------------------------------------------------------------------------- */

let speaking = 0;
/* Says what the cursor of a chart is on, once it rests there. */
function say(text) {
  clearTimeout(speaking);
  speaking = setTimeout(() => {
    document.getElementById("live").textContent = text;
  }, 120);
}

/* ---- frames of charts ----------------------------------------------------------------------- */

const redraws = new Set();
/* Calls draw(width) once the box has a width, when that has changed, and when colours have. Returns
 * a function that draws again. */
function responsive(box, draw) {
  let last = 0;
  const again = () => {
    last = Math.floor(box.clientWidth);
    if (last > 0) draw(last);
    else if (!box.isConnected) redraws.delete(again);
  };
  /* A frame later: what is drawn changes heights, which observers of the same frame would miss. */
  new ResizeObserver(() => {
    requestAnimationFrame(() => {
      if (Math.floor(box.clientWidth) !== last) again();
    });
  }).observe(box);
  redraws.add(again);
  return again;
}

/* A figure: heading, a sentence, legend, the plot, its numbers. */
function figure(title, words, parts) {
  return el(
    "figure",
    { class: "chart" },
    el("figcaption", {}, el("h3", {}, title), words ? el("p", {}, words) : null),
    parts,
  );
}

const absent = (words) => el("p", { class: "absent" }, words);

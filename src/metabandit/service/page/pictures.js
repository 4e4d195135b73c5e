// Pictures that are tables: every row has its mark on a common axis, and the numbers beside it.
//
// Positions are percentages, so that pictures fit any width without being drawn again.

import { el, svg } from "./dom.js";
import { fixed } from "./numbers.js";

const TICKS = 5;

/** An axis over all values, with room at both ends. */
export function scaleOf(values, { zero = false, show } = {}) {
  const finite = values.filter(Number.isFinite).concat(zero ? [0] : []);
  let low = Math.min(...finite);
  let high = Math.max(...finite);
  if (low === 0 && high === 0) high = 1;
  if (!(high > low)) [low, high] = [low - 0.5 * (Math.abs(low) || 1), low + 0.5 * (Math.abs(low) || 1)];
  const step = niceStep((high - low) / TICKS);
  const room = 0.05 * (high - low);
  [low, high] = [zero && low === 0 ? 0 : low - room, high + room];
  const ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) ticks.push(k * step);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return { ticks, step, show: show ?? ((x) => fixed(x, decimals)), at: (x) => `${((100 * (x - low)) / (high - low)).toFixed(3)}%` };
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= 0.999 * rough);
}

const line = (x1, x2, y1, y2, kind) => svg("line", { x1, x2, y1, y2, class: kind });

/** A spread and its middle; shape: dot, ring, square or diamond. */
export function whisker(scale, { low, high, mean, shape = "dot" }, tone) {
  const bar = Number.isFinite(low) && line(scale.at(low), scale.at(high), "50%", "50%", "spread");
  return svg("g", { class: tone }, bar, mark(shape, scale.at(mean)));
}

function mark(shape, x) {
  if (shape === "dot" || shape === "ring") return svg("circle", { cx: x, cy: "50%", r: 4.5, class: shape });
  const d = shape === "square" ? "M-4.5-4.5h9v9h-9z" : "M0-5.5 5.5 0 0 5.5-5.5 0z";
  return svg("svg", { x, y: "50%", overflow: "visible" }, svg("path", { d, class: shape }));
}

/** A bar from zero. */
export function bar(scale, value, tone) {
  const [from, to] = [Math.min(0, value), Math.max(0, value)].map((x) => Number.parseFloat(scale.at(x)));
  const place = { x: `${from}%`, width: `${(to - from).toFixed(3)}%`, y: "25%", height: "50%", rx: 2 };
  return svg("g", { class: tone }, svg("rect", { ...place, class: "bar" }));
}

/** The cell with a row's marks; the numbers are in the cells beside it. */
export function plot(scale, ...marks) {
  const grid = scale.ticks.map((x) => line(scale.at(x), scale.at(x), 0, "100%", Math.abs(x) < 1e-9 * scale.step ? "zero" : "grid"));
  return el("td", { class: "plot" }, svg("svg", { "aria-hidden": "true" }, grid, marks));
}

function axisRow(scale, title, cells) {
  const odd = (x) => scale.ticks.length > 4 && Math.round(x / scale.step) % 2 !== 0; // not shown where it is narrow
  const ticks = scale.ticks.map((x) => svg("text", { x: scale.at(x), y: 14, class: odd(x) ? "odd" : null }, scale.show(x)));
  const drawing = svg("svg", { "aria-hidden": "true" }, ticks, svg("text", { x: "50%", y: 31, class: "title" }, title));
  const rest = cells > 0 && el("td", { colspan: cells, class: "rest" });
  return el("tr", { class: "axis", "aria-hidden": "true" }, el("td"), el("td", { class: "plot" }, el("div", { class: "room" }, drawing)), rest);
}

/** A table with a picture in its second column.
 *
 * heads: titles of the first column, the picture and the numbers.
 * groups: [{ title, rows: [{ head, plot, cells }] }], the title above its rows if there is one. */
export function pictureTable({ caption, heads, groups, scale, axis, kind }) {
  const [first, picture, ...numbers] = heads;
  const head = el("tr", {},
    el("th", { scope: "col" }, first),
    el("th", { scope: "col", class: "plot" }, el("span", { class: "unseen" }, picture)),
    numbers.map((title) => el("th", { scope: "col", class: "number" }, title)));
  const bodies = groups.map(({ title, rows }) => el("tbody", {},
    title && el("tr", { class: "group" }, el("th", { scope: "rowgroup", colspan: heads.length }, title)),
    rows.map((row) => el("tr", {},
      el("th", { scope: "row" }, el("span", { class: "label" }, row.head)), row.plot, row.cells.map((cell) => el("td", { class: "number" }, cell))))));
  return el("table", { class: `picture ${kind ?? ""}`.trim() },
    el("caption", {}, caption), el("thead", {}, head), bodies,
    el("tfoot", {}, axisRow(scale, axis, numbers.length)));
}

const shown = new Set();
const FIRST = 10;

/** The first few rows; the rest when its button was pressed. */
export const firstOf = (rows, name) => (shown.has(name) ? rows : rows.slice(0, FIRST));

/** The button that shows the rest, if there is one. */
export function moreButton(rows, name, noun) {
  if (rows.length <= FIRST) return null;
  const open = shown.has(name);
  const text = open ? `Show the first ${FIRST}` : `Show all ${rows.length} ${noun}`;
  return el("p", {}, el("button", { type: "button", "data-more": name, "aria-expanded": String(open) }, text));
}

/** Called when such a button was pressed. */
export function toggleMore(name) {
  if (!shown.delete(name)) shown.add(name);
}

// Decisions and rewards over time: three small charts with one cursor, and the table behind them.

import { data, el } from "./dom.js";
import { clockOf, count, dayOf, decimalsOf, duration, fixed, momentOf, percent, secondsOf } from "./numbers.js";

const [FEWEST, MOST] = [12, 48]; // intervals that are drawn
const HEIGHT = 190;
const NICE = [1, 2, 3, 6, 12, 24, 48, 96, 168].map((hours) => 3600 * hours);
const WIDTHS = [60, 120, 300, 600, 900, 1800, ...NICE];

/** The intervals of a report joined into few enough, without gaps, and `least` of them even if the first are empty:
 * {width, at, decisions, rewards, total}. */
export function binned(report, least = 1) {
  const points = report.timeline;
  if (!points.length) return null;
  const span = points.at(-1).at + report.seconds - points[0].at;
  const width = widthFor(report.seconds, span);
  const end = Math.floor(points.at(-1).at / width) * width + width;
  const start = Math.min(Math.floor(points[0].at / width) * width, end - least * width);
  const n = Math.round((end - start) / width);
  const at = Array.from({ length: n }, (_, k) => start + k * width);
  const bins = { width, at, decisions: at.map(() => report.arms.map(() => 0)), rewards: at.map(() => 0), total: at.map(() => 0) };
  for (const point of points) {
    const k = Math.floor((point.at - start) / width);
    point.decisions.forEach((made, arm) => (bins.decisions[k][arm] += made));
    bins.rewards[k] += point.rewards;
    bins.total[k] += point.total;
  }
  return bins;
}

function widthFor(least, span) {
  const nice = WIDTHS.find((width) => width >= span / MOST && width % least === 0);
  if (nice) return nice;
  let width = least;
  while (width < span / MOST) width *= 2;
  return width;
}

const sum = (values) => values.reduce((a, b) => a + b, 0);
const meansOf = (bins) => bins.rewards.map((n, k) => (n ? bins.total[k] / n : null));

/** The section, with places for the charts; drawn by drawTimeline once it is on the page. */
export function timelineSection(report) {
  const bins = binned(report);
  const heading = el("h2", { id: "time-title" }, "Over time");
  if (!bins) return el("section", { id: "time", "aria-labelledby": "time-title" }, heading, el("p", { class: "note" }, "Nothing has been decided yet."));
  const place = (name, title) => el("figure", {},
    el("figcaption", {}, title), el("div", { class: "chart", id: `chart-${name}`, "data-own": report.name }));
  return el("section", { id: "time", "aria-labelledby": "time-title" }, heading,
    el("p", { class: "note" }, `In steps of ${duration(bins.width)}; the last may still be filling.`),
    el("div", { class: "charts" },
      place("traffic", "Decisions and rewards"), place("mean", "Mean reward"), place("share", "Share of decisions by arm")),
    el("details", {}, el("summary", {}, "These charts as a table"), timelineTable(report, bins)));
}

function timelineTable(report, bins) {
  const means = meansOf(bins);
  const decimals = meanDecimals(means);
  const head = ["Start", ...report.arms.map((arm) => arm.arm), "Decisions", "Rewards", "Mean reward"];
  const rows = bins.at.map((at, k) => [
    ...bins.decisions[k].map(count), count(sum(bins.decisions[k])), count(bins.rewards[k]),
    means[k] === null ? "–" : data(means[k], fixed(means[k], decimals)),
  ]);
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of decisions and rewards over time" },
    el("table", {},
      el("caption", { class: "unseen" }, `Decisions by arm and rewards, in steps of ${duration(bins.width)}`),
      el("thead", {}, el("tr", {}, head.map((title, j) => el("th", { scope: "col", class: j ? "number" : "" }, title)))),
      el("tbody", {}, rows.map((row, k) => el("tr", {}, el("th", { scope: "row" }, momentOf(bins.at[k])),
        row.map((cell) => el("td", { class: "number" }, cell)))))));
}

const meanDecimals = (means) => {
  const finite = means.filter((mean) => mean !== null);
  return Math.min(6, decimalsOf([Math.max(...finite) - Math.min(...finite) || 0.1 * Math.abs(finite[0])]));
};

// -- drawing --------------------------------------------------------------------------------------------------

const drawn = new Map(); // the place of a chart -> { chart, kind, held: the intervals }
const widths = new ResizeObserver((entries) => {
  for (const { target } of entries) drawn.get(target)?.chart.setSize({ width: target.clientWidth, height: HEIGHT });
});

/** Draw the charts into their places, or bring them up to date. */
export function drawTimeline(report, tones) {
  for (const [place, { chart }] of drawn) {
    if (!place.isConnected) {
      widths.unobserve(place);
      chart.destroy();
      drawn.delete(place);
    }
  }
  const bins = binned(report, FEWEST);
  if (!bins) return;
  const x = bins.at.map((at) => at + 0.5 * bins.width);
  draw("traffic", traffic(bins), x, bins);
  draw("mean", means(bins), x, bins);
  draw("share", shares(report, bins, tones), x, bins);
}

/** Everything again, in the colours of now. */
export function forgetDrawings() {
  for (const [place, { chart }] of drawn) {
    widths.unobserve(place);
    chart.destroy();
  }
  drawn.clear();
}

function draw(name, { series, values, range, label, unit = axisNumber }, x, bins) {
  const place = document.getElementById(`chart-${name}`);
  const kind = JSON.stringify([series.map((one) => [one.label, one.fill, one.stroke]), bins.width]);
  const old = drawn.get(place);
  if (old?.kind === kind) {
    old.held.now = bins;
    old.chart.setData([x, ...values]);
    old.chart.ctx.canvas.setAttribute("aria-label", label);
    return;
  }
  old?.chart.destroy();
  const held = { now: bins };
  const chart = new uPlot(options(place, series, range, unit, held), [x, ...values], place);
  chart.ctx.canvas.setAttribute("role", "img");
  chart.ctx.canvas.setAttribute("aria-label", label);
  place.querySelector(".u-legend").setAttribute("aria-hidden", "true"); // a table for the eye; the others have captions
  drawn.set(place, { chart, kind, held });
  widths.observe(place);
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function options(place, series, range, unit, held) {
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const axis = { stroke: colour("muted"), font, ticks: { show: false }, grid: { stroke: colour("line"), width: 1 } };
  const moment = (u, value) => (value === null ? "" : momentOf(value - 0.5 * held.now.width));
  return {
    width: place.clientWidth, height: HEIGHT, padding: [8, 8, 0, 0],
    cursor: { y: false, sync: { key: "time" }, drag: { x: false, y: false }, points: { show: false } },
    scales: { x: { time: true, range: () => [held.now.at[0], held.now.at.at(-1) + held.now.width] }, y: { range } },
    axes: [
      { ...axis, grid: { show: false }, space: 64, size: timeRoom, values: (u, splits, axisIndex, space, step) => timesOf(splits, step) },
      { ...axis, size: 46, space: 36, values: (u, splits) => splits.map((value) => unit(value, splits)) },
    ],
    series: [{ label: "Time", value: moment }, ...series],
  };
}

const timeRoom = (u, labels) => (labels?.some((label) => label.includes("\n")) ? 42 : 26);

const timesOf = (splits, step) => splits.map((at, k) => {
  if (step >= 86400) return dayOf(at);
  const first = k === 0 || dayOf(at) !== dayOf(splits[k - 1]);
  return (step < 60 ? secondsOf(at) : clockOf(at)) + (first ? `\n${dayOf(at)}` : "");
});

function axisNumber(value, splits) {
  const step = splits.length > 1 ? splits[1] - splits[0] : 1;
  return fixed(value, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
}

const bars = (size) => uPlot.paths.bars({ size: [size, Infinity], gap: 0 });
const box = (label, fill, size, value) => ({ label, fill, width: 0, stroke: fill, paths: bars(size), points: { show: false }, value });
const orNothing = (show) => (u, value) => (value === null || value === undefined ? "" : show(value));
const fromZero = (u, low, high) => [0, Math.max(1, high) * 1.05];

function traffic(bins) {
  const made = bins.decisions.map(sum);
  return {
    series: [box("Decisions", colour("soft"), 0.9, orNothing(count)), box("Rewards", colour("accent"), 0.5, orNothing(count))],
    values: [made, bins.rewards], range: fromZero,
    label: `Bars of decisions and rewards over time: ${count(sum(made))} decisions and ${count(sum(bins.rewards))} rewards in all`,
  };
}

function means(bins) {
  const values = meansOf(bins);
  const finite = values.filter((mean) => mean !== null);
  const decimals = finite.length ? meanDecimals(values) : 2;
  const said = finite.length ? `from ${fixed(finite[0], decimals)} first to ${fixed(finite.at(-1), decimals)} last` : "no rewards yet";
  const points = { show: true, size: 5, fill: colour("accent"), stroke: colour("accent") };
  return {
    series: [{ label: "Mean reward", stroke: colour("accent"), width: 1.5, points, spanGaps: true, value: orNothing((mean) => fixed(mean, decimals)) }],
    values: [values], range: (u, low, high) => around(low, high),
    label: `Line of the mean reward over time: ${said}`,
  };
}

function around(low, high) {
  if (low === null || high === null) return [0, 1];
  const room = high > low ? 0.12 * (high - low) : 0.5 * (Math.abs(high) || 1);
  return [low >= 0 && low < room ? 0 : low - room, high + room];
}

/** Shares on top of each other: every series is drawn from zero to its upper edge, the highest first. */
function shares(report, bins, tones) {
  const own = report.arms.map((arm, k) => ({ label: arm.arm, tone: tones.get(arm.arm), arms: [k] }));
  const layers = own.filter((layer) => layer.tone !== "arm-other");
  const rest = own.filter((layer) => layer.tone === "arm-other").flatMap((layer) => layer.arms);
  if (rest.length) layers.push({ label: `${rest.length} others`, tone: "arm-other", arms: rest });
  const totals = bins.decisions.map(sum);
  const part = (layer) => totals.map((total, k) => (total ? sum(layer.arms.map((arm) => bins.decisions[k][arm])) / total : null));
  const parts = layers.map(part);
  const edges = parts.map((_, j) => totals.map((total, k) => (total ? sum(parts.slice(j).map((one) => one[k])) : null)));
  const series = layers.map((layer) => box(layer.label, colour(layer.tone), 0.98, (u, value, s, k) => share(u, s, k)));
  const overall = report.arms.map((arm) => `${arm.arm} ${percent(arm.share)}`).join(", ");
  return { series, values: edges, range: () => [0, 1], unit: percent, label: `Stacked bars of every arm's share of decisions over time; overall ${overall}` };
}

/** A layer's own share: its upper edge less that of the layer below. */
function share(u, s, k) {
  const edge = k === null || k === undefined ? null : u.data[s][k];
  return edge === null || edge === undefined ? "" : percent(edge - (u.data[s + 1]?.[k] ?? 0));
}

// Why a task gets its arms: the prior from metadata, its own data, and what they make together.

import { armName, tonesOf } from "./arms.js";
import { linkTo } from "./bandits.js";
import { data, el } from "./dom.js";
import { count, decimalsOf, fixed, percent, short } from "./numbers.js";
import { bar, firstOf, moreButton, pictureTable, plot, scaleOf, whisker } from "./pictures.js";

export function whyView(bandit, report, why, search) {
  const tones = tonesOf(report.arms);
  return [
    el("div", { class: "head" },
      el("div", {},
        el("p", { class: "path" }, el("a", { href: "#" }, "All bandits"), " / ", el("a", { href: linkTo(bandit.name) }, bandit.name)),
        el("h1", { tabindex: "-1" }, el("span", { class: "kind" }, "Task "), why.task),
        el("p", { class: "note", id: "summary" }, summary(why))),
      search),
    beliefSection(why, tones),
    el("div", { class: "pair", id: "reasons" }, featuresSection(bandit, why, tones), tasksSection(bandit, why)),
  ];
}

export function noTaskView(bandit, task, search) {
  return [
    el("div", { class: "head" },
      el("div", {},
        el("p", { class: "path" }, el("a", { href: "#" }, "All bandits"), " / ", el("a", { href: linkTo(bandit.name) }, bandit.name)),
        el("h1", { tabindex: "-1" }, "No such task"),
        el("p", { class: "note" }, `${bandit.name} knows no task named “${task}”.`)),
      search),
  ];
}

// -- in words ---------------------------------------------------------------------------------------------------

const own = (pulls, unit) =>
  unit === "exposure" ? `exposure of ${short(pulls)}` : `${count(pulls)} ${pulls === 1 ? "reward" : "rewards"}`;

function summary(why) {
  const pulls = why.arms.reduce((sum, arm) => sum + arm.pulls, 0);
  const candidates = why.arms.filter((arm) => arm.active);
  const best = candidates.reduce((a, b) => (b.mean > a.mean ? b : a), candidates[0]);
  const has = why.unit === "exposure" ? `Its own data are an ${own(pulls, why.unit)}. ` : `It has ${own(pulls, why.unit)} of its own. `;
  const begin = pulls ? has : "It has no rewards of its own: all that is believed comes from its metadata and from other tasks. ";
  if (!best) return begin;
  const decimals = decimalsOf([best.sd]);
  return `${begin}Highest posterior mean of the active arms: ${best.arm}, ${fixed(best.mean, decimals)} with a standard deviation of ${fixed(best.sd, decimals)}.`;
}

/** Shrinkage of one arm, in words. */
export function shrinkage(arm, unit) {
  if (!arm.pulls) return "no data of its own: all prior";
  const much = unit === "exposure" ? `an exposure of ${about(arm.prior_worth)}` : `${about(arm.prior_worth)} rewards`;
  const worth = arm.prior_worth === null ? "the prior is certain" : `the prior is worth ${much}`;
  return `${percent(arm.own_weight)} from its own ${own(arm.pulls, unit)}, ${percent(1 - arm.own_weight)} prior; ${worth}`;
}

const about = (worth) => fixed(worth, Math.min(2, decimalsOf([worth])));

// -- as pictures ----------------------------------------------------------------------------------------------------

function beliefSection(why, tones) {
  const arms = firstOf(why.arms, "why arms");
  const spans = why.arms.flatMap((arm) => [
    arm.prior_mean - arm.prior_sd, arm.prior_mean + arm.prior_sd, arm.mean - arm.sd, arm.mean + arm.sd, arm.own_mean ?? Number.NaN,
  ]);
  const scale = scaleOf(spans);
  const decimals = decimalsOf(why.arms.flatMap((arm) => [arm.prior_sd, arm.sd]));
  const groups = arms.map((arm) => ({
    title: [armName(arm.arm, tones.get(arm.arm), arm.active), el("small", { class: "words" }, shrinkage(arm, why.unit))],
    rows: rowsOf(arm, scale, decimals, tones.get(arm.arm), why.unit),
  }));
  return el("section", { id: "belief", "aria-labelledby": "belief-title" },
    el("h2", { id: "belief-title" }, "Prior, own data, posterior"),
    el("p", { class: "note" }, "Mean reward of each arm for this task; lines reach one standard deviation to both sides. ",
      "The prior comes from the task's metadata and the rewards of other tasks."),
    pictureTable({ caption: el("span", { class: "unseen" }, "What is believed of each arm"), heads: ["From", "Mean and standard deviation", "Mean", "Sd"], groups, scale, axis: "mean reward", kind: "belief" }),
    moreButton(why.arms, "why arms", "arms"));
}

function rowsOf(arm, scale, decimals, tone, unit) {
  const spread = (mean, sd, shape, kind) => plot(scale, whisker(scale, { mean, low: mean - sd, high: mean + sd, shape }, kind));
  const show = (x) => data(x, fixed(x, decimals));
  const data_ = arm.own_mean === null
    ? { head: "own data", plot: plot(scale), cells: ["–", ""] }
    : {
      head: ["own data", el("small", {}, ` ${own(arm.pulls, unit)}`)],
      plot: plot(scale, whisker(scale, { mean: arm.own_mean, shape: "diamond" }, tone)), cells: [show(arm.own_mean), ""],
    };
  return [
    { head: "prior", plot: spread(arm.prior_mean, arm.prior_sd, "ring", "prior"), cells: [show(arm.prior_mean), show(arm.prior_sd)] },
    data_,
    { head: el("b", {}, "posterior"), plot: spread(arm.mean, arm.sd, "square", tone), cells: [el("b", {}, show(arm.mean)), show(arm.sd)] },
  ];
}

const UNITS = { "": "reward", logit: "logit", log: "log of the reward" };

/** country[JP] is the level JP of the column country. */
function columnName(bandit, column) {
  const of = Object.keys(bandit.metadata).find((name) => bandit.metadata[name].type === "category" && column.startsWith(`${name}[`));
  return of === undefined ? column : `${of}: ${column.slice(of.length + 1, -1)}`;
}

function featuresSection(bandit, why, tones) {
  const title = el("h2", { id: "features-title" }, "What moved the prior");
  const frame = (...content) => el("section", { id: "features", "aria-labelledby": "features-title" }, title, ...content);
  if (!why.features.length) return frame(el("p", { class: "note" }, "Nothing: its metadata are those of the average task, or have no effect yet."));
  const scale = scaleOf(why.features.map((one) => one.adds), { zero: true });
  const decimals = Math.min(6, decimalsOf([Math.abs(why.features[0].adds)]) + 1);
  const rows = firstOf(why.features, "features").map((one) => ({
    head: [armName(columnName(bandit, one.column), tones.get(one.arm)), " ", el("small", {}, one.arm)],
    plot: plot(scale, bar(scale, one.adds, tones.get(one.arm))),
    cells: [data(one.adds, (one.adds > 0 ? "+" : "") + fixed(one.adds, decimals))],
  }));
  const where = why.scale ? `, on the ${why.scale} scale` : "";
  return frame(
    el("p", { class: "note" }, `What each column adds to an arm's prior mean, beside the average task${where}; the largest first.`),
    pictureTable({ caption: el("span", { class: "unseen" }, "Features that moved the prior"), heads: ["Column and arm", "Bar", "Adds"], groups: [{ rows }], scale, axis: UNITS[why.scale] ?? why.scale }),
    moreButton(why.features, "features", "features"));
}

function tasksSection(bandit, why) {
  const title = el("h2", { id: "others-title" }, "Other tasks that weigh most");
  const frame = (...content) => el("section", { id: "others", "aria-labelledby": "others-title" }, title, ...content);
  if (!why.tasks.length) {
    return frame(el("p", { class: "note" }, "No other task has rewards yet."));
  }
  const scale = scaleOf(why.tasks.map((one) => one.weight), { zero: true });
  const decimals = Math.min(6, decimalsOf([why.tasks[0].weight]) + 1);
  const rows = firstOf(why.tasks, "tasks").map((one) => ({
    head: el("a", { href: linkTo(bandit.name, one.task) }, one.task),
    plot: plot(scale, bar(scale, one.weight, "accent")),
    cells: [data(one.weight, fixed(one.weight, decimals))],
  }));
  return frame(
    el("p", { class: "note" }, "Absolute weights of their rewards in this task's means, summed over arms."),
    pictureTable({ caption: el("span", { class: "unseen" }, "Other tasks by weight"), heads: ["Task", "Bar", "Weight"], groups: [{ rows }], scale, axis: "weight" }),
    moreButton(why.tasks, "tasks", "tasks"));
}

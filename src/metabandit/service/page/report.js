// One bandit: its traffic, what it earned, and what it learned.

import { armName, tonesOf } from "./arms.js";
import { command, stateTag } from "./bandits.js";
import { data, el } from "./dom.js";
import { count, dateOf, decimalsOf, fixed, many, percent, short } from "./numbers.js";
import { bar, firstOf, moreButton, pictureTable, plot, scaleOf, whisker } from "./pictures.js";
import { timelineSection } from "./timeline.js";

export function reportView(bandit, report, search) {
  const tones = tonesOf(report.arms);
  return [
    header(bandit, search), figures(report), hints(bandit, report), timelineSection(report),
    armsSection(report, tones), gainsSection(report), effectsSection(bandit, report, tones), variancesSection(report),
  ];
}

const section = (id, title, ...content) =>
  el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...content);
const note = (...content) => el("p", { class: "note" }, ...content);

// -- what it is -------------------------------------------------------------------------------------------------

const REWARDS = { real: "real rewards", binary: "binary rewards", count: "counts as rewards" };
const POLICIES = { thompson: "Thompson sampling", greedy: "greedy", "upper-bound": "upper bound", random: "uniform choice" };

function header(bandit, search) {
  return el("div", { class: "head" },
    el("div", {},
      el("p", { class: "path" }, el("a", { href: "#" }, "All bandits")),
      el("h1", { tabindex: "-1" }, bandit.name, " ", stateTag(bandit)),
      note(description(bandit))),
    search);
}

function description(bandit) {
  const policy = bandit.policy; // what is as usual is not sent
  const columns = Object.entries(bandit.metadata).map(([name, column]) => `${name} (${column.type})`);
  const parts = [
    REWARDS[bandit.reward], POLICIES[policy.kind ?? "thompson"], policy.floor > 0 && `no arm below ${percent(policy.floor)}`,
    columns.length ? `metadata: ${columns.join(", ")}` : "no metadata", `since ${dateOf(bandit.created)}`,
  ];
  const text = parts.filter(Boolean).join("\u00a0· ");
  return text[0].toUpperCase() + text.slice(1);
}

// -- in figures -------------------------------------------------------------------------------------------------

function figures(report) {
  const total = report.arms.reduce((sum, arm) => sum + (arm.mean ?? 0) * arm.rewards, 0);
  const figure = (name, id, value, small) =>
    el("div", {}, el("dt", {}, name), el("dd", { id }, value, small && el("small", {}, small)));
  return el("dl", { class: "figures", id: "figures" },
    figure("Tasks", "figure-tasks", data(report.tasks, count(report.tasks))),
    figure("Decisions", "figure-decisions", data(report.decisions, count(report.decisions))),
    figure("Rewards", "figure-rewards", data(report.rewards, count(report.rewards)),
      report.decisions > 0 && `${percent(report.rewards / report.decisions)} of decisions`),
    figure("Mean reward", "figure-mean", report.rewards ? short(total / report.rewards) : "–"),
    report.gains.map((gain, k) => {
      const decimals = decimalsOf([gain.gain.high - gain.gain.low]);
      const sign = gain.gain.value > 0 ? "+" : "";
      return figure(`Gain over ${over(gain, k)}`, `figure-gain-${k}`, data(gain.gain.value, sign + fixed(gain.gain.value, decimals)),
        interval(gain.gain, decimals));
    }));
}

const over = (gain, k) => (k === 0 && gain.over === "uniform" ? "uniform" : `always ${gain.over}`);
const interval = ({ low, high }, decimals) => [data(low, fixed(low, decimals)), " to ", data(high, fixed(high, decimals))];

function hints(bandit, report) {
  if (!report.decisions) {
    const sent = { task: "user-42", metadata: Object.fromEntries(Object.keys(bandit.metadata).map((name) => [name, null])) };
    return el("div", { class: "empty", id: "hint" },
      el("p", {}, "No decisions yet. This asks for one; the answer has its id, the arm and its probability:"),
      command(["v1", "bandits", bandit.name, "decisions"], sent));
  }
  if (report.rewards) return null;
  return el("div", { class: "empty", id: "hint" },
    el("p", {}, "No rewards yet: nothing can be learned. This sends the reward of a decision, by its id:"),
    command(["v1", "bandits", bandit.name, "rewards"], { decision: "ID-OF-THE-DECISION", reward: 1 }));
}

// -- arms ---------------------------------------------------------------------------------------------------------

function armsSection(report, tones) {
  const arms = firstOf(report.arms, "arms");
  return section("arms", "Arms",
    el("div", { class: "pair" }, trafficTable(arms, report, tones), meansTable(arms, tones)),
    moreButton(report.arms, "arms", "arms"));
}

function trafficTable(arms, report, tones) {
  const scale = scaleOf(report.arms.map((arm) => arm.share), { zero: true, show: (x) => `${fixed(100 * x, 0)}\u00a0%` });
  const rows = arms.map((arm) => ({
    head: armName(arm.arm, tones.get(arm.arm), arm.active),
    plot: plot(scale, bar(scale, arm.share, tones.get(arm.arm))),
    cells: [data(arm.share, percent(arm.share)), data(arm.decisions, count(arm.decisions))],
  }));
  return pictureTable({
    caption: "Traffic", heads: ["Arm", "Share as a bar", "Share", "Decisions"], groups: [{ rows }], scale, axis: "share of decisions",
  });
}

function meansTable(arms, tones) {
  const means = arms.map((arm) => arm.mean).filter((mean) => mean !== null);
  if (!means.length) return el("div", {}, el("h3", {}, "Mean reward"), note("No rewards yet."));
  const scale = scaleOf(means);
  const decimals = Math.min(6, Math.max(2, decimalsOf([Math.max(...means) - Math.min(...means)]) + 1));
  const rows = arms.map((arm) => ({
    head: armName(arm.arm, tones.get(arm.arm), arm.active),
    plot: arm.mean === null ? plot(scale) : plot(scale, whisker(scale, { mean: arm.mean }, tones.get(arm.arm))),
    cells: [arm.mean === null ? "–" : data(arm.mean, fixed(arm.mean, decimals)), data(arm.rewards, count(arm.rewards))],
  }));
  return pictureTable({
    caption: "Mean reward", heads: ["Arm", "Mean as a dot", "Mean", "Rewards"], groups: [{ rows }], scale, axis: "mean of the rewards it got",
  });
}

// -- gains ----------------------------------------------------------------------------------------------------------

function gainsSection(report) {
  if (!report.gains.length) return section("gains", "Estimated gain", note("Not enough rewards yet to estimate what other ways to decide would have earned."));
  const ways = [["as decided", report.gains[0].earned], ...report.gains.map((gain, k) => [over(gain, k), gain.other])];
  const gains = report.gains.map((gain, k) => [`over ${over(gain, k)}`, gain.gain]);
  return section("gains", "Estimated gain",
    note("Reward of a decision beyond what other ways to decide would have earned, by inverse-probability weighting; with 95\u00a0% intervals. ", report.gains.map(verdict).join(" ")),
    el("div", { class: "pair" },
      estimates("Gain", gains, true, "reward per decision"), estimates("Mean reward of a decision", ways, false, "reward per decision")));
}

function verdict(gain, k) {
  const { low, high } = gain.gain;
  const way = over(gain, k) === "uniform" ? "Choosing uniformly" : `Always choosing ${gain.over}`;
  if (low > 0) return `${way} would have earned less.`;
  return high < 0 ? `${way} would have earned more.` : `${way} might have earned as much.`;
}

function estimates(caption, named, zero, axis) {
  const scale = scaleOf(named.flatMap(([, { low, high }]) => [low, high]), { zero });
  const decimals = decimalsOf(named.map(([, { low, high }]) => high - low));
  const rows = named.map(([name, one]) => intervalRow(name, { mean: one.value, low: one.low, high: one.high }, scale, decimals));
  return pictureTable({ caption, heads: ["Way to decide", "Interval", "Estimate", "95 % interval"], groups: [{ rows }], scale, axis });
}

const intervalRow = (head, { mean, low, high }, scale, decimals, tone = "accent") => ({
  head, plot: plot(scale, whisker(scale, { mean, low, high }, tone)),
  cells: [data(mean, fixed(mean, decimals)), interval({ low, high }, decimals)],
});

// -- learned effects --------------------------------------------------------------------------------------------------

const AXES = { "": "reward", logit: "logit of the reward", log: "log of the reward" };
const SCALES = { "": "in rewards", logit: "on the logit scale", log: "on the log scale" };

function effectsSection(bandit, report, tones) {
  const title = "Learned effects";
  if (!report.coefficients.length) return section("effects", title, note("This model has no coefficients to list, or too many."));
  const active = new Map(report.arms.map((arm) => [arm.arm, arm.active]));
  const panels = panelsOf(bandit, report.coefficients);
  const numbers = panels.some((panel) => panel.type === "number");
  return section("effects", title,
    note(`What each metadata column does for each arm, ${SCALES[report.scale]}, as posterior means with 95\u00a0% intervals. `,
      panels.length > 1 && "The average level is where metadata are zero or average. ",
      numbers && "The effect of a number is for one more of it."),
    el("div", { class: "panels" }, panels.map((panel) => effectPanel(panel, report.scale, tones, active))));
}

/** Coefficients by metadata column, and within it by level. */
function panelsOf(bandit, coefficients) {
  const panels = new Map();
  for (const one of coefficients) {
    const column = Object.keys(bandit.metadata).find((name) => one.column === name || one.column.startsWith(`${name}[`));
    const name = column ?? one.column;
    const type = bandit.metadata[column]?.type;
    if (!panels.has(name)) panels.set(name, { name, type, levels: new Map() });
    const levels = panels.get(name).levels;
    const level = type === "category" ? one.column.slice(name.length + 1, -1) : "";
    levels.set(level, [...(levels.get(level) ?? []), one]);
  }
  return [...panels.values()];
}

function effectPanel({ name, type, levels }, unit, tones, active) {
  const all = [...levels.values()].flat();
  const more = `effects ${name}`;
  const scale = scaleOf(all.flatMap(({ low, high }) => [low, high]), { zero: true });
  const decimals = decimalsOf(all.map(({ low, high }) => 0.5 * (high - low)));
  const row = (one) => intervalRow(armName(one.arm, tones.get(one.arm), active.get(one.arm)), one, scale, decimals, tones.get(one.arm));
  const ofLevels = [...levels];
  const groups = type === "category"
    ? firstOf(ofLevels, more).map(([level, ones]) => ({ title: level, rows: firstOf(ones, more).map(row) }))
    : [{ rows: firstOf(all, more).map(row) }];
  const caption = name === "intercept" ? "Average level of each arm" : [name, type === "number" && el("small", {}, ", for one more")];
  const arms = ofLevels[0][1];
  const button = ofLevels.length > arms.length ? moreButton(ofLevels, more, "levels") : moreButton(arms, more, "arms");
  return el("div", { class: "panel" },
    pictureTable({ caption, heads: ["Arm", "Interval", "Mean", "95 % interval"], groups, scale, axis: AXES[unit] }), button);
}

// -- variance components ------------------------------------------------------------------------------------------------

const MEANINGS = [
  ["noise", "of a reward around its task's own mean"],
  ["task effect", "between tasks with the same metadata"],
  ["dispersion", "how much tasks with the same metadata differ: 0, not at all"],
  ["coefficients of", "of these coefficients over arms, before any data"],
];

function variancesSection(report) {
  const row = ({ name, value, learned }) => el("tr", {},
    el("th", { scope: "row" }, name), el("td", { class: "number" }, data(value, short(value))),
    el("td", { class: "number" }, name === "dispersion" ? "–" : short(Math.sqrt(value))),
    el("td", {}, learned ? "learned" : "given"),
    el("td", { class: "meaning" }, MEANINGS.find(([start]) => name.startsWith(start))?.[1] ?? ""));
  const heads = [["Component", ""], ["Variance", "number"], ["Sd", "number"], ["From", ""], ["Meaning", "meaning"]];
  return section("variances", "Variance components",
    el("table", { class: "variances" },
      el("caption", { class: "unseen" }, "Variance components of the model"),
      el("thead", {}, el("tr", {}, heads.map(([title, kind]) => el("th", { scope: "col", class: kind }, title)))),
      el("tbody", {}, firstOf(report.variances, "variances").map(row))),
    moreButton(report.variances, "variances", "components"),
    note(`${many(report.tasks, "task")}; belief at event ${count(report.version)} of the log.`));
}

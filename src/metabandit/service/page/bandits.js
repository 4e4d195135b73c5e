// Every bandit, in one table; and how to make the first.

import { el } from "./dom.js";
import { count, dateOf } from "./numbers.js";
import { address, key } from "./server.js";

/** The address of a bandit, or of one of its tasks, within the page. */
export const linkTo = (bandit, task) => `#${new URLSearchParams(task === undefined ? { bandit } : { bandit, task })}`;

export const stateTag = (bandit) =>
  el("span", { class: bandit.paused ? "tag paused" : "tag active" }, bandit.paused ? "paused" : "active");

export function banditsView(bandits) {
  if (!bandits.length) return [el("h1", { tabindex: "-1" }, "No bandits yet"), first()];
  const head = ["Bandit", "State", "Arms", "Tasks", "Decisions", "Rewards", "Created"];
  return [
    el("h1", { tabindex: "-1" }, "Bandits"),
    el("table", { class: "list" },
      el("caption", { class: "unseen" }, "All bandits of this service"),
      el("thead", {}, el("tr", {}, head.map((title, j) => el("th", { scope: "col", class: j > 1 ? "number" : "" }, title)))),
      el("tbody", {}, bandits.map(row))),
  ];
}

function row(bandit) {
  const active = bandit.arms.filter((arm) => arm.active).length;
  const cell = (title, ...content) => el("td", { class: "number", "data-title": title }, ...content);
  return el("tr", {},
    el("th", { scope: "row" }, el("a", { href: linkTo(bandit.name) }, bandit.name)),
    el("td", {}, stateTag(bandit)),
    cell("Arms", count(active)), cell("Tasks", count(bandit.tasks)), cell("Decisions", count(bandit.decisions)),
    cell("Rewards", count(bandit.rewards)), cell("Created", dateOf(bandit.created)));
}

const EXAMPLE = {
  name: "templates", arms: ["short", "friendly", "urgent"], reward: "binary",
  metadata: { age: { type: "number" }, country: { type: "category" } },
};

function first() {
  return el("div", { class: "empty" },
    el("p", {}, "A bandit has arms to choose from, and the metadata columns that describe its tasks. This makes one:"),
    command(["v1", "bandits"], EXAMPLE),
    el("p", { class: "note" }, "It appears here by itself."));
}

/** A command that sends something to the service. */
export function command(parts, body) {
  const permission = key.get() ? " \\\n  -H 'Authorization: Bearer YOUR-KEY'" : "";
  const sent = JSON.stringify(body).replaceAll("'", "'\\''");
  const text = `curl ${address(parts)}${permission} \\\n  -H 'Content-Type: application/json' \\\n  -d '${sent}'`;
  return el("pre", { tabindex: "0", "aria-label": "Command" }, el("code", {}, text));
}

// How arms look: one colour for each, the same in every picture.

import { el } from "./dom.js";

const COLOURS = 8; // of the Okabe-Ito palette, which colour-blind people can tell apart

/** The class of every arm's colour. With more arms than colours, those with most traffic have one of their own. */
export function tonesOf(arms) {
  const busiest = arms.map((arm, k) => [arm.decisions, k]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  const own = arms.length > COLOURS ? busiest.slice(0, COLOURS - 1).map(([, k]) => k) : arms.map((_, k) => k);
  const chosen = new Set(own);
  let next = 0;
  return new Map(arms.map((arm, k) => [arm.arm, chosen.has(k) ? `arm-${next++}` : "arm-other"]));
}

/** An arm's name with its colour, and whether it is retired. */
export const armName = (name, tone, active = true) => [
  el("span", { class: `swatch ${tone}`, "aria-hidden": "true" }),
  el("span", { class: "name" }, name),
  !active && el("span", { class: "tag" }, "retired"),
];

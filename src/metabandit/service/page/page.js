// The page: where it is (the address after #), what it knows, and keeping that up to date.

import { banditsView } from "./bandits.js";
import { tonesOf } from "./arms.js";
import { el, patchChildren } from "./dom.js";
import { secondsOf } from "./numbers.js";
import { toggleMore } from "./pictures.js";
import { reportView } from "./report.js";
import { searchForm } from "./search.js";
import { get, key } from "./server.js";
import { drawTimeline, forgetDrawings } from "./timeline.js";
import { noTaskView, whyView } from "./why.js";

const EVERY = 5_000; // milliseconds between refreshes
const at = (id) => document.getElementById(id);

let known = {}; // of one place: what the server said last
let busy = false;
let again = false;
let arrived = false; // by a link, so that the heading gets the focus
let timer = 0;

const place = () => {
  const asked = new URLSearchParams(location.hash.slice(1));
  return { bandit: asked.get("bandit"), task: asked.get("task") };
};

// -- keeping up to date -------------------------------------------------------------------------------------------

async function refresh() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  clearTimeout(timer);
  const here = location.hash;
  try {
    const found = await ask(place(), known.here === here ? known : {});
    if (here === location.hash) show({ ...found, here });
  } catch (error) {
    if (here === location.hash) failed(error);
  }
  busy = false;
  if (again || here !== location.hash) {
    again = false;
    refresh();
  } else if (!document.hidden) {
    timer = setTimeout(refresh, EVERY);
  }
}

/** What the server says of a place; what has not changed is not asked for again. */
async function ask({ bandit: name, task }, before) {
  const { bandits } = await get(["v1", "bandits"]);
  const bandit = bandits.find((one) => one.name === name);
  const stamp = JSON.stringify(bandit);
  if (!bandit) return { bandits };
  if (stamp === before.stamp) return { ...before, bandits };
  const of = ["v1", "bandits", name];
  const [report, why] = await Promise.all([get([...of, "report"]), task === null ? null : explanation(of, task)]);
  return { bandits, bandit, stamp, report, why };
}

async function explanation(of, task) {
  try {
    return await get([...of, "explanation"], { task });
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

// -- showing --------------------------------------------------------------------------------------------------------

function show(found) {
  known = found;
  trouble(null);
  at("fresh").textContent = `Updated ${secondsOf(Date.now() / 1000)}`;
  at("forget").hidden = !key.get();
  render();
  if (arrived) {
    arrived = false;
    window.scrollTo(0, 0);
    document.querySelector("main h1").focus({ preventScroll: true });
  }
}

function render() {
  const { bandits, bandit, report, why } = known;
  const { bandit: name, task } = place();
  const content = view(bandits, bandit, name, report, task, why).flat(Infinity).filter(Boolean);
  patchChildren(at("main"), content);
  at("main").removeAttribute("aria-busy");
  document.title = [task, name, "metabandit"].filter((part) => part !== null).join(" · ");
  if (report && task === null) drawTimeline(report, tonesOf(report.arms));
}

function view(bandits, bandit, name, report, task, why) {
  if (name === null) return banditsView(bandits);
  if (!bandit) return noBandit(name);
  const search = searchForm(name, say);
  if (task === null) return reportView(bandit, report, search);
  return why ? whyView(bandit, report, why, search) : noTaskView(bandit, task, search);
}

const noBandit = (name) => [
  el("h1", { tabindex: "-1" }, "No such bandit"),
  el("p", {}, `This service has no bandit named “${name}”. `, el("a", { href: "#" }, "All bandits")),
];

/** Tell those who listen; not the time of every refresh. */
function say(text) {
  at("status").textContent = text;
}

// -- trouble --------------------------------------------------------------------------------------------------------

function failed(error) {
  at("main").removeAttribute("aria-busy");
  if (error.status === 401) return askForKey(error);
  if (error.status === undefined) console.error(error); // a fault of this page
  const since = known.bandits ? ` What is shown is from ${at("fresh").textContent.replace("Updated ", "")}.` : "";
  return trouble(`${sentence(error)}${since}`);
}

function sentence(error) {
  if (error.status === 0) return "The server does not answer; trying again every few seconds.";
  if (error.status === 503) return "The server is busy or cannot reach its store; trying again every few seconds.";
  return `The server could not show this: ${error.message}.`;
}

function trouble(text) {
  const box = at("trouble");
  if (text && box.textContent !== text) box.textContent = text;
  if (!text && !box.hidden) say("The server answers again.");
  box.hidden = !text;
}

function askForKey(error) {
  trouble(null);
  if (at("key-form")) {
    at("key-problem").textContent = key.get() ? `Not accepted: ${error.message}.` : "";
    return;
  }
  known = {};
  const input = el("input", { id: "key", type: "password", autocomplete: "off", required: true, "aria-describedby": "key-help key-problem" });
  const problem = el("p", { id: "key-problem", role: "alert" }, key.get() ? `Not accepted: ${error.message}.` : "");
  const form = el("form", { id: "key-form", class: "key", "data-own": "key" },
    el("label", { for: "key" }, "API key"), el("div", { class: "field" }, input, el("button", { type: "submit" }, "Show the page")), problem,
    el("p", { id: "key-help", class: "note" }, "A key that may read. It is kept in this browser tab only, until the tab is closed."));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    useKey(input.value.trim(), problem);
  });
  at("main").replaceChildren(el("h1", { tabindex: "-1" }, "This service asks for a key"), form);
  document.title = "metabandit";
  at("fresh").textContent = "";
  input.focus();
}

function useKey(text, problem) {
  if (!/^[\x21-\x7e]+$/.test(text)) {
    problem.textContent = "Not accepted: a key has no spaces, and only plain letters, digits and signs.";
    return;
  }
  key.set(text);
  arrived = true;
  refresh();
}

// -- events ---------------------------------------------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const more = event.target.closest("[data-more]");
  if (more) {
    toggleMore(more.dataset.more);
    render();
  }
});
at("skip").addEventListener("click", (event) => {
  event.preventDefault();
  at("main").focus();
});
at("forget").addEventListener("click", () => {
  key.forget();
  at("forget").hidden = true;
  refresh();
});
window.addEventListener("hashchange", () => {
  arrived = true;
  at("main").setAttribute("aria-busy", "true");
  refresh();
});
document.addEventListener("visibilitychange", () => document.hidden || refresh());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  forgetDrawings();
  if (known.bandits) render();
});
refresh();

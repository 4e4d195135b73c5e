// The search for a task: a combobox over the service's own search.

import { linkTo } from "./bandits.js";
import { el } from "./dom.js";
import { many } from "./numbers.js";
import { get } from "./server.js";

const PAUSE = 150; // milliseconds after the last key, before it asks

/** The form; it looks after itself from then on. say(text) tells what was found. */
export function searchForm(bandit, say) {
  const input = el("input", {
    id: "task-search", type: "search", role: "combobox", autocomplete: "off", spellcheck: "false", maxlength: 256,
    "aria-expanded": "false", "aria-controls": "task-list", "aria-autocomplete": "list", placeholder: "Name of a task",
  });
  const list = el("ul", { id: "task-list", role: "listbox", "aria-label": "Tasks found", hidden: true });
  const form = el("form", { class: "search", role: "search", "data-own": `search ${bandit}` },
    el("label", { for: "task-search" }, "Why this arm? Find a task"), el("div", { class: "field" }, input, list));
  new Search(bandit, input, list, say).listen(form);
  return form;
}

class Search {
  constructor(bandit, input, list, say) {
    Object.assign(this, { bandit, input, list, say, names: [], at: -1, asked: 0, timer: 0 });
  }

  listen(form) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.enter();
    });
    this.input.addEventListener("input", () => this.later());
    this.input.addEventListener("keydown", (event) => this.pressed(event));
    this.input.addEventListener("focus", () => this.input.value || this.later());
    this.list.addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
    this.list.addEventListener("click", (event) => this.clicked(event.target.closest("[role=option]")));
    form.addEventListener("focusout", (event) => form.contains(event.relatedTarget) || this.close());
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), PAUSE);
  }

  async ask() {
    clearTimeout(this.timer);
    const number = ++this.asked;
    const text = this.input.value;
    let names;
    try {
      names = (await get(["v1", "bandits", this.bandit, "tasks"], { search: text })).tasks;
    } catch (error) {
      this.close();
      this.say(`The search failed: ${error.message}`);
      return false;
    }
    if (number !== this.asked) return false;
    this.show(names, text);
    return true;
  }

  show(names, text) {
    this.names = names;
    this.at = -1;
    const options = names.map((name, k) => el("li", { role: "option", id: `task-${k}`, "aria-selected": "false" }, name));
    const none = el("li", { class: "none", role: "option", "aria-disabled": "true" }, text ? `No task has “${text}” in its name` : "There are no tasks yet");
    this.list.replaceChildren(...(options.length ? options : [none]));
    this.mark();
    const open = document.activeElement === this.input;
    this.list.hidden = !open;
    this.input.setAttribute("aria-expanded", String(open));
    if (open) this.say(names.length ? `${many(names.length, "task")} found` : none.textContent);
  }

  close() {
    this.list.hidden = true;
    this.at = -1;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  pressed(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape" && !this.list.hidden) {
      event.preventDefault();
      this.close();
    } else if (step) {
      event.preventDefault();
      if (this.list.hidden) this.ask();
      else this.move(step);
    }
  }

  move(step) {
    const n = this.names.length;
    if (!n) return;
    this.at = this.at < 0 ? (step > 0 ? 0 : n - 1) : (this.at + step + n) % n;
    this.mark();
  }

  mark() {
    [...this.list.children].forEach((option, k) => option.setAttribute("aria-selected", String(k === this.at)));
    if (this.at < 0) this.input.removeAttribute("aria-activedescendant");
    else {
      this.input.setAttribute("aria-activedescendant", `task-${this.at}`);
      this.list.children[this.at].scrollIntoView({ block: "nearest" });
    }
  }

  async enter() {
    if (this.at < 0 && !(await this.ask())) return; // what was typed last counts, not what was found before
    const name = this.names[Math.max(0, this.at)];
    if (name !== undefined && (this.at >= 0 || this.input.value)) this.open(name);
  }

  clicked(option) {
    const k = option ? [...this.list.children].indexOf(option) : -1;
    if (this.names[k] !== undefined) this.open(this.names[k]);
  }

  open(name) {
    this.input.value = "";
    this.close();
    location.hash = linkTo(this.bandit, name);
  }
}

// Elements from data, always as text; and bringing a page up to date without touching what stays the same.

const SVG = "http://www.w3.org/2000/svg";

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return node;
}

/** An HTML element; strings among the children become text, whatever is in them. */
export const el = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);

/** An SVG element. */
export const svg = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

/** A number as text, with the exact one in its `value`. */
export const data = (value, text) => el("data", { value: String(value) }, text);

/** Make `live` what `fresh` is. Elements that stay keep their focus, selection and scroll; `data-own` guards
 * children that look after themselves. */
export function patch(live, fresh) {
  if (live.nodeType !== fresh.nodeType || live.nodeName !== fresh.nodeName || live.id !== fresh.id) {
    live.replaceWith(fresh);
  } else if (live.nodeType === Node.TEXT_NODE) {
    if (live.data !== fresh.data) live.data = fresh.data;
  } else if (live.dataset?.own !== fresh.dataset?.own) {
    live.replaceWith(fresh);
  } else if (fresh.dataset?.own === undefined) {
    patchAttributes(live, fresh);
    patchChildren(live, [...fresh.childNodes]);
  }
}

function patchAttributes(live, fresh) {
  for (const { name } of [...live.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") live.removeAttribute(name); // what the reader opened stays open
  }
  for (const { name, value } of fresh.attributes) {
    if (live.getAttribute(name) !== value) live.setAttribute(name, value);
  }
}

/** Make the children of `live` what `fresh` has; those with an id are found again where others came or went. */
export function patchChildren(live, fresh) {
  let at = live.firstChild;
  for (const child of fresh) {
    if (at && at.id !== child.id && child.id) {
      const same = [...live.children].find((other) => other.id === child.id);
      if (!same) {
        live.insertBefore(child, at);
        continue;
      }
      while (at !== same) at = removed(at);
    }
    if (!at) {
      live.append(child);
    } else {
      const next = at.nextSibling;
      patch(at, child);
      at = next;
    }
  }
  while (at) at = removed(at);
}

function removed(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

// Asking the service, with the API key of this browser tab if there is one.

const KEY = "metabandit-key";
const PATIENCE = 20_000; // milliseconds until an answer counts as none

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** The server said no, or nothing: status 0. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The address of something below the page's own, from parts that may hold anything. */
export function address(parts, query = {}) {
  const url = new URL(parts.map(encodeURIComponent).join("/"), document.baseURI);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  url.hash = "";
  return url;
}

/** What the service answers, as an object. */
export async function get(parts, query) {
  const headers = { Accept: "application/json" };
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  let response, body;
  try {
    const signal = AbortSignal.timeout(PATIENCE);
    response = await fetch(address(parts, query), { headers, signal, cache: "no-store", credentials: "same-origin" });
    body = await response.json();
  } catch (error) {
    if (!response) throw new Refused(0, "the server does not answer");
    throw new Refused(response.status, `the answer (${response.status}) could not be read`);
  }
  if (!response.ok) throw new Refused(response.status, body.detail ?? body.title ?? `status ${response.status}`);
  return body;
}

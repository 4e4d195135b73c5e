// Numbers, durations and times as people read them.

const formats = new Map();

function format(decimals) {
  if (!formats.has(decimals)) {
    const both = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
    formats.set(decimals, new Intl.NumberFormat("en-US", both));
  }
  return formats.get(decimals);
}

const signed = (text) => (/^-[0.,]*$/.test(text) ? text.slice(1) : text.replace("-", "−"));

/** A whole number, with thousands separators. */
export const count = (n) => format(0).format(n);

/** One noun or its plural: 1 task, 2 tasks. */
export const many = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

/** A number with so many decimals; very small or very large ones as powers of ten. */
export function fixed(value, decimals) {
  const size = Math.abs(value);
  if (decimals > 6 || size >= 1e12) return value === 0 ? "0" : signed(value.toExponential(2));
  return signed(format(Math.max(0, decimals)).format(value));
}

/** How many decimals show two digits of the smallest of these spreads. */
export function decimalsOf(spreads) {
  const least = Math.min(...spreads.filter((spread) => Number.isFinite(spread) && spread > 0));
  return Number.isFinite(least) ? Math.max(0, 1 - Math.floor(Math.log10(least))) : 2;
}

/** A number with three digits, by itself. */
export function short(value) {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return fixed(value, decimals);
}

/** A share of one as a percentage. */
export function percent(share) {
  const decimals = share > 0 && share < 0.1 ? 1 : 0;
  return `${format(decimals).format(100 * share)}\u00a0%`;
}

const UNITS = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];

/** A length of time in words: 1 hour; 2 days; 4 hours 16 minutes. */
export function duration(seconds) {
  const parts = [];
  let left = Math.round(seconds);
  for (const [size, name] of UNITS) {
    const n = Math.floor(left / size);
    if (n) parts.push([n, name]);
    left -= n * size;
  }
  return parts.slice(0, 2).map(([n, name]) => many(n, name)).join(" ");
}

const time = (options) => {
  const made = new Intl.DateTimeFormat("en-GB", options);
  return (seconds) => made.format(new Date(1000 * seconds));
};

export const dayOf = time({ day: "numeric", month: "short" });
export const dateOf = time({ day: "numeric", month: "short", year: "numeric" });
export const clockOf = time({ hour: "2-digit", minute: "2-digit" });
export const secondsOf = time({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const momentOf = (seconds) => `${dayOf(seconds)}, ${clockOf(seconds)}`;

// Numbers, times and names as people read them. What is not known is said to be unknown, never 0 and never blank.

const NUMBER = new Intl.NumberFormat("en");

export const number = (value) => (typeof value === "number" ? NUMBER.format(value) : "unknown");

/** 84 -> "84 ms", 1_840 -> "1.8 s", 75_000 -> "1 min 15 s", 8_100_000 -> "2 h 15 min" */
export function duration(ms) {
  if (typeof ms !== "number") return "unknown";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  const [s, min] = [Math.floor(ms / 1_000), Math.floor(ms / 60_000)];
  if (min < 60) return `${min} min ${s % 60} s`;
  return min < 48 * 60 ? `${Math.floor(min / 60)} h ${min % 60} min` : `${Math.floor(min / 1_440)} days`;
}

/** UTC, as everywhere in the gateway. */
export const moment = (ms) => (typeof ms === "number" ? new Date(ms).toISOString().replace("T", " ").slice(0, 19) + " Z" : "unknown");
export const soon = (ms) => moment(ms).slice(5, 16) + " Z";
export const clock = (ms) => (typeof ms === "number" ? new Date(ms).toISOString().slice(11, 19) : "unknown");

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
export const words = (name) => String(name).replaceAll("_", " ");
export const short = (id) => (id.length > 18 ? `…${id.slice(-10)}` : id);

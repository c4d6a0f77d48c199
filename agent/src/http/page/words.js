// Words, numbers and marks: how things are told on this page.

const SVG = "http://www.w3.org/2000/svg";

/** How a class of failure is drawn (a path around 0,0; stroked, or filled) and told. */
export const CLASSES = {
  refused: { path: "M-4-4L4 4M4-4L-4 4", what: "the pod's network was up, its listener closed" },
  timeout: { path: "M4.2 0A4.2 4.2 0 1 1-4.2 0A4.2 4.2 0 1 1 4.2 0Z", what: "the SYN was not answered" },
  unreachable: { path: "M0-4.8L4.8 3.6H-4.8Z", what: "no route or no neighbour, or ICMP unreachable" },
  stale_nat: { path: "M0-5.4L5.4 0L0 5.4L-5.4 0Z", filled: true, what: "a new connection followed an old conntrack entry to a pod that had left" },
  reset: { path: "M0 5L4.8-3.6H-4.8Z", filled: true, what: "an established connection was reset" },
  cut: { path: "M-2.5-5V5M2.5-5V5", what: "closed by the pod while a request had no answer yet" },
  rejected: { path: "M-4-4H4V4H-4Z", what: "the Service had no usable endpoint" },
  misdelivered: { path: "M0-6L1.7-1.7L6 0L1.7 1.7L0 6L-1.7 1.7L-6 0L-1.7-1.7Z", filled: true, what: "answered by another workload's pod" },
};

/** Classes of connections that had been answered. */
const ENDED = ["reset", "cut"];

const OTHER = { path: "M3 0A3 3 0 1 1-3 0A3 3 0 1 1 3 0Z", filled: true, what: "" };

/** Classes in the order in which they are shown; unknown ones last. */
export function inOrder(classes) {
  const known = Object.keys(CLASSES);
  const rank = (name) => (known.includes(name) ? known.indexOf(name) : known.length);
  return [...classes].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

/** A class's mark, to be placed in a picture. */
export function mark(name, attributes = {}) {
  const { path, filled } = CLASSES[name] ?? OTHER;
  return s("path", { d: path, class: `mark of-${name}${filled ? " filled" : ""}`, ...attributes });
}

/** A class's mark as an inline picture beside its name or count. */
export function glyph(name) {
  return s("svg", { class: "glyph", viewBox: "-7 -7 14 14", "aria-hidden": "true" }, mark(name));
}

/** An element of HTML. */
export function h(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** An element of SVG. */
export function s(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(4).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const grouped = new Intl.NumberFormat("en");

/** A count. */
export const count = (number) => grouped.format(number);

/** "1 pod", "3 pods". */
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A share in per cent, with as many digits as it takes not to say 0. */
export function share(part, whole) {
  if (!(whole > 0)) return "";
  const percent = (100 * part) / whole;
  if (part === 0) return "0 %";
  const digits = percent >= 10 ? 0 : percent >= 1 ? 1 : percent >= 0.01 ? 2 : 4;
  return `${percent.toFixed(digits)}\u00a0%`;
}

/** A length of time from milliseconds; its unit never stands alone on a line. */
export const length = (ms) => spelled(ms).replaceAll(" ", "\u00a0");

function spelled(ms) {
  const seconds = ms / 1000;
  if (seconds < 0.0005) return "0 s";
  if (seconds < 1) return `${Math.round(ms)} ms`;
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.round((seconds % 86400) / 3600)} h`;
}

/** Milliseconds since 1970 of an RFC 3339 time; null of null. */
export const at = (text) => (text === null || text === undefined ? null : Date.parse(text));

let utc = stored("rollrace.utc") === "yes";

/** Whether times are shown in UTC. */
export const inUtc = () => utc;

/** Shows them in UTC, or in the browser's own zone. */
export function setUtc(on) {
  utc = on;
  store("rollrace.utc", on ? "yes" : "no");
}

/** The zone that times are shown in: `UTC` or `UTC+2`. */
export function zone(ms = Date.now()) {
  const minutes = utc ? 0 : -new Date(ms).getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `UTC${minutes < 0 ? "−" : "+"}${hours}${rest ? `:${String(rest).padStart(2, "0")}` : ""}`;
}

function parts(ms) {
  const date = new Date(ms);
  const shifted = utc ? date : new Date(ms - date.getTimezoneOffset() * 60_000);
  return shifted.toISOString();
}

/** A time of day, with the date where that is not today's. */
export function time(ms, today = Date.now()) {
  if (ms === null) return "";
  const [day, clock] = parts(ms).split("T");
  const shown = clock.slice(0, 8);
  return day === parts(today).slice(0, 10) ? shown : `${day} ${shown}`;
}

/** A point in time as an element: short to read, exact when asked, or to the millisecond at once. */
export function moment(text, today, exact = false) {
  if (!text) return null;
  const ms = at(text);
  const shown = time(ms, today) + (exact ? parts(ms).slice(19, 23) : "");
  return h("time", { datetime: text, title: `${parts(ms).replace("T", " ").slice(0, 23)} ${zone(ms)}` }, shown);
}

/** `3 → 4`, by number where there is one. */
export function revisions(rollout) {
  const name = (revision) => (revision ? (revision.revision ?? revision.hash) : "?");
  return `${name(rollout.from)} → ${name(rollout.to)}`;
}

/** When a connection failed: an established one when it was ended, any other when it was begun. */
export const failedAt = (failure) => (ENDED.includes(failure.class) ? failure.ended : failure.first_syn);

/** Address and port as one writes them. */
export const socket = ({ address, port }) => (address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`);

/** Something small that this browser remembers; null if it remembers nothing. */
export function stored(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/** Remembers it, if the browser may. */
export function store(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Then it is forgotten with the page.
  }
}

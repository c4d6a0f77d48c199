// One rollout: its figures, its timeline, why, and the failures one by one.

import { CLASSES, at, count, failedAt, glyph, h, inOrder, length, moment, plural, revisions, socket, zone } from "./words.js";
import { classes, failed, risk, state } from "./list.js";
import { chosen, convergence, timeline, zooms } from "./timeline.js";

const LISTED = 200;
/** No picture is drawn narrower than this. */
const NARROWEST = 240;

/** The view: made once a rollout, then shown what is new. */
export class View {
  #parts = {};
  #shown = {};
  #zoom = null;
  #everyLane = false;
  #data = null;

  constructor() {
    const part = (name, attributes = {}) => (this.#parts[name] = h("div", { class: name, ...attributes }));
    this.element = h("article", { class: "rollout", "aria-labelledby": "rollout-title" },
      part("head"), part("figures"),
      h("div", { class: "columns" },
        h("div", { class: "pictures" }, part("picture"), part("settling")),
        part("explained")),
      part("listed"), part("pods"));
    new ResizeObserver(() => this.#draw()).observe(this.#parts.picture);
  }

  /** Shows it as it is now. */
  show(data) {
    this.#data = data;
    const { rollout, now } = data;
    this.#put("head", [rollout.id, rollout.from, rollout.to], () => head(rollout));
    this.#put("figures", [rollout, Math.floor(now / 1000), zone()], () => figures(rollout, now));
    this.#put("listed", [data.failures, data.matching, zone()], () => listed(data));
    this.#put("pods", [data.lanes, zone()], () => pods(data));
    this.#put("explained", [data.explained], () => explained(data.explained));
    this.#parts.explained.hidden = !data.explained;
    this.#draw();
  }

  /** Replaces a part if what it shows has changed; what is focused or open in it stays so. */
  #put(name, from, make) {
    const key = JSON.stringify(from);
    if (this.#shown[name] === key) return;
    this.#shown[name] = key;
    const part = this.#parts[name];
    const open = [...part.querySelectorAll("details[open]")].map((each) => each.dataset.key);
    const focused = part.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    part.replaceChildren(...[make()].flat(4).filter(Boolean));
    for (const each of part.querySelectorAll("details")) each.open = open.includes(each.dataset.key);
    if (focused) part.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  #draw() {
    const data = this.#data;
    const { clientWidth } = this.#parts.picture;
    if (!data || clientWidth === 0) return;
    const { paddingLeft, paddingRight } = getComputedStyle(this.#parts.picture);
    const width = Math.max(NARROWEST, Math.floor(clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight)));
    // All failures are in the first picture; when the last stale entry goes may be two minutes later.
    const offered = zooms(data);
    const zoom = offered.includes(this.#zoom) ? this.#zoom : "failures";
    const moves = data.rollout.completed ? 0 : data.now;
    const { shown, hidden } = chosen(data, this.#everyLane);
    this.#put("picture", [width, zoom, offered, shown.length, moves, data.rollout, data.lanes, data.failures, data.gaps, zone()], () => [
      h("div", { class: "picture-head" }, h("h2", {}, "Timeline"), offered.length > 1 ? this.#zooms(offered, zoom) : null),
      legend(data),
      data.lanes.length === 0 ? h("p", { class: "note" }, data.lanesKnown ? "None of its pods has been seen in a slice." : "The lives of its pods are not known any more: it was before the machine's last boot.") : null,
      timeline(data, { width, zoom, lanes: shown }),
      hidden > 0 ? h("p", { class: "note" }, `${plural(hidden, "pod")} without a failure not drawn. `, h("button", {
        type: "button", "data-key": "every lane", onclick: () => { this.#everyLane = true; this.#draw(); },
      }, "Draw all")) : null,
      data.matching > data.failures.length ? h("p", { class: "note" }, `Drawn are the newest ${count(data.failures.length)} of ${count(data.matching)} failures.`) : null,
      data.leftOut > 0 ? h("p", { class: "note" }, `${plural(data.leftOut, "more pod")} not shown.`) : null,
    ]);
    const { convergence: measured } = data.rollout;
    this.#put("settling", [width, measured], () => settling(measured, width));
  }

  #zooms(offered, zoom) {
    return h("div", { class: "zooms", role: "group", "aria-label": "What the timeline shows" }, offered.map((name) => h("button", {
      type: "button", "aria-pressed": String(zoom === name), "data-key": `zoom-${name}`,
      onclick: () => { this.#zoom = name; this.#draw(); },
    }, ZOOM_NAMES[name])));
  }
}

const ZOOM_NAMES = { race: "The race", failures: "All failures", tail: "Until the tail's end" };

function head(rollout) {
  const images = (revision) => (revision?.images?.length ? revision.images.join(", ") : null);
  const [from, to] = [images(rollout.from), images(rollout.to)];
  return [
    h("p", { class: "crumbs" }, h("a", { href: "#", "data-key": "back" }, "← Rollouts")),
    h("h1", { id: "rollout-title" }, h("span", { class: "kind" }, rollout.kind), h("span", { class: "dim" }, `${rollout.namespace}/`), rollout.name, h("span", { class: "revision" }, revisions(rollout))),
    to && from !== to ? h("p", { class: "images" }, from ? [h("code", {}, from), " → "] : null, h("code", {}, to)) : null,
  ];
}

function figures(rollout, now) {
  const measured = rollout.convergence.filter((known) => known.seconds !== null);
  const slowest = measured.reduce((best, known) => (best && best.seconds >= known.seconds ? best : known), null);
  const unmeasured = rollout.convergence.length - measured.length;
  const window = rollout.first_failure ? length(at(rollout.last_failure) - at(rollout.first_failure)) : null;
  const figure = (name, value, more) => h("div", {}, h("dt", {}, name), h("dd", {}, value), more ? h("dd", { class: "more" }, more) : null);
  return h("dl", {},
    figure("Failed", failed(rollout), classes(rollout.failures)),
    figure("State", state(rollout, now), ["started ", moment(rollout.started, now)]),
    figure("After completion", rollout.completed ? count(rollout.after) : "not complete", rollout.last_failure && rollout.after > 0 ? ["last one ", moment(rollout.last_failure, now)] : null),
    figure("Failures lasted", window ?? "–", window ? "from the first to the last" : "none failed"),
    rollout.failed > 0 ? figure("Whose", whose(rollout.clients), rollout.nodes.length > 1 ? whose(Object.fromEntries(rollout.nodes.map((seen) => [seen.node, Object.values(seen.failures).reduce((sum, number) => sum + number, 0)]))) : null) : null,
    figure("Longest convergence", slowest ? `${slowest.seconds.toFixed(2)} s` : "not measured",
      [slowest ? `on ${slowest.node}, at most ${slowest.precision_seconds.toFixed(1)} s too long` : null,
        unmeasured > 0 ? `${slowest ? "; " : ""}${plural(unmeasured, "pod")} not measured` : null]),
    figure("Last old pod gone", rollout.last_old_pod_gone ? length(at(rollout.last_old_pod_gone) - at(rollout.started)) : "not seen yet", rollout.last_old_pod_gone ? "after the start" : null),
    figure("Still at risk", risk(rollout, now), rollout.stale.peak > 0 ? `at most ${plural(rollout.stale.peak, "stale conntrack entry", "stale conntrack entries")} at a time` : null),
    rollout.lower_bound ? figure("Coverage", "lower bounds", partly(rollout)) : null);
}

/** The few with the most, as `name 12`. */
function whose(counts) {
  const most = Object.entries(counts).filter(([, number]) => number > 0).sort(([, a], [, b]) => b - a);
  if (most.length === 0) return h("span", { class: "dim" }, "not known");
  const shown = most.slice(0, 3).map(([name, number]) => `${name || "unknown"} ${count(number)}`);
  return shown.join(", ") + (most.length > 3 ? ` and ${count(most.length - 3)} more` : "");
}

function partly(rollout) {
  return rollout.nodes.filter((seen) => seen.lower_bound).map((seen) => {
    const gaps = seen.covered.gaps > 0 ? plural(seen.covered.gaps, "gap") : null;
    return `${seen.node}: ${gaps ?? "the agent came when it may have been under way"}`;
  }).join("; ");
}

function legend({ failures, lanes }) {
  const names = inOrder(new Set(failures.map((failure) => failure.class)));
  const phase = (name, label) => h("li", {}, h("span", { class: `swatch ${name}`, "aria-hidden": "true" }), label);
  return h("ul", { class: "legend", "aria-label": "Legend" },
    lanes.length > 0 ? [phase("starting", "not ready yet"), phase("serving", "serving"), phase("leaving", "leaving"), phase("closed", "listener closed")] : null,
    names.map((name) => h("li", { class: `of-${name}`, title: CLASSES[name]?.what ?? "" }, glyph(name), name)));
}

function settling(measured, width) {
  if (measured.length === 0) return null;
  const rows = measured.map((known) => h("tr", {},
    h("td", {}, known.node), h("td", {}, h("code", {}, known.pod)),
    h("td", { class: "number" }, known.seconds === null ? h("em", {}, "not measured") : `${known.seconds.toFixed(2)} s`),
    h("td", { class: "number" }, known.seconds === null ? "–" : `${known.precision_seconds.toFixed(2)} s`),
    h("td", { class: "number" }, count(known.fresh_syns_after))));
  return [
    h("h2", {}, "Convergence"),
    h("p", { class: "note" }, "From a pod's deletion to the last new connection that a node's proxy still sent to it: what a preStop sleep must outlast. A lower bound: with little traffic the last connection comes early."),
    convergence(measured, { width }),
    details("convergence", "As a table", table("Convergence by node and pod", ["Node", "Pod", "Convergence", "Too long by at most", "New connections after"], rows, 2)),
  ];
}

const WEIGHTS = { "✗": "fault", "!": "risk", "✓": "fine" };

/** A line of the text: an item, or what is indented below it: words, or what can be copied as it is. */
function line(text, isVerbatim) {
  if (text.startsWith(" ")) return isVerbatim ? h("code", { class: "verbatim" }, text.slice(4)) : h("p", { class: "because" }, text.trim());
  const [, mark, rest, rule] = text.match(/^(\S+ )?(.*?)(?: \[([a-z_]+)\])?$/);
  return h("p", { class: `item ${WEIGHTS[mark?.trim()] ?? ""}` }, h("span", { class: "item-mark" }, mark), rest, rule ? h("code", { class: "rule" }, ` ${rule}`) : null);
}

/** The text of `rollrace explain` in sections; its patch can be copied. */
function explained(told) {
  if (!told) return null;
  // The heading and what happened when are told by the page itself.
  const sections = told.text.split(/^(?=[A-Z][A-Z ,']+$)/m).slice(1).filter((section) => !section.startsWith("WHAT HAPPENED"));
  const shown = sections.map((section) => {
    const [title, ...lines] = section.trimEnd().split("\n");
    const words = title[0] + title.slice(1).toLowerCase();
    return [h("h3", {}, words), lines.filter(Boolean).map((each) => line(each, title === "WHAT TO CHANGE"))];
  });
  const copy = told.patch && navigator.clipboard ? h("button", {
    type: "button", "data-key": "copy",
    onclick: async (event) => {
      const button = event.currentTarget;
      await navigator.clipboard.writeText(told.patch);
      button.textContent = "Copied";
    },
  }, "Copy the patch") : null;
  return [h("div", { class: "picture-head" }, h("h2", {}, "Explained"), copy), shown];
}

function listed({ failures, matching, now }) {
  if (matching === 0) return null;
  const newest = failures.slice(-LISTED).reverse();
  const rows = newest.map((failure) => h("tr", {},
    h("td", {}, moment(failedAt(failure), now, true)),
    h("td", { class: `of-${failure.class}` }, glyph(failure.class), failure.class),
    h("td", {}, h("code", {}, socket(failure.client))),
    h("td", {}, failure.service || h("span", { class: "dim" }, "unknown")),
    h("td", {}, h("code", {}, failure.pod || "unknown")),
    h("td", {}, failure.phase),
    h("td", { class: "evidence" }, failure.evidence.join("; "))));
  const shown = newest.length < matching ? `The newest ${count(newest.length)} of ${count(matching)}` : `All ${count(matching)}`;
  return details("failures", `${shown}, one by one`, table("Failures, newest first", ["At", "Class", "Client", "Service", "Pod", "Phase", "Evidence"], rows), "Failures");
}

function pods({ lanes, now }) {
  if (lanes.length === 0) return null;
  const cell = (text, exact = true) => h("td", {}, moment(text, now, exact) ?? h("span", { class: "dim" }, "–"));
  const rows = lanes.map((lane) => h("tr", {},
    h("td", {}, h("code", {}, lane.pod)), h("td", {}, lane.side), h("td", {}, lane.node ?? ""),
    h("td", {}, lane.endpoints.map(socket).join(", ")),
    cell(lane.ready), cell(lane.deleted, false), cell(lane.leaving), cell(lane.listener_closed), cell(lane.gone)));
  return details("pods", "The lanes as a table", table("Pods", ["Pod", "Side", "Node", "Address", "Ready", "Deleted (to the second)", "Leaving", "Listener closed", "Gone"], rows), "Pods");
}

/** A table; the columns from the `numbers`th on are numbers. */
function table(name, columns, rows, numbers = columns.length) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name, "data-key": `table ${name}` },
    h("table", { "aria-label": name },
      h("thead", {}, h("tr", {}, columns.map((column, index) => h("th", { scope: "col", class: index >= numbers ? "number" : null }, column)))),
      h("tbody", {}, rows)));
}

function details(key, summary, content, title) {
  return [title ? h("h2", {}, title) : null, h("details", { "data-key": key }, h("summary", { "data-key": `${key} summary` }, summary), content)];
}

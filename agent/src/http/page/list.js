// The list of rollouts, newest first.

import { at, count, glyph, h, inOrder, length, moment, plural, revisions, share } from "./words.js";
import { isLive } from "./join.js";

const COLUMNS = ["Workload", "Revision", "Started", "State", "Failed", "Classes", "After completion", "Still at risk"];

/** The list, or why there is nothing in it. */
export function list(rollouts, { now, since, nodes, older }) {
  if (rollouts.length === 0) return nothing(since, nodes);
  const head = h("tr", { role: "row" }, COLUMNS.map((name) => h("th", { scope: "col", role: "columnheader" }, name)));
  return h("section", { "aria-labelledby": "list-title" },
    h("h1", { id: "list-title" }, plural(rollouts.length, "rollout")),
    h("table", { class: "list", role: "table", "aria-labelledby": "list-title" },
      h("thead", { role: "rowgroup" }, head),
      h("tbody", { role: "rowgroup" }, rollouts.map((rollout) => row(rollout, now)))),
    older > 0 ? h("p", { class: "note" }, `The newest; ${plural(older, "older one")} not listed here: \`rollrace report\` lists all.`) : null);
}

function nothing(since, nodes) {
  const told = since
    ? [`No rollout has touched ${nodes > 1 ? "these nodes'" : "this node's"} connections since `, moment(since, Date.now()), ", when the watch began. What came before is not known."]
    : ["Not watching yet: what happens until then is not known."];
  return h("section", { class: "empty" }, h("h1", {}, "No rollout"), h("p", {}, told));
}

/** The address of a rollout within the page. */
export const address = (id) => `#rollout=${encodeURIComponent(id)}`;

function row(rollout, now) {
  const cells = [
    h("a", { href: address(rollout.id), "data-key": rollout.id }, h("span", { class: "dim" }, `${rollout.namespace}/`), rollout.name),
    [revisions(rollout), rollout.from ? null : h("span", { class: "dim" }, " first seen")],
    moment(rollout.started, now),
    state(rollout, now),
    failed(rollout),
    classes(rollout.failures),
    rollout.failed === 0 ? none() : count(rollout.after),
    risk(rollout, now),
  ];
  return h("tr", { role: "row", class: rollout.failed > 0 ? "broke" : "clean" },
    cells.map((content, index) => h("td", { role: "cell", "data-label": COLUMNS[index] },
      content, index === 0 ? h("span", { class: "kind" }, rollout.kind) : null)));
}

const none = () => h("span", { class: "dim" }, "–");

/** Where it stands, in words. */
export function state(rollout, now) {
  const took = (end) => length(at(end) - at(rollout.started));
  if (rollout.superseded && !rollout.completed) return h("span", { class: "state" }, "superseded");
  if (!rollout.completed) return h("span", { class: "state running" }, `running for ${length(Math.max(0, now - at(rollout.started)))}`);
  const tail = isLive(rollout, now) && !rollout.last_old_pod_gone ? ", old pods still there" : "";
  return h("span", { class: "state" }, `complete after ${took(rollout.completed)}${tail}`);
}

/** How many of how many; a lower bound says that it is one. */
export function failed(rollout) {
  const bound = rollout.lower_bound;
  const number = `${bound ? "≥ " : ""}${count(rollout.failed)}`;
  // Attempts are new connections: those that were open already are no part of them.
  const ended = (rollout.failures.reset ?? 0) + (rollout.failures.cut ?? 0);
  const begun = rollout.failed - ended;
  return [
    h("strong", { class: rollout.failed > 0 ? "bad" : "good" }, number),
    h("span", { class: "dim" }, ended > 0 ? `: ${count(ended)} open, ${count(begun)} of ${count(rollout.attempts)} new` : ` of ${count(rollout.attempts)}`),
    begun > 0 && rollout.attempts > 0 ? h("span", { class: "share" }, ` · ${share(begun, rollout.attempts)}`) : null,
    bound ? h("span", { class: "badge", title: "not all of it was covered, or something was lost: there may have been more" }, "lower bound") : null,
  ];
}

/** Counts by class, each with its mark. */
export function classes(failures) {
  const names = inOrder(Object.keys(failures)).filter((name) => failures[name] > 0);
  if (names.length === 0) return none();
  return h("ul", { class: "classes" }, names.map((name) =>
    h("li", { class: `of-${name}` }, glyph(name), h("span", { class: "class-name" }, name), " ", count(failures[name]))));
}

/** What stale conntrack entries may still break, and until when. */
export function risk(rollout, now) {
  const { stale } = rollout;
  const unknown = stale.unmeasured.length === 0 ? null
    : h("span", { class: "dim" }, rollout.nodes.length > 1 ? `not measured on ${stale.unmeasured.join(", ")}` : "not measured");
  const isOver = stale.expires && at(stale.expires) <= now;
  if (stale.entries === 0 || isOver) return unknown ?? h("span", { class: "dim" }, stale.peak > 0 ? "nothing any more" : "nothing");
  const until = stale.expires
    ? [" until ", moment(stale.expires, now)]
    : ", no end in sight: clients keep them alive";
  return [h("span", { class: "bad" }, plural(stale.entries, "stale entry", "stale entries"), until), unknown ? ["; ", unknown] : null];
}

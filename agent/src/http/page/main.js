// The page: asks, joins, shows; says when what it shows is old.

import { NotFound, Poll, all, get } from "./ask.js";
import * as join from "./join.js";
import { list } from "./list.js";
import { View } from "./rollout.js";
import { at, count, h, inUtc, length, moment, plural, setUtc, store, stored, time, zone } from "./words.js";

/** The newest so many are asked for, failures of all agents together. */
const MARKS = 2_000;
const ROLLOUTS = 200;
const EXPLAIN_MS = 30_000;
const $ = (id) => document.getElementById(id);
const content = $("content");

const known = { rollouts: [], status: [], unanswered: [], fetched: null, failing: null, now: Date.now() };
let view = null;
let detail = null;
let lastExplained = { key: null, told: null };

const wanted = () => {
  const id = location.hash.match(/^#rollout=(.+)$/)?.[1];
  return id ? decodeURIComponent(id) : null;
};

async function once() {
  try {
    const [status, rollouts] = await Promise.all([all("api/v1/status"), all(`api/v1/rollouts?limit=${ROLLOUTS}`)]);
    known.status = status.filter((each) => each.answer);
    known.unanswered = rollouts.filter((each) => each.error);
    const scanned = known.status.filter(({ answer }) => answer.conntrack_scan?.scans > 0).map(({ answer }) => answer.node);
    known.rollouts = join.rollouts(rollouts, new Set(scanned));
    known.older = Math.max(0, ...rollouts.map(({ answer }) => (answer?.matching ?? 0) - (answer?.rollouts.length ?? 0)));
    known.now = Math.max(...rollouts.map(({ answer }) => at(answer?.now) ?? 0), 0) || Date.now();
    const id = wanted();
    detail = id ? { id, ...(await details(id)) } : null;
    [known.fetched, known.failing] = [Date.now(), null];
  } catch (error) {
    known.failing ??= { since: Date.now() };
    known.failing.why = error.message;
  }
  show();
  return known.status.length;
}

/** What is told of one rollout alone, by each node under the id that it has there. */
async function details(id) {
  const rollout = find(id);
  if (!rollout) return { lanes: [], failures: [] };
  const asked = rollout.ids.map(async (own) => {
    const nodes = new Set(rollout.nodes.filter((seen) => seen.id === own).map((seen) => seen.node));
    const of = async (path) => (await ofRollout(path)).filter(({ answer }) => nodes.has(answer?.node));
    const query = `rollout=${encodeURIComponent(own)}`;
    const limit = Math.max(20, Math.floor(MARKS / known.status.length));
    return Promise.all([of(`api/v1/lanes?${query}`), of(`api/v1/failures?${query}&limit=${limit}`)]);
  });
  const [told, explained] = await Promise.all([Promise.all(asked), explain(rollout)]);
  return { explained, lanes: told.flatMap(([lanes]) => lanes), failures: told.flatMap(([, failures]) => failures) };
}

/** Why it broke connections; asked again only when it has changed, or after a while: it looks at everything. */
async function explain(rollout) {
  const key = JSON.stringify([rollout.id, rollout.failures, rollout.completed, rollout.last_old_pod_gone, rollout.superseded, rollout.convergence.length, Math.floor(Date.now() / EXPLAIN_MS)]);
  if (lastExplained.key === key) return lastExplained.told;
  try {
    lastExplained = { key, told: await get(`api/v1/explain?rollout=${encodeURIComponent(rollout.id)}`) };
  } catch (error) {
    if (!(error instanceof NotFound)) throw error;
    lastExplained = { key, told: null };
  }
  return lastExplained.told;
}

const find = (id) => known.rollouts.find((each) => each.ids.includes(id));

/** What may be missing: it was forgotten meanwhile, or the address is newer than the agent. */
async function ofRollout(path) {
  try {
    return await all(path);
  } catch (error) {
    if (error instanceof NotFound) return [];
    throw error;
  }
}

const poll = new Poll(once, () => known.failing !== null || known.rollouts.some((rollout) => join.isLive(rollout, known.now))
  || known.status.some(({ answer }) => answer.playback && !answer.playback.finished));

function show() {
  showAge();
  showWho();
  showCoverage();
  if (known.fetched === null) return;
  const id = wanted();
  if (id) showRollout(id);
  else showList();
}

function showList() {
  if (view) {
    view = null;
    content.replaceChildren();
  }
  document.title = "rollrace";
  const focused = document.activeElement?.dataset?.key;
  const since = known.status.map(({ answer }) => answer.coverage.since).filter(Boolean).sort()[0] ?? null;
  content.replaceChildren(list(known.rollouts, { now: known.now, since, older: known.older, nodes: known.status.length }));
  if (focused) content.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function showRollout(id) {
  const rollout = find(id);
  if (detail?.id !== id) return;
  if (!rollout) {
    view = null;
    content.replaceChildren(h("section", { class: "empty" }, h("h1", {}, "No such rollout"),
      h("p", {}, "The agents do not know it, or not any more. ", h("a", { href: "#" }, "All rollouts"))));
    return;
  }
  document.title = `${rollout.namespace}/${rollout.name} · rollrace`;
  if (view?.id !== id) {
    view = new View();
    view.id = id;
    content.replaceChildren(view.element);
    content.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  const { listed, matching } = join.failures(detail.failures);
  const lanes = join.lanes(detail.lanes);
  const answers = detail.lanes.map(({ answer }) => answer).filter(Boolean);
  view.show({
    rollout, lanes, explained: detail.explained, failures: listed, matching, now: known.now,
    lanesKnown: answers.some((answer) => answer.known),
    leftOut: answers.reduce((total, answer) => total + answer.left_out, 0),
    gaps: known.status.flatMap(({ answer }) => answer.coverage.gaps.map((gap) => ({ from: at(gap.from), until: at(gap.until), why: `${answer.node}: ${gap.why}` }))),
    coveredSince: known.status.length === 1 ? at(known.status[0].answer.coverage.since) : null,
  });
}

/** Whether what is shown is of now, and if not since when. */
function showAge() {
  const { failing, fetched } = known;
  const alarm = $("alarm");
  document.body.classList.toggle("old", failing !== null);
  alarm.hidden = failing === null;
  if (failing) {
    const from = fetched === null ? "Nothing has been heard of it yet." : ["What is below is from ", h("strong", {}, time(fetched)), ` (${length(Date.now() - fetched)} ago).`];
    alarm.replaceChildren("No answer since ", h("strong", {}, time(failing.since)), ` (${failing.why}). `, ...[from].flat());
  }
  const playback = known.status.map(({ answer }) => answer.playback).find(Boolean);
  const said = failing ? "no answer" : fetched === null ? "asking…" : playback ? (playback.finished ? "a recording" : "a recording, playing") : "live";
  const live = $("live");
  if (live.textContent !== said) live.textContent = said;
  live.className = `live ${failing ? "lost" : playback ? "recorded" : "on"}`;
  live.title = fetched === null ? "" : `asked last at ${time(fetched)}`;
}

function showWho() {
  const names = known.status.map(({ answer }) => answer.node);
  const playback = known.status.map(({ answer }) => answer.playback).find(Boolean);
  const who = names.length > 3 ? plural(names.length, "node") : names.length > 1 ? `nodes ${names.join(", ")}` : names.length === 1 ? `node ${names[0]}` : "";
  $("who").textContent = playback ? `${who}, recorded in ${playback.file}` : who;
}

/** What is not known, and why: it is never shown as zero. */
function showCoverage() {
  const notes = [];
  for (const { agent, node, error, since } of known.unanswered) {
    notes.push(["bad", [node ? `${node} (${agent}) does not answer` : `${agent} does not answer`, since ? [" since ", moment(since)] : null, ` (${error}): its connections are not counted here.`]]);
  }
  for (const { answer } of known.status) {
    const { node, coverage, losses } = answer;
    if (!coverage.since) notes.push(["bad", `${node} does not watch yet: ${answer.not_ready.join("; ") || "it has just started"}.`]);
    else if (!answer.ready && !answer.playback) notes.push(["warn", `${node} is not ready: ${answer.not_ready.join("; ")}. Verdicts wait.`]);
    const lost = Object.entries(losses).filter(([, number]) => number > 0);
    if (answer.lower_bound) notes.push(["warn", `${node} lost ${lost.map(([reason, number]) => `${count(number)} (${reason})`).join(", ")}: its counts are lower bounds.`]);
    const { gaps } = coverage;
    if (gaps.length > 0) {
      const last = gaps[gaps.length - 1];
      notes.push(["warn", [`${node} has ${plural(gaps.length, "gap")}; the last `, moment(last.from), " to ", moment(last.until), `: ${last.why}.`]]);
    }
    if (answer.undecided_failures > 0) notes.push(["info", `${node}: ${plural(answer.undecided_failures, "failure waits", "failures wait")} for evidence, at most 30 s.`]);
    if (answer.playback?.cut_off_at) notes.push(["warn", `The recording is cut off at line ${answer.playback.cut_off_at}.`]);
    if (answer.conntrack_scan?.error) notes.push(["warn", `${node} cannot look at its conntrack table: ${answer.conntrack_scan.error}`]);
    for (const denied of answer.cluster.denied ?? []) notes.push(["warn", `${node} may not ${denied.verb} ${denied.resource}: ${denied.costs}`]);
  }
  const shown = notes.slice(0, 8).map(([kind, text]) => h("p", { class: kind }, text));
  if (notes.length > shown.length) shown.push(h("p", { class: "warn" }, `${plural(notes.length - shown.length, "more note")} of this kind.`));
  const place = $("coverage");
  const isNew = shown.map((note) => note.textContent).join("\n") !== [...place.children].map((note) => note.textContent).join("\n");
  if (isNew) place.replaceChildren(...shown);
}

// The theme, and the zone of the times.
const THEMES = ["auto", "light", "dark"];

function theme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  store("rollrace.theme", name);
  $("theme").textContent = `Theme: ${name}`;
  $("theme").dataset.now = name;
}

function nextTheme() {
  theme(THEMES[(THEMES.indexOf($("theme").dataset.now) + 1) % THEMES.length]);
}

function showZone() {
  $("zone").textContent = `Times: ${inUtc() ? "UTC" : zone()}`;
}

function nextZone() {
  setUtc(!inUtc());
  showZone();
  show();
}

/** Up and down in the list. */
function move(step) {
  const links = [...content.querySelectorAll("table.list a[data-key]")];
  if (links.length === 0) return false;
  const index = links.indexOf(document.activeElement);
  const next = index === -1 ? (step > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, index + step));
  links[next].focus();
  return true;
}

/** Where the list was left, to come back to. */
let left = null;

const KEYS = {
  ArrowDown: () => move(1), j: () => move(1), ArrowUp: () => move(-1), k: () => move(-1),
  Escape: () => { if (wanted()) location.hash = ""; },
  t: nextTheme, u: nextZone,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const act = KEYS[event.key];
  if (!act) return;
  const inside = event.target.closest?.(".scroll, pre, summary");
  if (inside && event.key.startsWith("Arrow")) return;
  if (act() !== false) event.preventDefault();
});

addEventListener("hashchange", async () => {
  if (wanted()) left = wanted();
  show();
  await poll.now();
  if (!wanted() && left) content.querySelector(`[data-key="${CSS.escape(left)}"]`)?.focus();
});

content.addEventListener("click", (event) => {
  const row = event.target.closest("table.list tbody tr");
  if (row && !event.target.closest("a") && !String(getSelection())) row.querySelector("a").click();
});

$("theme").addEventListener("click", nextTheme);
$("zone").addEventListener("click", nextZone);
theme(THEMES.includes(stored("rollrace.theme")) ? stored("rollrace.theme") : "auto");
showZone();
setInterval(showAge, 1_000);
poll.now();

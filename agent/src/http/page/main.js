// The page: asks, joins, shows; says when what it shows is old.

import { NotFound, Poll, all } from "./ask.js";
import * as join from "./join.js";
import { list } from "./list.js";
import { View } from "./rollout.js";
import { at, count, h, inUtc, length, moment, plural, setUtc, store, stored, time, zone } from "./words.js";

const MARKS = 2_000;
const $ = (id) => document.getElementById(id);
const content = $("content");

const known = { rollouts: [], status: [], unanswered: [], fetched: null, failing: null, now: Date.now() };
let view = null;
let detail = null;

const wanted = () => {
  const id = location.hash.match(/^#rollout=(.+)$/)?.[1];
  return id ? decodeURIComponent(id) : null;
};

async function once() {
  const id = wanted();
  try {
    const [status, rollouts, lanes, failures] = await Promise.all([
      all("api/v1/status"),
      all("api/v1/rollouts"),
      id ? ofRollout(`api/v1/lanes?rollout=${encodeURIComponent(id)}`) : null,
      id ? ofRollout(`api/v1/failures?rollout=${encodeURIComponent(id)}&limit=${MARKS}`) : null,
    ]);
    known.status = status.filter((each) => each.answer);
    known.unanswered = rollouts.filter((each) => each.error);
    known.rollouts = join.rollouts(rollouts, new Set(known.status.filter(({ answer }) => answer.conntrack_scan?.scans > 0).map(({ answer }) => answer.node)));
    known.now = Math.max(...rollouts.map(({ answer }) => at(answer?.now) ?? 0), 0) || Date.now();
    detail = id ? { id, lanes, failures } : null;
    [known.fetched, known.failing] = [Date.now(), null];
  } catch (error) {
    known.failing ??= { since: Date.now() };
    known.failing.why = error.message;
  }
  show();
}

/** What may be missing: an agent that does not know of it, or an address that is newer than the agent. */
async function ofRollout(path) {
  try {
    return await all(path);
  } catch (error) {
    if (error instanceof NotFound) return null;
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
  content.replaceChildren(list(known.rollouts, { now: known.now, since, nodes: known.status.length }));
  if (focused) content.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function showRollout(id) {
  const rollout = known.rollouts.find((each) => each.id === id);
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
  const { listed, matching } = join.failures(detail.failures ?? []);
  const lanes = join.lanes(detail.lanes ?? []);
  const answers = (detail.lanes ?? []).map(({ answer }) => answer).filter(Boolean);
  view.show({
    rollout, lanes, failures: listed, matching, now: known.now,
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
  for (const { url, node, error, since } of known.unanswered) {
    notes.push(["bad", [`${node ?? url} does not answer`, since ? [" since ", moment(since)] : null, ` (${error}): its connections are not counted here.`]]);
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

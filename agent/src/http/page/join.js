// What the nodes know, joined. One agent's answer is joined with nothing, and stays what it is.

import { failedAt } from "./words.js";

const sum = (items, of) => items.reduce((total, item) => total + (of(item) ?? 0), 0);

/** The earliest, or with -1 the latest, of RFC 3339 times in UTC; null if there is none. */
function extreme(times, sign = 1) {
  const known = times.filter(Boolean);
  if (known.length === 0) return null;
  return known.reduce((best, time) => (sign * (Date.parse(time) - Date.parse(best)) < 0 ? time : best));
}

/** Two nodes see a rollout begin at most so far apart. */
const APART_MS = 90_000;

/**
 * The rollouts of all agents, newest first; the same rollout seen by several nodes is one. `scanned`:
 * the nodes whose conntrack table has been looked at, so that no stale entry there means none.
 *
 * Each node counts for itself how often a template was rolled out to, so the ids of one rollout may
 * differ: it is the same if workload and target are, and they saw it at the same time.
 */
export function rollouts(answers, scanned) {
  const seen = answers.flatMap(({ answer }) => (answer?.rollouts ?? []).map((rollout) => ({ node: answer.node, scanned: scanned.has(answer.node), ...rollout })));
  seen.sort((a, b) => Date.parse(a.started) - Date.parse(b.started));
  const groups = [];
  const byTarget = new Map();
  for (const rollout of seen) {
    const target = `${rollout.uid}/${rollout.to.hash}`;
    const known = byTarget.get(target) ?? [];
    const same = known.findLast((group) => group.every((other) => other.node !== rollout.node) && group.some((other) => isSame(other, rollout)));
    if (same) {
      same.push(rollout);
    } else {
      const group = [rollout];
      groups.push(group);
      byTarget.set(target, [...known, group]);
    }
  }
  return groups.map(one).sort((a, b) => Date.parse(b.started) - Date.parse(a.started));
}

function isSame(earlier, later) {
  const ends = [earlier.completed, earlier.last_old_pod_gone].filter(Boolean).map((time) => Date.parse(time));
  const begun = Date.parse(later.started);
  return begun - Date.parse(earlier.started) <= APART_MS || ends.length === 0 || begun <= Math.max(...ends);
}

/** Counts by name, those of several added up. */
function added(all) {
  const total = {};
  for (const [name, number] of all.flatMap((counts) => Object.entries(counts ?? {}))) total[name] = (total[name] ?? 0) + number;
  return total;
}

/** One rollout as the nodes together know it. */
export function one(seen) {
  const [first] = seen;
  const failures = added(seen.map((rollout) => rollout.failures));
  const pick = (of, sign) => extreme(seen.map(of), sign);
  const stale = seen.map((rollout) => rollout.stale).filter(Boolean);
  return {
    ...first,
    from: seen.find((rollout) => rollout.from)?.from ?? null,
    nodes: seen,
    ids: [...new Set(seen.map((rollout) => rollout.id))],
    started: pick((rollout) => rollout.started),
    completed: pick((rollout) => rollout.completed),
    superseded: seen.some((rollout) => rollout.superseded),
    last_old_pod_gone: pick((rollout) => rollout.last_old_pod_gone),
    failures,
    clients: added(seen.map((rollout) => rollout.clients)),
    failed: sum(Object.values(failures), (number) => number),
    after: sum(seen, (rollout) => rollout.after),
    attempts: sum(seen, (rollout) => rollout.attempts),
    first_failure: pick((rollout) => rollout.first_failure),
    last_failure: pick((rollout) => rollout.last_failure, -1),
    // `node` is whose proxy it was; the pod's own node has no part in it.
    convergence: seen.flatMap((rollout) => rollout.convergence.map((known) => ({ ...known, node: rollout.node }))),
    lower_bound: seen.some((rollout) => rollout.lower_bound),
    stale: {
      entries: sum(stale, (known) => known.entries),
      peak: sum(stale, (known) => known.peak),
      expires: stale.some((known) => known.entries > 0 && !known.expires) ? null : extreme(stale.map((known) => known.expires), -1),
      unmeasured: seen.filter((rollout) => !rollout.scanned).map((rollout) => rollout.node),
    },
  };
}

/** The lanes of all agents: a pod that several nodes saw is one, at the earliest time any saw. */
export function lanes(answers) {
  const byPod = new Map();
  for (const { answer } of answers) {
    for (const lane of answer?.lanes ?? []) {
      byPod.set(lane.uid, [...(byPod.get(lane.uid) ?? []), lane]);
    }
  }
  const times = ["ready", "first_answer", "deleted", "leaving", "listener_closed", "gone", "removed"];
  return [...byPod.values()].map((seen) => {
    const joined = { ...seen[0], node: seen.find((lane) => lane.node)?.node ?? null };
    for (const name of times) joined[name] = extreme(seen.map((lane) => lane[name]));
    // An agent that came later found it there already.
    joined.appeared = seen.some((lane) => !lane.appeared) ? null : extreme(seen.map((lane) => lane.appeared));
    return joined;
  });
}

/** The failures of all agents, oldest first. */
export function failures(answers) {
  const listed = answers.flatMap(({ answer }) => (answer?.failures ?? []).map((failure) => ({ node: answer.node, ...failure })));
  listed.sort((a, b) => Date.parse(failedAt(a)) - Date.parse(failedAt(b)));
  return { listed, matching: sum(answers, ({ answer }) => answer?.matching) };
}

/** A rollout that goes on, or whose tail may: it is worth asking often. */
export function isLive(rollout, now) {
  if (rollout.stale.entries > 0 && (!rollout.stale.expires || Date.parse(rollout.stale.expires) > now)) return true;
  if (rollout.superseded) return false;
  if (!rollout.completed || !rollout.last_old_pod_gone) return !rollout.completed || now - Date.parse(rollout.completed) < 600_000;
  return now - Date.parse(rollout.last_old_pod_gone) < 130_000;
}

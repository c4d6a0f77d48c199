// One rollout as a picture: a lane a pod, failures as marks on it, what happened when as lines.

import { at, count, failedAt, inOrder, length, mark, plural, s } from "./words.js";

const BIN = 12;
const ROW = 14;
const BAR = 9;
const TOP = 54;

/** From when to when the picture goes: while pods come and go, until the last failure, or until no stale entry is left. */
export function span({ rollout, lanes, failures, now }, zoom) {
  const begin = at(rollout.started);
  const known = (times) => times.map(at).filter((time) => time !== null);
  const steps = known([rollout.started, rollout.completed, rollout.last_old_pod_gone,
    ...lanes.flatMap((lane) => [lane.leaving, lane.listener_closed, lane.side === "old" ? lane.gone : lane.ready])]);
  const broken = known(failures.map(failedAt));
  const isOver = rollout.completed || rollout.superseded;
  const ends = [...steps];
  if (zoom !== "race") ends.push(...broken);
  if (zoom === "tail") ends.push(...known([rollout.stale.expires]));
  if (!isOver) ends.push(now);
  const starts = known(lanes.filter((lane) => lane.side === "new").map((lane) => lane.appeared));
  let from = Math.min(begin, ...starts.filter((time) => begin - time < 60_000), ...broken.filter((time) => begin - time < 60_000));
  let until = Math.max(begin + 1_000, ...ends);
  const pad = (until - from) * 0.04;
  return { from: from - pad, until: until + pad, begin };
}

/** What there is to choose from: all failures, and what is worth a picture of its own. */
export function zooms(data) {
  const [race, failures, tail] = ["race", "failures", "tail"].map((zoom) => {
    const { from, until } = span(data, zoom);
    return until - from;
  });
  return [failures > 1.5 * race ? "race" : null, "failures", tail > failures ? "tail" : null].filter(Boolean);
}

/** More lanes than this are too many to look at: those without a failure are left out at first. */
const MANY = 60;

/** The lanes to draw, and how many are left out for want of a failure. */
export function chosen({ lanes, failures }, all) {
  if (all || lanes.length <= MANY) return { shown: lanes, hidden: 0 };
  const hit = new Set(failures.map((failure) => failure.pod));
  const shown = lanes.filter((lane) => hit.has(lane.pod));
  return { shown, hidden: lanes.length - shown.length };
}

/** The picture, `width` pixels wide, with these lanes. */
export function timeline(data, { width, zoom, lanes }) {
  const { rollout, failures, gaps, coveredSince, now } = data;
  const narrow = width < 620;
  const [left, right] = narrow ? [8, 34] : [Math.min(260, width * 0.26), 52];
  const range = span(data, zoom);
  const scale = (time) => left + ((time - range.from) / (range.until - range.from)) * (width - left - right);
  const inside = (time) => time !== null && time >= range.from && time <= range.until;
  const clamp = (time) => Math.min(Math.max(time, range.from), range.until);

  const groups = [
    ["old", `old pods, revision ${revision(rollout.from)}`],
    ["new", `new pods, revision ${revision(rollout.to)}`],
  ];
  const body = [];
  let y = TOP;
  const byLane = shareOut(lanes, failures);
  for (const [side, title] of groups) {
    const here = lanes.filter((lane) => lane.side === side);
    if (here.length === 0) continue;
    body.push(s("text", { x: narrow ? left : 0, y: y + 12, class: "group" }, title));
    y += 20;
    for (const lane of here) {
      const drawn = draw(lane, byLane.get(lane.uid) ?? [], y);
      body.push(drawn.element);
      y += drawn.height;
    }
    y += 8;
  }
  const homeless = byLane.get("") ?? [];
  if (homeless.length > 0) {
    body.push(s("text", { x: narrow ? left : 0, y: y + 12, class: "group" }, "no pod known"));
    y += 20;
    const drawn = draw(null, homeless, y);
    body.push(drawn.element);
    y += drawn.height;
  }
  const bottom = y + 4;

  return s("svg", {
    class: "timeline", width, height: bottom + 26, viewBox: `0 0 ${width} ${bottom + 26}`,
    role: "img", "aria-label": told(data),
  }, patterns(), notCovered(), axis(), lines(), body);

  function draw(lane, marks, top) {
    const names = inOrder(new Set(marks.map((failure) => failure.class)));
    const labelled = narrow && lane ? 14 : 0;
    const barY = top + labelled + Math.max(names.length * ROW, lane ? 6 : 0) + 2;
    const height = barY + (lane ? BAR : 0) + 9 - top;
    const parts = [s("rect", { x: left, y: top, width: width - left - right, height: height - 3, class: "ground" })];
    if (lane) {
      const label = narrow
        ? s("text", { x: left, y: top + 10, class: "pod" }, short(lane.pod, 40), node(lane))
        : s("text", { x: 0, y: barY + BAR, class: "pod" }, short(lane.pod, Math.floor(left / 7.4) - 5), node(lane));
      label.append(s("title", {}, `${lane.pod}${lane.node ? ` on ${lane.node}` : ""}`));
      parts.push(label, ...life(lane, barY));
    }
    names.forEach((name, index) => {
      const own = marks.filter((failure) => failure.class === name);
      const middle = top + labelled + index * ROW + ROW / 2 + 1;
      parts.push(...bins(own, name, middle));
      const total = own.length;
      if (total > 1) parts.push(s("text", { x: width - right + 8, y: middle + 4, class: `total of-${name}` }, `×${count(total)}`));
    });
    return { element: s("g", { class: `lane ${lane?.side ?? "none"}`, "data-pod": lane?.pod ?? "" }, parts), height };
  }

  function bins(own, name, middle) {
    const byBin = grouped(own.map((failure) => at(failedAt(failure))).filter(inside), (time) => Math.floor(scale(time) / BIN));
    return [...byBin.values()].map((times) => {
      const x = scale(times.reduce((total, time) => total + time, 0) / times.length);
      const size = 0.85 + Math.min(0.55, Math.log10(times.length) * 0.4);
      const element = mark(name, { transform: `translate(${x.toFixed(1)} ${middle}) scale(${size.toFixed(2)})`, "data-count": times.length });
      const [first, last] = [Math.min(...times), Math.max(...times)];
      const when = last - first < 50 ? offset(first) : `${offset(first)} to ${offset(last)}`;
      element.append(s("title", {}, `${plural(times.length, `${name} failure`)}, ${when}`));
      return element;
    });
  }

  function life(lane, barY) {
    const end = at(lane.gone);
    // What comes after now is not known.
    const last = end ?? Math.max(Math.min(range.until, now), range.from);
    const steps = [
      ["starting", at(lane.appeared) ?? (lane.ready ? null : range.from)],
      ["serving", at(lane.ready) ?? (lane.appeared ? null : range.from)],
      ["leaving", at(lane.leaving)],
      ["closed", at(lane.listener_closed)],
    ].filter(([, time]) => time !== null);
    // There when the agent came: its bar begins at the edge.
    if (!lane.appeared && steps.length > 0) steps[0][1] = Math.min(steps[0][1], range.from);
    const elements = steps.map(([name, time], index) => {
      const until = Math.min(steps[index + 1]?.[1] ?? last, last);
      if (until < range.from || time > range.until || until < time) return null;
      const [x, x2] = [scale(clamp(time)), scale(clamp(until))];
      return s("rect", { x, y: barY, width: Math.max(1, x2 - x), height: BAR, class: `life ${name}` },
        s("title", {}, `${lane.pod}: ${PHASES[name]}, ${offset(time)} to ${offset(until)}`));
    });
    const firstAnswer = at(lane.first_answer);
    if (lane.side === "new" && inside(firstAnswer) && firstAnswer > at(lane.ready)) {
      elements.push(s("path", { d: `M${scale(firstAnswer)} ${barY - 2}v${BAR + 4}`, class: "answers" }, s("title", {}, `first answered a SYN of this node, ${offset(firstAnswer)}`)));
    }
    if (inside(end)) {
      elements.push(s("path", { d: `M${scale(end)} ${barY - 3}v${BAR + 6}`, class: "end" }, s("title", {}, `gone, ${offset(end)}`)));
    }
    return elements;
  }

  function axis() {
    const step = stepFor((range.until - range.from) / Math.max(3, (width - left - right) / (narrow ? 60 : 90)));
    const ticks = [];
    for (let time = range.begin + Math.ceil((range.from - range.begin) / step) * step; time <= range.until; time += step) {
      const x = scale(time);
      ticks.push(s("path", { d: `M${x} ${TOP - 4}V${bottom}`, class: "grid" }),
        s("text", { x, y: bottom + 16, class: "tick" }, tick(time - range.begin, step)));
    }
    return ticks;
  }

  function lines() {
    const lastFailure = at(rollout.last_failure);
    const expires = rollout.stale.entries > 0 ? at(rollout.stale.expires) : null;
    const listed = [
      ["started", at(rollout.started), "started"],
      ["complete", at(rollout.completed), "complete"],
      ["gone", at(rollout.last_old_pod_gone), "old pods gone"],
      rollout.completed && lastFailure > at(rollout.completed) ? ["tail", lastFailure, "last failure"] : ["", null, ""],
      ["expires", expires, "stale entries expire"],
      !rollout.completed && !rollout.superseded ? ["now", now, "now"] : ["", null, ""],
    ].filter(([, time]) => inside(time)).sort((a, b) => a[1] - b[1]);
    const rows = [-Infinity, -Infinity, -Infinity];
    return listed.map(([name, time, label]) => {
      const x = scale(time);
      const text = name === "started" ? label : `${label} ${offset(time)}`;
      const wide = text.length * 6.4 + 10;
      const toLeft = x + wide > width - 4;
      const start = toLeft ? x - wide : x;
      const free = rows.findIndex((end) => end < start);
      const rowIndex = free === -1 ? 0 : free;
      rows[rowIndex] = start + wide;
      const labelY = 12 + rowIndex * 14;
      return s("g", { class: `line ${name}` },
        s("path", { d: `M${x} ${labelY - 9}V${bottom}` }),
        s("text", { x: toLeft ? x - 4 : x + 4, y: labelY, "text-anchor": toLeft ? "end" : "start" }, text));
    });
  }

  function notCovered() {
    const spans = [...gaps];
    if (coveredSince !== null && coveredSince > range.from) spans.push({ from: range.from, until: coveredSince, why: "before the agent watched" });
    return spans.filter(({ from, until }) => until >= range.from && from <= range.until).map(({ from, until, why }) => {
      const [x, x2] = [scale(clamp(from)), scale(clamp(until))];
      return s("rect", { x, y: TOP - 4, width: Math.max(3, x2 - x), height: bottom - TOP + 4, class: "not-covered" }, s("title", {}, `not covered: ${why}`));
    });
  }

  function offset(time) {
    const ms = time - range.begin;
    return `${ms < 0 ? "−" : "+"}${length(Math.abs(ms))}`;
  }
}

const PHASES = {
  starting: "not ready yet", serving: "serving", leaving: "leaving", closed: "listener closed, or still dialled after it",
};

const revision = (known) => (known ? (known.revision ?? known.hash) : "unknown");
const node = (lane) => (lane.node ? s("tspan", { class: "node" }, `  ${lane.node}`) : null);

/** The end of a pod's name is what tells it apart. */
function short(name, letters) {
  return name.length <= letters ? name : `…${name.slice(-(letters - 1))}`;
}

function shareOut(lanes, failures) {
  const uids = new Map(lanes.map((lane) => [lane.pod, lane.uid]));
  return grouped(failures, (failure) => uids.get(failure.pod) ?? "");
}

/** Items by what `of` says of each. */
function grouped(items, of) {
  const groups = new Map();
  for (const item of items) {
    const key = of(item);
    if (groups.has(key)) groups.get(key).push(item);
    else groups.set(key, [item]);
  }
  return groups;
}

function stepFor(least) {
  const steps = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000, 10_800_000, 43_200_000, 86_400_000];
  return steps.find((step) => step >= least) ?? least;
}

function tick(ms, step) {
  const sign = ms < 0 ? "−" : "";
  const size = Math.abs(ms);
  if (step >= 60_000) return `${sign}${Math.round(size / 60_000)} min`;
  return `${sign}${step < 1_000 ? (size / 1_000).toFixed(1) : Math.round(size / 1_000)} s`;
}

function patterns() {
  const lined = (id, angle, gap) => s("pattern", { id, width: gap, height: gap, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${angle})` },
    s("rect", { width: gap, height: gap, class: `${id}-back` }), s("path", { d: `M0 0V${gap}`, class: `${id}-line` }));
  return s("defs", {}, lined("hatch", 45, 5), lined("gap-hatch", -45, 7));
}

/** What the picture shows, in a sentence. */
function told({ rollout, lanes, failures }) {
  const by = inOrder(new Set(failures.map((failure) => failure.class)))
    .map((name) => `${count(failures.filter((failure) => failure.class === name).length)} ${name}`);
  const done = rollout.completed ? `complete after ${length(at(rollout.completed) - at(rollout.started))}` : "not complete";
  return `Timeline of ${plural(lanes.length, "pod")}, ${done}; failures: ${by.join(", ") || "none"}. The tables below have the same.`;
}

/** How long each node still sent new connections to deleted pods: a row a node. */
export function convergence(measured, { width }) {
  const nodes = [...new Set(measured.map((known) => known.node))].sort();
  const longest = Math.max(0.5, ...measured.map((known) => known.seconds ?? 0));
  const narrow = width < 620;
  const [left, right] = narrow ? [8, 16] : [Math.min(120, width * 0.2), 20];
  const scale = (seconds) => left + (seconds / (longest * 1.08)) * (width - left - right);
  const rows = nodes.map((name, index) => {
    const own = measured.filter((known) => known.node === name);
    const known = own.filter((each) => each.seconds !== null);
    const top = 8 + index * 46;
    const middle = top + 20;
    const parts = [s("text", { x: narrow ? left : 0, y: narrow ? top : middle + 4, class: "pod" }, name)];
    parts.push(s("path", { d: `M${left} ${middle}H${width - right}`, class: "grid" }));
    if (known.length === 0) {
      parts.push(s("text", { x: left + 6, y: middle - 5, class: "unknown" }, narrow ? "not measured" : "not measured: no new connection came after the deletion"));
    } else {
      const most = known.reduce((best, each) => (each.seconds > best.seconds ? each : best));
      const certain = Math.max(0, most.seconds - most.precision_seconds);
      parts.push(
        s("rect", { x: scale(0), y: middle - 5, width: Math.max(1, scale(certain) - scale(0)), height: 10, class: "measured" }),
        s("rect", { x: scale(certain), y: middle - 5, width: Math.max(1, scale(most.seconds) - scale(certain)), height: 10, class: "imprecise" },
          s("title", {}, "the API tells deletions to the second: the figure is too long by at most this")));
      for (const each of known) {
        const syns = plural(each.fresh_syns_after, "new connection");
        parts.push(s("circle", { cx: scale(each.seconds), cy: middle, r: 4, class: "sample" },
          s("title", {}, `${each.pod}: ${each.seconds.toFixed(2)} s, ${syns} after its deletion`)));
      }
    }
    return s("g", { class: "lane" }, parts);
  });
  const height = nodes.length * 46 + 24;
  const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300].find((each) => each >= longest / (narrow ? 4 : 8)) ?? longest;
  const ticks = [];
  for (let seconds = 0; seconds <= longest * 1.08; seconds += step) {
    ticks.push(s("path", { d: `M${scale(seconds)} 4V${height - 20}`, class: "grid" }),
      s("text", { x: scale(seconds), y: height - 4, class: "tick" }, `${Number(seconds.toFixed(1))} s`));
  }
  return s("svg", { class: "timeline", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Convergence by node; the table below has the same." }, ticks, rows);
}

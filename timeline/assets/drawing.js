// The drawing: a lane per writer on one axis of time, and curves below.

const EDGE = 16;
/** Marks closer than this, in pixels, are one mark with a number; so a lane never has more than its width allows. */
const CLOSE = 12;
/** The most dashed lines from a 409 to the write before it. */
const MOST_LINKS = 60;
/** Width of a letter of the drawing's small text, in pixels. */
const LETTER = 6.5;
/** The shortest stretch of time, in milliseconds. */
const SHORTEST = 0.5;

/** Positions in the last drawing: marks by request, and the x of a time. */
const drawn = { marks: new Map(), x: () => 0, time: () => 0, width: 0 };

/** From the first to the last request that the filters let through. */
function whole() {
  let [start, end] = [Infinity, -Infinity];
  for (const request of requests) {
    if (!isShown(request)) continue;
    start = Math.min(start, request.received);
    end = Math.max(end, request.completed);
  }
  if (start > end) [start, end] = [0, model.end];
  const edge = Math.max((end - start) * 0.01, SHORTEST / 2);
  return [start - edge, end + edge];
}

const isWhole = () => whole().every((edge, index) => Math.abs(edge - state.view[index]) < 1e-6);

function look(from, to) {
  const [least, most] = whole();
  const width = Math.min(Math.max(to - from, SHORTEST), most - least);
  const start = Math.min(Math.max(from, least), most - width);
  state.view = [start, start + width];
  viewed();
}

/** Around the chosen request where it is drawn, else around the middle. */
function zoom(factor, at = drawn.marks.has(state.chosen) ? requests[state.chosen].completed : (state.view[0] + state.view[1]) / 2) {
  look(at - (at - state.view[0]) * factor, at + (state.view[1] - at) * factor);
}

const shift = (part) => look(...state.view.map((edge) => edge + (state.view[1] - state.view[0]) * part));

function ticks(width) {
  const span = state.view[1] - state.view[0];
  const wanted = span / Math.max(2, Math.floor(width / 110));
  const power = 10 ** Math.floor(Math.log10(wanted));
  let step = [1, 2, 5, 10].map((unit) => unit * power).find((unit) => unit >= wanted);
  if (step >= 20000) step = [30, 60, 120, 300, 600, 1800, 3600, 7200, 21600].map((s) => s * 1000).find((unit) => unit >= wanted) ?? step;
  const digits = step >= 1000 ? 0 : Math.min(6, Math.ceil(-Math.log10(step / 1000) - 1e-9));
  const all = [];
  for (let at = Math.ceil(state.view[0] / step) * step; at <= state.view[1]; at += step) all.push([at, digits]);
  return all;
}

/** The free space in a row of text, given to the first text that needs it. */
class Row {
  #taken = [];
  take(from, to) {
    if (this.#taken.some(([a, b]) => from < b + 6 && to > a - 6)) return false;
    this.#taken.push([from, to]);
    return true;
  }
}

const severity = { conflict: 3, refused: 2, granted: 1, read: 0 };

/** Requests of one lane, those that would cover each other together. */
function clusters(indices) {
  const all = [];
  for (const index of indices) {
    const x = drawn.x(requests[index].completed);
    const last = all.at(-1);
    if (last && x - last.from < CLOSE) {
      last.members.push(index);
      last.to = x;
    } else all.push({ members: [index], from: x, to: x });
  }
  for (const one of all) {
    one.x = (one.from + one.to) / 2;
    one.worst = one.members.reduce((worst, index) => (severity[requests[index].outcome] > severity[requests[worst].outcome] ? index : worst));
  }
  return all;
}

/** The sign of an outcome, by shape and by colour. A square is a subresource, an empty sign changed nothing. */
function sign(of, x, y) {
  const at = { class: `mark ${of.outcome}${of.noOp || of.dryRun ? " empty" : ""}` };
  switch (of.outcome) {
    case "conflict": {
      const r = 9;
      const points = [...Array(8).keys()].map((corner) => {
        const angle = Math.PI / 8 + (corner * Math.PI) / 4;
        return `${(x + r * Math.cos(angle)).toFixed(1)},${(y + r * Math.sin(angle)).toFixed(1)}`;
      });
      return svg("g", at, svg("polygon", { points: points.join(" ") }), svg("path", { class: "cross", d: `M${x - 3.4} ${y - 3.4}l6.8 6.8m0 -6.8l-6.8 6.8` }));
    }
    case "refused":
      return svg("g", at, svg("path", { d: `M${x} ${y - 7.5}L${x + 8} ${y + 6.5}H${x - 8}Z` }), svg("path", { class: "cross", d: `M${x} ${y - 2.5}v4.5m0 1.6v1` }));
    case "read":
      return svg("g", at, svg("path", { d: `M${x} ${y - 6}v12` }));
    default:
      return of.subresource
        ? svg("g", at, svg("rect", { x: x - 5, y: y - 5, width: 10, height: 10, rx: 1.5 }))
        : svg("g", at, svg("circle", { cx: x, cy: y, r: 5.5 }));
  }
}

function mark(cluster, y) {
  const { members, x, worst } = cluster;
  const of = requests[worst];
  const text = members.length === 1 ? sentence(of) : `${many(members.length, "request")} close together, the worst: ${sentence(of)}`;
  const made = svg(
    "g",
    { class: "spot", role: "button", tabindex: -1, "aria-label": text, "data-request": worst, "data-members": members.length },
    svg("rect", { class: "hit", x: x - 12, y: y - 20, width: 24, height: 40 }),
    svg("circle", { class: "ring", cx: x, cy: y, r: 13 }),
    sign(of, x, y),
  );
  for (const index of members) drawn.marks.set(index, { x, y, node: made, members });
  return made;
}

/** The label of a mark: on two lines, or on one where there are many lanes. */
function label(of, x, y, row, dense) {
  const name = objects.length > 1 ? ` ${objects[of.object].name.split("/").pop()}` : "";
  const second = [versions(of), generation(of)].filter(Boolean).join(" · ");
  const lines = dense ? [`${verb(of)}${name} ${second}`] : [`${verb(of)}${name}`, second];
  const half = (Math.max(...lines.map((line) => line.length)) * LETTER) / 2;
  const middle = Math.min(Math.max(x, half + 2), drawn.width - half - 2);
  if (!row.take(middle - half, middle + half)) return null;
  return svg("text", { class: `label ${of.outcome}`, "text-anchor": "middle", "aria-hidden": "true" },
    lines.map((line, index) => svg("tspan", { x: middle, y: y + index * 13 }, line)));
}

/** The stretch that a 409 took until its writer's write was granted, and what it cost. */
function bracket(of, y, row, levels) {
  const [from, to] = [drawn.x(of.received), drawn.x(requests[of.cost.settledBy].completed)].map((x) => Math.min(Math.max(x, -20), drawn.width + 20));
  const level = y + (levels.take(from, to) ? 0 : 3);
  const parts = [svg("path", { class: "bracket", d: `M${from} ${y + 6}V${level}H${to}V${y + 6}` })];
  const text = price(of);
  const half = (text.length * LETTER) / 2 + 4;
  const middle = Math.min(Math.max((from + to) / 2, half + 6), drawn.width - half - 6);
  if (row.take(middle - half, middle + half)) parts.push(svg("text", { class: "price", x: middle, y: y - 5, "text-anchor": "middle" }, text));
  return parts;
}

/** The 409s of a writer whose stretch reaches into what is drawn, also where they themselves do not. */
const costly = (key) =>
  requests.filter((of) => of.writer === key && isShown(of) && of.cost?.isFirst && of.cost.settledBy !== null &&
    of.received <= state.view[1] && requests[of.cost.settledBy].completed >= state.view[0]);

function lane(key, indices, top, size) {
  const writer = writers[key];
  if (!indices.length) {
    return svg("g", { role: "group", "aria-label": `Lane of ${writer.name}, empty` },
      svg("text", { class: "name idle", x: 10, y: top + 16 }, writer.name),
      svg("line", { class: "track", x1: writer.name.length * 7.4 + 18, x2: drawn.width, y1: top + 12, y2: top + 12 }));
  }
  const y = top + size.head + size.track / 2;
  const group = svg("g", { role: "group", "aria-label": `Lane of ${writer.name}` });
  const head = new Row();
  head.take(0, writer.name.length * 7.4 + 14);
  const [text, counts] = [new Row(), new Row()];
  group.append(svg("text", { class: "name", x: 10, y: top + 16 }, writer.name), svg("line", { class: "track", x1: 0, x2: drawn.width, y1: y, y2: y }));
  for (const span of model.spans) {
    if (span.writer !== key || span.end < state.view[0] || span.start > state.view[1]) continue;
    const [from, to] = [drawn.x(span.start), drawn.x(span.end)];
    if (span.requests > 1) group.append(svg("rect", { class: "span", x: from - 3, y: y - size.track / 2 + 3, width: Math.max(to - from, 1) + 6, height: size.track - 6, rx: 5 },
      svg("title", {}, `${many(span.requests, "request")} within ${duration(span.end - span.start)}, about any object`)));
  }
  const all = clusters(indices);
  const levels = new Row();
  for (const of of costly(key)) group.append(...bracket(of, top + 20, head, levels));
  for (const { members } of all) for (const index of members.slice(0, 8)) {
    const of = requests[index];
    const [from, to] = [drawn.x(of.received), drawn.x(of.completed)];
    if (to - from > 3) group.append(svg("line", { class: `took ${of.outcome}`, x1: from, x2: to, y1: y, y2: y }));
  }
  const marks = all.map((one) => mark(one, y));
  for (const { x, members } of [...all].sort((a, b) => b.members.length - a.members.length)) {
    const half = (members.length > 9 ? 9 : 6) + 1;
    if (members.length > 1 && counts.take(x - half + 3, x + half - 3))
      marks.push(svg("text", { class: "more", x, y: y - 13, "text-anchor": "middle", "aria-hidden": "true" }, `×${members.length}`));
  }
  const single = all.filter((one) => one.members.length === 1);
  const important = [...single].sort((a, b) => severity[requests[b.worst].outcome] - severity[requests[a.worst].outcome] || a.x - b.x);
  for (const one of important) {
    const made = label(requests[one.worst], one.x, y + size.track / 2 + 10, text, size.dense);
    if (made) group.append(made);
  }
  group.append(...marks);
  return group;
}

/** Dashed lines from each 409 to the write that made its copy old. */
function links(shown) {
  const wanted = shown.filter((index) => requests[index].beatenBy !== undefined && drawn.marks.has(requests[index].beatenBy));
  const few = wanted.length > MOST_LINKS ? wanted.filter((index) => index === state.chosen) : wanted;
  return few.map((index) => {
    const [from, to] = [drawn.marks.get(requests[index].beatenBy), drawn.marks.get(index)];
    const bend = from.y === to.y ? from.y + 32 : (from.y + to.y) / 2;
    return svg("path", { class: "beaten", d: `M${from.x} ${from.y}C${from.x} ${bend} ${to.x} ${bend} ${to.x} ${to.y}` });
  });
}

function curve(title, points, top, height) {
  const most = Math.max(1, ...points.map(([, value]) => value));
  const base = top + height - 4;
  const y = (value) => base - (value / most) * (height - 34);
  const [from, to] = state.view;
  const before = points.filter(([at]) => at < from).at(-1)?.[1] ?? 0;
  const within = points.filter(([at]) => at >= from && at <= to);
  let path = `M0 ${y(before)}`;
  const row = new Row();
  const texts = [];
  const heading = `${title}, at most ${most}`;
  row.take(0, heading.length * 7.4 + 14);
  for (const [at, value] of within) path += `H${drawn.x(at).toFixed(1)}V${y(value).toFixed(1)}`;
  // Values that last longest are labelled first.
  const held = within.map(([at, value], index) => ({ at, value, stays: (within[index + 1]?.[0] ?? to) - at }));
  for (const { at, value } of held.sort((a, b) => b.stays - a.stays)) {
    const x = drawn.x(at) + 2;
    const wide = String(value).length * LETTER;
    if (x + wide < drawn.width && row.take(x, x + wide)) texts.push(svg("text", { class: "value", x, y: y(value) - 4 }, value));
  }
  path += `H${drawn.width}`;
  return svg("g", { role: "img", "aria-label": heading },
    svg("text", { class: "name", x: 10, y: top + 17 }, heading),
    svg("path", { class: "area", d: `${path}V${base}H0Z` }),
    svg("path", { class: "curve", d: path }),
    svg("line", { class: "track", x1: 0, x2: drawn.width, y1: base, y2: base }),
    texts);
}

/** Named stretches of time, where they are drawn: a band, and the name where there is room for it. */
function phases(bottom) {
  return model.phases.map(({ name, start, end }, index) => {
    if (end < state.view[0] || start > state.view[1]) return null;
    const [from, to] = [start, end].map((time) => Math.min(Math.max(drawn.x(time), 0), drawn.width));
    const room = to - from > name.length * LETTER + 10;
    return svg("g", { class: index % 2 ? "phase odd" : "phase" },
      svg("rect", { x: from, y: 20, width: Math.max(to - from, 1), height: bottom - 20 }, svg("title", {}, name)),
      svg("line", { x1: from, x2: from, y1: 20, y2: bottom }),
      room ? svg("text", { x: from + 5, y: 34 }, name) : null);
  });
}

function draw(shown) {
  const board = byId("drawing");
  const width = Math.max(280, board.clientWidth);
  const [from, to] = state.view;
  drawn.width = width;
  drawn.x = (time) => EDGE + ((time - from) / (to - from)) * (width - 2 * EDGE);
  drawn.time = (x) => from + ((x - EDGE) / (width - 2 * EDGE)) * (to - from);
  drawn.marks.clear();
  const byWriter = new Map();
  for (const index of shown) {
    const key = requests[index].writer;
    if (!byWriter.has(key)) byWriter.set(key, []);
    byWriter.get(key).push(index);
  }
  const lanes = [...writers.keys()].filter((key) => state.writers.has(key));
  const dense = lanes.length > 7;
  const size = dense ? { head: 32, track: 30, text: 24, dense } : { head: 34, track: 36, text: 40, dense };
  let top = model.phases.length ? 46 : 26;
  const parts = lanes.map((key) => {
    const indices = byWriter.get(key) ?? [];
    const made = lane(key, indices, top, size);
    top += indices.length ? size.head + size.track + size.text : 30;
    return made;
  });
  for (const [title, points] of [["Nodes", model.nodes], ["Pending pods", model.pods]]) {
    if (!points.length) continue;
    parts.push(curve(title, points, top, 84));
    top += 90;
  }
  const grid = ticks(width).map(([at, digits]) => {
    const x = drawn.x(at);
    const anchor = x < 30 ? "start" : x > width - 30 ? "end" : "middle";
    return svg("g", {}, svg("line", { class: "grid", x1: x, x2: x, y1: 20, y2: top }), svg("text", { class: "tick", x, y: 13, "text-anchor": anchor }, moment(at, digits)));
  });
  const drawing = svg("svg", { width, height: top + 4, viewBox: `0 0 ${width} ${top + 4}` },
    svg("g", { "aria-hidden": "true" }, phases(top)), svg("g", { "aria-hidden": "true" }, grid), svg("g", { "aria-hidden": "true" }, links(shown)), parts,
    svg("rect", { class: "brush", id: "brush", y: 20, height: top - 20, width: 0, x: 0 }));
  const hadFocus = board.contains(document.activeElement) && document.activeElement !== board;
  board.replaceChildren(drawing);
  if (!lanes.length) board.prepend(el("p", { class: "empty" }, "No writer is chosen."));
  markChosen();
  if (hadFocus) (drawn.marks.get(state.chosen)?.node ?? board).focus({ preventScroll: true });
  drawOverview(width);
}

function markChosen() {
  for (const node of byId("drawing").querySelectorAll(".spot.chosen")) node.classList.remove("chosen");
  drawn.marks.get(state.chosen)?.node.classList.add("chosen");
}

/** Everything at once, small: where the requests and the 409s are, and what of it is drawn large. */
function drawOverview(width) {
  const [least, most] = whole();
  const x = (time) => EDGE + ((time - least) / (most - least)) * (width - 2 * EDGE);
  const bins = new Map();
  for (const request of requests) {
    if (!isShown(request)) continue;
    const bin = Math.round(x(request.completed) / 4) * 4;
    const found = bins.get(bin) ?? { count: 0, conflict: false };
    bins.set(bin, { count: found.count + 1, conflict: found.conflict || request.outcome === "conflict" });
  }
  const highest = Math.log2(1 + Math.max(1, ...[...bins.values()].map((bin) => bin.count)));
  const bars = [...bins].map(([at, { count, conflict }]) => {
    const height = 3 + (Math.log2(1 + count) / highest) * 17;
    return svg("g", {}, svg("rect", { class: conflict ? "bar bad" : "bar", x: at - 1.5, y: 30 - height, width: 3, height }),
      conflict ? svg("path", { class: "flag", d: `M${at - 3} 2h6l-3 5z` }) : null);
  });
  const [from, to] = state.view.map(x);
  byId("overview").replaceChildren(svg("svg", { width, height: 34, viewBox: `0 0 ${width} 34` },
    svg("rect", { class: "outside", x: 0, y: 0, width: Math.max(0, from - 2), height: 34 }),
    svg("rect", { class: "outside", x: to + 2, y: 0, width: Math.max(0, width - to - 2), height: 34 }),
    bars,
    svg("rect", { class: "window", x: from - 2, y: 1, width: to - from + 4, height: 32, rx: 3 })));
}

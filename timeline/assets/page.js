// Puts the parts together: facts, what is drawn when something changes, pointer and keys.

let shownNow = [];
let asked = 0;
/** Whether everything is drawn, so that it stays so when the filters change. */
let wasWhole = true;

/** The filters have changed. */
function changed() {
  if (wasWhole) state.view = whole();
  viewed();
}

/** What is drawn has changed; drawn once per frame. */
function viewed() {
  if (asked) return;
  asked = requestAnimationFrame(() => {
    asked = 0;
    redraw();
  });
}

function redraw() {
  const indices = [...requests.keys()].filter((index) => isShown(requests[index]));
  shownNow = indices.filter((index) => inView(requests[index]));
  wasWhole = isWhole();
  draw(shownNow);
  drawTable(shownNow);
  const conflicts = shownNow.filter((index) => requests[index].outcome === "conflict").length;
  byId("alternative").textContent =
    `A lane for each of ${many(state.writers.size, "writer")}, from ${moment(state.view[0])} to ${moment(state.view[1])}: ` +
    `${many(shownNow.length, "request")}, ${conflicts} of them answered 409. The table of requests below lists the same.` +
    (model.phases.length ? ` Phases: ${model.phases.map((phase) => `${phase.name} from ${moment(phase.start)} to ${moment(phase.end)}`).join(", ")}.` : "");
}

/** Chooses a request: marks it, announces it, and scrolls the drawing to it. */
function choose(index, { focus = false, bring = true } = {}) {
  state.chosen = index;
  drawDetail(index);
  for (const line of document.querySelectorAll("tr[aria-current]")) line.removeAttribute("aria-current");
  document.querySelector(`tr[data-row="${index}"]`)?.setAttribute("aria-current", "true");
  const of = requests[index];
  const [from, to] = state.view;
  if (bring && (of.completed < from || of.completed > to)) {
    const half = (to - from) / 2;
    look(of.completed - half, of.completed + half);
    cancelAnimationFrame(asked);
    asked = 0;
    redraw();
  }
  markChosen();
  if (focus) drawn.marks.get(index)?.node.focus({ preventScroll: true });
}

/** Goes to the next or previous 409, with the write before it and the granted write after it. */
function conflict(step) {
  const all = [...requests.keys()].filter((index) => requests[index].outcome === "conflict" && isShown(requests[index]));
  if (!all.length) {
    byId("said").textContent = "No 409 by these filters.";
    return;
  }
  const from = state.chosen ?? (step > 0 ? -1 : requests.length);
  const index = step > 0 ? (all.find((one) => one > from) ?? all[0]) : (all.findLast((one) => one < from) ?? all.at(-1));
  const of = requests[index];
  const times = [of, requests[of.beatenBy], requests[of.cost?.settledBy]].filter(Boolean).flatMap((one) => [one.received, one.completed]);
  // If the copy was stale for a long time, showing all of it would hide the conflict itself.
  const until = Math.max(...times);
  const since = Math.max(Math.min(...times), of.received - 3 * Math.max(until - of.received, 20));
  const edge = Math.max((until - since) * 0.15, 2);
  look(since - edge, until + edge);
  choose(index, { bring: false });
  byId("said").textContent = sentence(of);
}

function step(by) {
  const at = shownNow.indexOf(state.chosen);
  const next = shownNow[at < 0 ? (by > 0 ? 0 : shownNow.length - 1) : at + by];
  if (next !== undefined) return choose(next, { focus: true });
  const all = [...requests.keys()].filter((index) => isShown(requests[index]));
  const beyond = all[all.indexOf(state.chosen) + by];
  if (beyond !== undefined) choose(beyond, { focus: true });
}

/** To the nearest mark in the lane above or below. */
function climb(by) {
  const here = drawn.marks.get(state.chosen);
  if (!here) return step(1);
  const others = [...drawn.marks].filter(([, one]) => (by > 0 ? one.y > here.y : one.y < here.y));
  if (!others.length) return;
  const y = by > 0 ? Math.min(...others.map(([, one]) => one.y)) : Math.max(...others.map(([, one]) => one.y));
  const lane = others.filter(([, one]) => one.y === y);
  choose(lane.reduce((a, b) => (Math.abs(b[1].x - here.x) < Math.abs(a[1].x - here.x) ? b : a))[0], { focus: true });
}

const everything = () => look(...whole());
const ACTIONS = {
  previous: () => conflict(-1), next: () => conflict(1), back: () => shift(-0.5), forth: () => shift(0.5),
  out: () => zoom(2), in: () => zoom(0.5), all: everything,
};
const KEYS = {
  ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowDown: () => climb(1), ArrowUp: () => climb(-1),
  "+": ACTIONS.in, "=": ACTIONS.in, "-": ACTIONS.out, 0: everything, n: ACTIONS.next, p: ACTIONS.previous,
  Home: () => shownNow.length && choose(shownNow[0], { focus: true }), End: () => shownNow.length && choose(shownNow.at(-1), { focus: true }),
};

function pointers(board) {
  let start = null;
  const local = (event) => event.clientX - board.getBoundingClientRect().left;
  board.addEventListener("pointerdown", (event) => {
    if (event.button === 0) start = { x: local(event), view: [...state.view], id: event.pointerId, far: false };
  });
  board.addEventListener("pointermove", (event) => {
    if (!start || event.pointerId !== start.id) return;
    const x = local(event);
    if (!start.far && Math.abs(x - start.x) < 5) return;
    if (!start.far) board.setPointerCapture(start.id);
    start.far = true;
    if (event.pointerType === "touch") {
      const moved = ((x - start.x) / (drawn.width - 2 * EDGE)) * (start.view[1] - start.view[0]);
      look(start.view[0] - moved, start.view[1] - moved);
    } else {
      byId("brush").setAttribute("x", Math.min(x, start.x));
      byId("brush").setAttribute("width", Math.abs(x - start.x));
    }
  });
  board.addEventListener("pointerup", (event) => {
    const was = start;
    start = null;
    if (!was?.far || event.pointerType === "touch") return;
    const [from, to] = [was.x, local(event)].sort((a, b) => a - b);
    look(drawn.time(from), drawn.time(to));
  });
  board.addEventListener("pointercancel", () => {
    start = null;
    byId("brush")?.setAttribute("width", 0);
  });
  board.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, drawn.time(local(event)));
  }, { passive: false });
  const spot = (event) => event.target.closest?.(".spot");
  board.addEventListener("pointerover", (event) => spot(event) && drawDetail(Number(spot(event).dataset.request)));
  board.addEventListener("pointerleave", () => state.chosen !== null && drawDetail(state.chosen));
  board.addEventListener("focusin", (event) => {
    const found = spot(event);
    if (found && !drawn.marks.get(state.chosen)?.members.includes(Number(found.dataset.request))) choose(Number(found.dataset.request));
  });
  board.addEventListener("click", (event) => spot(event) && open(spot(event)));
}

/** Zooms into a mark of several requests, or chooses the request of a mark with one. */
function open(spot) {
  const index = Number(spot.dataset.request);
  const { members } = drawn.marks.get(index);
  choose(index, { focus: true });
  const [from, to] = [requests[members[0]].completed, requests[members.at(-1)].completed];
  if (members.length > 1 && to - from > SHORTEST / 4) look(from - (to - from) * 0.3, to + (to - from) * 0.3);
}

function overviewPointer(overview) {
  const move = (event) => {
    const [least, most] = whole();
    const part = (event.clientX - overview.getBoundingClientRect().left - EDGE) / (drawn.width - 2 * EDGE);
    const half = (state.view[1] - state.view[0]) / 2;
    look(least + part * (most - least) - half, least + part * (most - least) + half);
  };
  overview.addEventListener("pointerdown", (event) => {
    overview.setPointerCapture(event.pointerId);
    move(event);
  });
  overview.addEventListener("pointermove", (event) => event.buttons && move(event));
}

function facts() {
  const sum = (of) => writers.reduce((all, writer) => all + writer[of], 0);
  const list = [
    ["Requests", sum("requests").toLocaleString("en"), `in ${duration(model.end)}`],
    ["Granted writes", sum("granted").toLocaleString("en"), `by ${many(writers.filter((one) => one.granted).length, "writer")}`],
    ["Answered 409", sum("conflicts").toLocaleString("en"), sum("conflicts") ? `${((100 * sum("conflicts")) / Math.max(1, sum("granted") + sum("conflicts"))).toFixed(1)} % of the writes` : "no conflict"],
    ["Extra requests", sum("extra").toLocaleString("en"), "that a 409 made necessary"],
    ["Time until granted", sum("waited") ? duration(sum("waited")) : "–", sum("unsettled") ? `all together; ${sum("unsettled")} never granted` : "all refusals together"],
  ];
  byId("facts").replaceChildren(...list.map(([term, value, more], index) =>
    el("div", { class: index === 2 && sum("conflicts") ? "bad" : null }, el("dt", {}, term), el("dd", {}, el("strong", {}, value), el("small", {}, more)))));
}

function notes() {
  const all = model.notes.map((text) => el("p", { class: "note" }, text));
  const hidden = writers.length - state.writers.size;
  const setup = writers.findIndex((writer) => writer.setup);
  if (setup >= 0 && !state.writers.has(setup)) all.push(el("p", { class: "note info" }, "Requests that only prepare the scenario are hidden at first; they can be shown under Writers."));
  else if (hidden > 0) all.push(el("p", { class: "note info" }, `${many(hidden, "writer")} with the fewest conflicts and writes are switched off at first, so that the drawing stays readable; switch them on under Writers.`));
  if (model.unknown) all.push(policyNote());
  byId("notes").replaceChildren(...all);
}

/** The audit policy rule that would have logged the missing versions. */
function policyNote() {
  const groups = new Map();
  const without = requests.filter((of) => of.outcome === "granted" && of.leftUnknown);
  for (const { group, resource } of without.map((of) => objects[of.object])) groups.set(group, (groups.get(group) ?? new Set()).add(resource));
  const rules = [...groups].map(([group, resources]) =>
    `      - group: "${group}"\n        resources: [${[...resources].flatMap((of) => [`"${of}"`, `"${of}/*"`]).join(", ")}]`);
  const rule = `  - level: RequestResponse\n    verbs: ["create", "update", "patch", "delete"]\n    resources:\n${rules.join("\n")}`;
  return el("details", { class: "note" },
    el("summary", {}, `${many(model.unknown, "granted write")} without a version after: the audit policy keeps too little of ${model.unknown === 1 ? "it" : "them"}`),
    el("p", {}, "Level Metadata gives who, what, when and the answer, and the version before of an update. Level Request adds the version before of a patch. Only RequestResponse gives the version after and the generation. This rule, before those it overlaps with, would:"),
    el("pre", { tabindex: 0, "aria-label": "Rule of an audit policy" }, rule));
}

function legend() {
  const sample = (of) => svg("svg", { width: 22, height: 22, viewBox: "0 0 22 22", "aria-hidden": "true" }, of);
  const items = [
    [sign({ outcome: "granted" }, 11, 11), "write, granted"],
    [sign({ outcome: "granted", subresource: "status" }, 11, 11), "the same, of a subresource"],
    [sign({ outcome: "granted", noOp: true }, 11, 11), "granted, nothing changed"],
    [sign({ outcome: "conflict" }, 11, 11), "409"],
    [svg("path", { class: "bracket", d: "M2 15v-6H20v6" }), "from a 409 to its writer's next granted write"],
    [svg("path", { class: "beaten", d: "M3 19C3 11 19 11 19 3" }), "to the write that made its copy old"],
    [sign({ outcome: "refused" }, 11, 11), "other refusal"],
    [sign({ outcome: "read" }, 11, 11), "read"],
    [svg("rect", { class: "span", x: 2, y: 4, width: 18, height: 14, rx: 4 }), "requests in quick succession"],
  ];
  byId("legend").replaceChildren(...items.map(([of, text]) => el("li", {}, sample(of), text)));
}

function reading() {
  const lines = [
    ["Time", "counts from the first request shown. A mark stands where the answer was complete; the line to its left is how long that took."],
    ["Version", "is the object's resourceVersion, before → after. “any” is a write that demanded none; ✕ means that nothing was written. Generation moves with the spec alone."],
    ["Requests in quick succession", `are requests of one writer with pauses of at most ${model.gap} ms, about whatever object, renewals of leases and watches apart. For a controller with one worker that is a reconcile; with several workers it may be more than one.`],
    ["What a 409 cost", "is the refused request, and the writer's reads of the object and further refusals until its next granted write of the same object and subresource; and the time from the arrival of the one to the answer to the other. Refusals in a row that one granted write ended are summed once."],
    ["The write that made its copy old", "is the first one after the version that the refused request was made from. It can be the writer's own."],
    ["Left out", "are lists, watches, and streams such as logs: they are about no single object. Marks that would cover each other are one mark with a number; zooming in takes them apart."],
  ];
  if (model.nodes.length) lines.push(["Nodes", "are those created and not yet gone, from the log's beginning; what was there before is not counted."]);
  if (model.pods.length) lines.push(["Pending pods", "are those created less those bound to a node or deleted, from the log's beginning."]);
  byId("reading").replaceChildren(el("dl", {}, lines.map(([term, text]) => el("div", {}, el("dt", {}, term), el("dd", {}, text)))));
}

function begin() {
  drawFilters();
  facts();
  notes();
  legend();
  reading();
  drawCosts();
  const first = requests.findIndex((request) => request.outcome === "conflict" && isShown(request));
  drawDetail(first < 0 ? null : first, "The first 409. Point at any request, or choose one, to see it here.");
  state.view = whole();
  const board = byId("drawing");
  pointers(board);
  overviewPointer(byId("overview"));
  board.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const found = event.target.closest(".spot");
    const isOpen = found && (event.key === "Enter" || event.key === " ");
    const move = event.shiftKey && { ArrowLeft: ACTIONS.back, ArrowRight: ACTIONS.forth }[event.key];
    const action = isOpen ? () => open(found) : move || KEYS[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.do) ACTIONS[button.dataset.do]();
    else if (button?.dataset.request) {
      choose(Number(button.dataset.request));
      byId("drawing").scrollIntoView({ block: "nearest" });
    } else if (button === byId("more")) {
      state.rows += STEP;
      drawTable(shownNow);
    }
  });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  new ResizeObserver(viewed).observe(board);
  redraw();
}

begin();

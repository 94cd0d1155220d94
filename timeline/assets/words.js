// The data, texts, and small functions.

const { model } = JSON.parse(document.getElementById("data").textContent);
const { writers, objects, requests } = model;
const byId = (id) => document.getElementById(id);

/** What the reader has chosen: filters, the stretch of time, a request, how many rows. */
const state = {
  writers: new Set(writers.keys()),
  objects: new Set(objects.keys()),
  outcomes: new Set(["granted", "conflict", "refused", "read"]),
  view: null,
  chosen: null,
  rows: matchMedia("(max-width: 640px)").matches ? 25 : 100,
};

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const many = (count, one) => `${count.toLocaleString("en")} ${one}${count === 1 ? "" : "s"}`;

/** A time since the first request, with `digits` after the second's point. */
function moment(ms, digits = 3) {
  const sign = ms < 0 ? "−" : "+";
  const seconds = Math.abs(ms) / 1000;
  if (model.end < 1000 && digits >= 3) return `${sign}${(Math.abs(ms)).toFixed(Math.max(0, digits - 2))} ms`;
  if (seconds < 60) return `${sign}${seconds.toFixed(digits)} s`;
  const rest = (seconds % 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${sign}${minutes}:${rest}`;
  return `${sign}${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}

function duration(ms) {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(2)} s`;
  return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
}

/** The moment in UTC, as the log has it. */
const utc = (ms) => new Date(Date.parse(model.start) + ms).toISOString().replace("T", " ").replace("Z", " UTC");

const isWrite = (request) => request.verb !== "get";

/** The requested operation: the audit log's verb, or the kind of patch where that is known, and the subresource. */
function verb(request) {
  const of = request.how ?? request.verb;
  return (request.subresource ? `${of} ${request.subresource}` : of) + (request.dryRun ? " (dry run)" : "");
}

/** The version before and after, as short as it goes. */
function versions(request) {
  if (!isWrite(request)) return request.left ? `read ${request.left}` : "";
  let from = request.base ?? (request.baseUnknown ? "?" : "any");
  if (request.verb === "create") from = request.subresource ? "" : "new";
  if (request.code >= 300 || request.code < 200) return `${from || "–"} → ✕`;
  if (request.noOp) return `${request.left} unmoved`;
  const to = request.left ?? (request.leftUnknown ? "?" : "–");
  return from ? `${from} → ${to}` : `→ ${to}`;
}

const generation = (request) => (request.generation === undefined ? "" : `gen ${request.generation}`);

function answer(request) {
  const words = { granted: "granted", read: "read", conflict: "", refused: "" }[request.outcome];
  const reason = request.noOp ? "granted, nothing changed" : words || request.reason || "refused";
  return `${request.code} ${reason}`;
}

/** The price of a 409 in a few words. */
function price(request) {
  if (!request.cost) return "";
  const { requests: count, millis } = request.cost;
  if (millis === null) return "no later write granted";
  return `+${many(count, "request")}, ${duration(millis)}`;
}

/** The request in one sentence, for screen readers. */
function sentence(request) {
  const parts = [writers[request.writer].name, verb(request), objects[request.object].name, answer(request)];
  if (isWrite(request)) parts.push(`version ${versions(request).replace("→ ✕", ", nothing written").replace("→", "to")}`);
  if (request.cost) parts.push(`cost: ${price(request)}`);
  return `${moment(request.completed)}: ${parts.join(", ")}`;
}

const isShown = (request) =>
  state.writers.has(request.writer) && state.objects.has(request.object) && state.outcomes.has(request.outcome);
const inView = (request) => request.completed >= state.view[0] && request.received <= state.view[1];

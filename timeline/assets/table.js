// The same as tables, and one request in detail.

const STEP = 200;

const row = (cells, head = false) => el("tr", {}, cells.map((cell) => (cell instanceof Node ? cell : el(head ? "th" : "td", head ? { scope: "col" } : {}, cell))));
const number = (value, text = value.toLocaleString("en")) => el("td", { class: value ? "number" : "number nought" }, text);

function drawCosts() {
  const titles = ["Writer", "Requests", "Reads", "Granted writes", "409s", "Other refusals", "Extra requests", "Time until granted", "Never granted"];
  const lines = writers.map((writer) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, writer.name, el("small", {}, writer.agent || "")),
      number(writer.requests),
      number(writer.reads),
      number(writer.granted),
      el("td", { class: writer.conflicts ? "number bad" : "number nought" }, writer.conflicts ? `✕ ${writer.conflicts}` : "0"),
      number(writer.refused),
      number(writer.extra),
      number(writer.waited, writer.waited ? duration(writer.waited) : "–"),
      number(writer.unsettled),
    ),
  );
  byId("cost").replaceChildren(
    el("caption", {}, "Per writer, for everything on this page, whatever the filters"),
    el("thead", {}, row(titles, true)),
    el("tbody", {}, lines),
  );
}

function drawTable(shown) {
  const several = objects.length > 1;
  const titles = ["Answered", "Writer", "Request", several ? "Object" : null, "Version", "Generation", "Answer", "What the 409 cost"];
  const lines = shown.slice(0, state.rows).map((index) => {
    const of = requests[index];
    const show = el("button", { type: "button", class: "link", "data-request": index, "aria-label": `${moment(of.completed)}, show in the drawing` }, moment(of.completed));
    return el(
      "tr",
      { class: of.outcome, "data-row": index, "aria-current": state.chosen === index ? "true" : null },
      el("th", { scope: "row" }, show),
      el("td", {}, writers[of.writer].name),
      el("td", {}, verb(of)),
      several ? el("td", {}, objects[of.object].name) : null,
      el("td", { class: "mono" }, versions(of)),
      el("td", { class: "mono" }, of.generation ?? ""),
      el("td", {}, el("span", { class: `sign ${of.outcome}` }, answer(of))),
      el("td", {}, price(of)),
    );
  });
  const rest = shown.length - lines.length;
  const told = rest > 0 ? `the first ${lines.length.toLocaleString("en")} are listed` : "all are listed";
  const moved = !isWhole();
  const caption = `${many(shown.length, "request")} of ${requests.length.toLocaleString("en")}, by the filters above${moved ? " and in the stretch of time that is drawn" : ""}; ${told}`;
  byId("table").replaceChildren(el("caption", {}, caption), el("thead", {}, row(titles.filter(Boolean), true)), el("tbody", {}, lines));
  const more = byId("more");
  more.hidden = rest <= 0;
  more.textContent = `Show ${Math.min(rest, STEP)} more`;
}

/** A button that goes to another request. */
function reference(index) {
  const of = requests[index];
  return el("button", { type: "button", class: "link", "data-request": index }, `${verb(of)} by ${writers[of.writer].name}, ${moment(of.completed)}`);
}

const UNKNOWN = "not in the log: the audit policy keeps too little of it";

function versionLines(of) {
  if (!isWrite(of)) return [["Version read", of.left ?? UNKNOWN]];
  const isNew = of.verb === "create";
  const before = of.base ?? (isNew ? "none, a create" : of.baseUnknown ? UNKNOWN : "any: the request demanded none");
  const failed = of.code < 200 || of.code >= 300;
  const after = failed ? "nothing was written" : of.noOp ? `${of.left}, unmoved: nothing changed` : (of.left ?? (of.leftUnknown ? UNKNOWN : "none in the answer"));
  return [["Made from version", before], ["Version after", after]];
}

/** The case in the documentation's first aid, with its cause and cure. */
function aidLines(of) {
  if (of.aid === undefined) return [];
  const { title, cause, fix } = model.aids[of.aid];
  return [["The case", title], ["Cause", cause], ["Fix", fix]];
}

function conflictLines(of) {
  const lines = [];
  if (of.beatenBy !== undefined) {
    const own = requests[of.beatenBy].writer === of.writer;
    lines.push([own ? "Its copy was made old by its own" : "Its copy was made old by", reference(of.beatenBy)]);
  }
  if (of.cost) {
    const { requests: count, millis, settledBy } = of.cost;
    if (settledBy === null) lines.push(["What it cost", "no later write of it by this writer was granted"]);
    else lines.push(["What it cost", `${many(count, "request")} and ${duration(millis)}`], ["Granted at last", reference(settledBy)]);
  }
  return lines;
}

/** Everything about a request, in the panel; `lead` says why it is this one. */
function drawDetail(index, lead = null) {
  const panel = byId("detail");
  if (index === null) {
    panel.replaceChildren(el("p", { class: "empty" }, "Point at a request, or choose one, to see all of it here."));
    return;
  }
  const of = requests[index];
  const writer = writers[of.writer];
  const object = objects[of.object];
  const lines = [
    ["Writer", writer.name],
    writer.user === writer.name ? null : ["User", writer.user],
    writer.agent ? ["Program", writer.agent] : null,
    ["Object", object.namespace ? `${object.name} in ${object.namespace}` : object.name],
    ["Arrived", `${moment(of.received)} (${utc(of.received)})`],
    ["Answered after", duration(of.completed - of.received)],
    ...versionLines(of),
    of.generation === undefined ? null : ["Generation", of.generation],
    of.fieldManager ? ["Field manager", of.fieldManager] : null,
    of.message ? ["The server said", of.message] : null,
    ...conflictLines(of),
    ...aidLines(of),
    ["Audit level", of.level],
  ].filter(Boolean);
  panel.replaceChildren(
    ...(lead ? [el("p", { class: "empty" }, lead)] : []),
    el("h3", {}, el("span", { class: `sign ${of.outcome}` }, answer(of)), verb(of)),
    el("dl", {}, lines.map(([term, text]) => el("div", {}, el("dt", {}, term), el("dd", {}, text)))),
  );
}

// Filters: which writers, objects and outcomes are drawn and listed.

const OUTCOMES = [
  ["granted", "Granted writes"],
  ["conflict", "409s"],
  ["refused", "Other refusals"],
  ["read", "Reads"],
];
/** The most lanes that are drawn at first; the others can be switched on. */
const MOST_LANES = 16;
/** From this many on, a group gets buttons for all and none. */
const MANY = 6;

function chip(group, key, text, count, conflicts) {
  const box = el("input", { type: "checkbox", name: group, value: key });
  box.checked = state[group].has(key);
  box.addEventListener("change", () => {
    if (box.checked) state[group].add(key);
    else state[group].delete(key);
    changed();
  });
  return el(
    "label",
    { class: "chip", title: text },
    box,
    el("span", { class: "what" }, text),
    el("span", { class: "count" }, count.toLocaleString("en")),
    conflicts ? el("span", { class: "bad", title: "answered 409" }, `✕ ${conflicts}`) : null,
  );
}

function group(name, legend, chips) {
  const set = (on) => {
    for (const box of list.querySelectorAll("input")) {
      box.checked = on;
      const key = name === "outcomes" ? box.value : Number(box.value);
      if (on) state[name].add(key);
      else state[name].delete(key);
    }
    changed();
  };
  const button = (text, on) => {
    const made = el("button", { type: "button", class: "link", "aria-label": `${text} ${legend.toLowerCase()}` }, text);
    made.addEventListener("click", () => set(on));
    return made;
  };
  const list = el("div", { class: "chips" }, chips);
  const title = `filter-${name}`;
  const both = chips.length >= MANY ? el("span", { class: "both" }, button("All", true), button("None", false)) : null;
  return el("div", { class: "filter", role: "group", "aria-labelledby": title, "data-group": name },
    el("div", {}, el("span", { class: "legend-text", id: title }, legend), both), list);
}

function drawFilters() {
  const busy = [...writers.keys()].sort(
    (a, b) => writers[b].conflicts - writers[a].conflicts || writers[b].granted - writers[a].granted,
  );
  for (const hidden of busy.slice(MOST_LANES)) state.writers.delete(hidden);
  // Setup requests are hidden at first, unless there are no others.
  const setup = writers.findIndex((writer) => writer.setup);
  if (setup >= 0 && writers.length > 1) state.writers.delete(setup);
  const fields = [
    group("outcomes", "Outcomes", OUTCOMES.map(([key, text]) =>
      chip("outcomes", key, text, requests.filter((request) => request.outcome === key).length))),
    group("writers", "Writers", writers.map((writer, key) =>
      chip("writers", key, writer.name, writer.requests, writer.conflicts))),
  ];
  if (objects.length > 1) {
    const order = [...objects.keys()].sort(
      (a, b) => objects[b].conflicts - objects[a].conflicts || objects[b].requests - objects[a].requests,
    );
    const spaces = new Set(objects.map((object) => object.namespace).filter(Boolean));
    const name = (object) => (spaces.size > 1 && object.namespace ? `${object.namespace}: ${object.name}` : object.name);
    fields.push(group("objects", "Objects", order.map((key) =>
      chip("objects", key, name(objects[key]), objects[key].requests, objects[key].conflicts))));
  }
  byId("filters").replaceChildren(...fields);
}

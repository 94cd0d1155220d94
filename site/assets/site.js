// The parts of the site that need a script. Without one, pictures stand still and lists lead to the cases.
"use strict";

// Steps through the picture of a run, with buttons or the arrow keys.
for (const figure of document.querySelectorAll("figure.run")) {
    const steps = [...figure.querySelectorAll(".step")];
    const caption = figure.querySelector("figcaption");
    if (steps.length < 2 || !caption) { continue; }
    caption.hidden = false;
    caption.innerHTML = '<div class="controls"><button type="button" class="back">← Back</button>' +
        '<button type="button" class="on">Step →</button><button type="button" class="all">All</button><span class="place"></span></div>' +
        '<div class="said" aria-live="polite"></div>';
    const [back, on, all] = ["back", "on", "all"].map((name) => caption.querySelector("." + name));
    let shown = steps.length;
    const show = (count) => {
        shown = Math.max(0, Math.min(steps.length, count));
        steps.forEach((step, index) => step.classList.toggle("later", index >= shown));
        back.disabled = shown === 0;
        all.disabled = shown === steps.length;
        caption.querySelector(".place").textContent = shown === steps.length ? "" : shown + " of " + steps.length;
        const said = shown > 0 && shown < steps.length ? steps[shown - 1].dataset.said : "";
        caption.querySelector(".said").textContent = said;
    };
    // "Step" on the whole picture begins it anew.
    const next = () => show(shown === steps.length ? 1 : shown + 1);
    on.addEventListener("click", next);
    back.addEventListener("click", () => show(shown - 1));
    all.addEventListener("click", () => show(steps.length));
    figure.addEventListener("keydown", (event) => {
        if (event.key === "ArrowRight" || event.key === "ArrowDown") { next(); } else if (event.key === "ArrowLeft" || event.key === "ArrowUp") { show(shown - 1); } else { return; }
        event.preventDefault();
        event.stopPropagation();
    });
    show(shown);
}

// First aid: the case of a pasted text, or of three answers.
const aid = document.querySelector(".first-aid");
if (aid && window.firstAid) {
    aid.hidden = false;
    const { cases, questions } = window.firstAid;
    const answer = aid.querySelector(".answer");
    const field = aid.querySelector("textarea");
    const root = typeof path_to_root === "string" ? path_to_root : "";
    const compiled = cases.map((one) => ({ one, patterns: one.matches.map((pattern) => new RegExp(pattern, "i")) }));
    const element = (name, text) => Object.assign(document.createElement(name), { textContent: text });
    const paragraph = (label, text) => {
        const p = document.createElement("p");
        p.append(element("strong", label + " "), text);
        return p;
    };
    const showCase = (one) => {
        const link = element("a", "Code to copy, proof and sources →");
        link.href = root + one.page;
        const p = document.createElement("p");
        p.append(link);
        answer.replaceChildren(element("h3", one.title), paragraph("Cause.", one.cause), paragraph("Fix.", one.fix), paragraph("Retry?", one.retry), p);
    };
    const diagnose = () => {
        const text = field.value;
        if (text.trim() === "") { answer.replaceChildren(); return; }
        const found = compiled.find(({ patterns }) => patterns.some((pattern) => pattern.test(text)));
        if (found) { showCase(found.one); return; }
        answer.replaceChildren(element("p", "This text is none of the cases below, so it is probably no write conflict. The code and the reason of the answer say more: kubectl -v=8 prints them."));
    };
    const ask = (id) => {
        const question = questions.find((one) => one.id === id);
        if (!question) { showCase(cases.find((one) => one.id === id)); return; }
        const list = document.createElement("ul");
        for (const { say, to } of question.answers) {
            const button = element("button", say);
            button.type = "button";
            button.addEventListener("click", () => ask(to));
            const item = document.createElement("li");
            item.append(button);
            list.append(item);
        }
        answer.replaceChildren(element("h3", question.ask), list);
    };
    field.addEventListener("input", diagnose);
    // mdBook has keys of its own.
    field.addEventListener("keydown", (event) => event.stopPropagation());
    aid.querySelector(".ask").addEventListener("click", () => { field.value = ""; ask(questions[0].id); });
    // A link with the text in it leads to the case: …/index.html#error=TEXT
    const follow = () => {
        const given = (location.hash.match(/^#error=(.+)$/) || [])[1];
        if (!given) { return; }
        // In a text that was not encoded as a whole, a percent sign may stand for itself.
        field.value = given.replace(/(?:%[0-9a-f]{2})+/gi, (part) => { try { return decodeURIComponent(part); } catch { return part; } });
        diagnose();
    };
    addEventListener("hashchange", follow);
    follow();
}

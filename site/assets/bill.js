// The bill of a conflict: a slider for the number of writers over a table that has it in its first column and the policy
// in its second one. The figures are read from that table. Without a script the table stands alone.
"use strict";

// The heads of a table, and its rows by the number in the first column.
function billOf(table) {
    const texts = (row) => [...row.cells].map((cell) => cell.textContent.trim());
    const heads = texts(table.tHead.rows[0]);
    const rows = new Map();
    for (const row of table.tBodies[0].rows) {
        const [writers, policy, ...figures] = texts(row);
        if (!rows.has(writers)) { rows.set(writers, []); }
        rows.get(writers).push({ policy, figures });
    }
    return { heads: heads.slice(2), rows };
}

// "1,235" and "25.0 %" as numbers.
const numberOf = (text) => Number.parseFloat(text.replaceAll(",", "")) || 0;

for (const [place, bill] of document.querySelectorAll(".bill").entries()) {
    const table = [...document.querySelectorAll("main table")]
        .find((one) => bill.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING);
    if (!table) { continue; }
    const { heads, rows } = billOf(table);
    const counts = [...rows.keys()];
    if (counts.length === 0) { continue; }
    bill.innerHTML = '<div class="pick"><label>Writers <input type="range" min="0" step="1"></label><output></output></div>' +
        '<div class="pick"><label>Figure <select></select></label></div><div class="bars" role="list"></div>' +
        '<p class="scale">The longest bar is the largest figure of this number of writers.</p>';
    const [slider, shown, figure, bars] = ["input", "output", "select", ".bars"].map((name) => bill.querySelector(name));
    slider.max = counts.length - 1;
    slider.id = "bill-writers-" + place;
    shown.htmlFor = slider.id;
    heads.forEach((head, index) => figure.add(new Option(head, index)));
    const draw = () => {
        const writers = counts[slider.value];
        shown.textContent = writers + (writers === "1" ? " writer" : " writers");
        slider.setAttribute("aria-valuetext", shown.textContent);
        const all = rows.get(writers);
        const most = Math.max(...all.map(({ figures }) => numberOf(figures[figure.value])));
        bars.replaceChildren(...all.map(({ policy, figures }) => {
            const row = document.createElement("div");
            row.className = "row";
            row.setAttribute("role", "listitem");
            row.innerHTML = '<span class="who"></span><span class="track"><span class="bar"></span></span><span class="figure"></span><small></small>';
            const value = figures[figure.value];
            row.querySelector(".who").textContent = policy;
            row.querySelector(".figure").textContent = value;
            row.querySelector(".bar").style.width = (most > 0 ? 100 * numberOf(value) / most : 0) + "%";
            const others = heads.map((head, index) => head + " " + figures[index]);
            row.querySelector("small").textContent = others.filter((_, index) => index !== Number(figure.value)).join(" · ");
            return row;
        }));
    };
    slider.addEventListener("input", draw);
    figure.addEventListener("change", draw);
    // mdBook turns the page at the arrow keys.
    bill.addEventListener("keydown", (event) => event.stopPropagation());
    slider.value = counts.length - 1;
    bill.hidden = false;
    draw();
}

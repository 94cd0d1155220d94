//! Runs the site's own scripts in a real browser, on the site of this repository: first aid, the pictures of runs, and the
//! bill of a conflict; and looks at what is left without scripts.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::{Context as _, Result};
use browser::Page;
use first_aid::{Case, FirstAid, Question, diagnose};
use serde_json::{Value, json};
use tempfile::TempDir;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const FRONT: &str = "index.html";
const RUN: &str = "docs/conflicts/conflict.html";
const BILL: &str = "docs/benchmarks/conflict.html";

/// The site, built for the tests that run at the same time. It goes with the last of them.
fn site() -> Result<Arc<TempDir>> {
    static SHARED: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(site) = shared.upgrade() {
        return Ok(site);
    }
    let site = Arc::new(tempfile::tempdir()?);
    site::build(Path::new(ROOT), site.path())?;
    *shared = Arc::downgrade(&site);
    Ok(site)
}

fn address(site: &TempDir, page: &str) -> String {
    format!("file://{}/{page}", site.path().display())
}

fn open(site: &TempDir, page: &str) -> Result<Page> {
    Page::open(&address(site, page), 1200, "light")
}

/// How many of what a selector finds can be seen.
fn seen(selector: &str) -> String {
    format!(
        "[...document.querySelectorAll({selector:?})].filter((one) => one.getClientRects().length > 0).length"
    )
}

/// A function from texts to what the page says when each is pasted: the case's title and link, or the beginning of an
/// answer without a case.
const PASTED: &str = r#"((texts) => {
    const [field, answer] = ["textarea", ".answer"].map((name) => document.querySelector(".first-aid " + name));
    return texts.map((text) => {
        field.value = text;
        field.dispatchEvent(new Event("input"));
        const link = answer.querySelector("a");
        return link ? [answer.querySelector("h3").textContent, link.getAttribute("href")] : answer.textContent.split(",")[0];
    });
})"#;

/// What [`PASTED`] gives for a case.
fn told(case: &Case) -> Value {
    json!([case.title, format!("docs/first-aid/{}.html", case.id)])
}

/// What people have reported, and the examples; each also in capitals.
fn texts() -> Result<Vec<String>> {
    let heard = std::fs::read_to_string(Path::new(ROOT).join("first-aid/heard.toml"))?;
    let heard: Value = toml::from_str(&heard)?;
    let mut texts = Vec::new();
    for list in ["heard", "none"] {
        for one in heard[list].as_array().context("no such list")? {
            texts.push(one["text"].as_str().context("no text")?.to_owned());
        }
    }
    texts.extend(FirstAid::get().cases.iter().flat_map(|case| case.texts.clone()));
    let capitals: Vec<String> = texts.iter().map(|text| text.to_uppercase()).collect();
    texts.extend(capitals);
    Ok(texts)
}

#[test]
fn a_pasted_text_leads_to_the_same_case_in_the_page_as_in_rust() -> Result<()> {
    let site = site()?;
    let mut page = open(&site, FRONT)?;
    assert_eq!(page.count(&seen(".first-aid textarea"))?, 1);
    let texts = texts()?;
    let answers = page.eval(&format!("{PASTED}({})", json!(texts)))?;
    let answers = answers.as_array().context("no list")?;
    assert_eq!(answers.len(), texts.len());
    for (text, answer) in texts.iter().zip(answers) {
        let expected = diagnose(text).map_or_else(|| json!("This text is none of the cases below"), told);
        assert_eq!(answer, &expected, "{text}");
    }

    let case = &FirstAid::get().cases[0];
    let cleared = json!([case.texts[0], "", case.texts[0], " \n"]);
    let answers = page.eval(&format!("{PASTED}({cleared})"))?;
    assert_eq!(answers, json!([told(case), "", told(case), ""]), "an empty field has no answer");
    page.close()
}

#[test]
fn a_link_with_an_error_text_in_it_shows_its_case() -> Result<()> {
    let site = site()?;
    let case = FirstAid::get().case("stale").context("there is such a case")?;
    let text = &case.texts[0];
    let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let mut page = open(&site, &format!("{FRONT}#error={encoded}"))?;
    assert_eq!(page.eval("document.querySelector('.first-aid textarea').value")?, json!(text));
    assert_eq!(page.eval("document.querySelector('.first-aid h3').textContent")?, json!(case.title));
    page.close()
}

#[test]
fn a_link_is_followed_on_the_page_itself_and_need_not_be_encoded() -> Result<()> {
    let site = site()?;
    let case = FirstAid::get().case("stale").context("there is such a case")?;
    let mut page = open(&site, FRONT)?;
    let text = json!(format!("100% of the writes: {}", case.texts[0]));
    page.eval(&format!("location.hash = '#error=' + {text}; true"))?;
    page.wait_for(&format!(
        "document.querySelector('.first-aid h3')?.textContent === {}",
        json!(case.title)
    ))?;
    assert_eq!(page.eval("document.querySelector('.first-aid textarea').value")?, text);
    page.close()
}

/// Every way through the questions: the places of the answers that were given, and the title and link at its end.
const WAYS: &str = r#"(() => {
    const aid = document.querySelector(".first-aid");
    const answers = () => [...aid.querySelectorAll(".answer li button")];
    const ways = [];
    const walk = (places) => {
        aid.querySelector(".ask").click();
        places.forEach((place) => answers()[place].click());
        const link = aid.querySelector(".answer a");
        if (link) { ways.push([places, [aid.querySelector(".answer h3").textContent, link.getAttribute("href")]]); }
        answers().forEach((_, place) => walk([...places, place]));
    };
    walk([]);
    return ways;
})()"#;

/// The same, from the data.
fn ways(question: &Question, places: &[usize], found: &mut Vec<Value>) -> Result<()> {
    let all = FirstAid::get();
    for (place, answer) in question.answers.iter().enumerate() {
        let places = [places, &[place]].concat();
        if let Some(next) = all.questions.iter().find(|next| next.id == answer.to) {
            ways(next, &places, found)?;
        } else {
            found.push(json!([places, told(all.case(&answer.to).context("an answer leads to a case")?)]));
        }
    }
    Ok(())
}

#[test]
fn the_questions_lead_to_cases_whose_pages_exist() -> Result<()> {
    let site = site()?;
    let mut page = open(&site, FRONT)?;
    let mut expected = Vec::new();
    ways(&FirstAid::get().questions[0], &[], &mut expected)?;
    assert_eq!(page.eval(WAYS)?, json!(expected));
    for way in &expected {
        let link = way[1][1].as_str().context("a link")?;
        assert!(site.path().join(link).is_file(), "{link}");
    }

    page.eval("document.querySelector('.first-aid textarea').value = 'a text'")?;
    page.click(".first-aid .ask")?;
    page.wait_for("document.querySelector('.first-aid textarea').value === ''")?;
    let mut question = &FirstAid::get().questions[0];
    loop {
        let asked = json!(question.ask);
        page.wait_for(&format!("document.querySelector('.first-aid h3')?.textContent === {asked}"))?;
        page.click(".first-aid li:first-child button")?;
        let to = &question.answers[0].to;
        let Some(next) = FirstAid::get().questions.iter().find(|next| next.id == *to) else { break };
        question = next;
    }
    page.wait_for("document.querySelector('.first-aid .answer a') !== null")?;
    page.click(".first-aid .answer a")?;
    page.wait_for_address(&format!("/docs/first-aid/{}.html", question.answers[0].to))?;
    page.close()
}

/// What the steps of the picture say.
const SAID: &str =
    "[...document.querySelector('figure.run').querySelectorAll('.step')].map((step) => step.dataset.said)";

/// Of the picture: the number of steps that are still to come, whether there is anything for "Back" and for "All" to do, the
/// place, and what is said.
const PICTURE: &str = r#"(() => {
    const figure = document.querySelector("figure.run");
    const [back, all, place, said] = ["back", "all", "place", "said"].map((name) => figure.querySelector("." + name));
    const later = figure.querySelectorAll(".step.later").length;
    return [later, !back.disabled, !all.disabled, place.textContent, said.textContent];
})()"#;

/// Waits until this number of its steps is shown, with what belongs to it.
fn wait_for_steps(page: &mut Page, said: &[String], shown: usize) -> Result<()> {
    let all = said.len();
    let is_part = shown < all;
    let place = if is_part { format!("{shown} of {all}") } else { String::new() };
    let words = if is_part && shown > 0 { said[shown - 1].as_str() } else { "" };
    let expected = json!([all - shown, shown > 0, is_part, place, words]);
    page.wait_for(&format!("JSON.stringify({PICTURE}) === JSON.stringify({expected})"))
}

/// The page of a run, and what the steps of its picture say.
fn open_run(site: &TempDir) -> Result<(Page, Vec<String>)> {
    let mut page = open(site, RUN)?;
    let said: Vec<String> = serde_json::from_value(page.eval(SAID)?)?;
    assert!(said.len() > 3 && said.iter().all(|said| !said.is_empty()), "{said:?}");
    Ok((page, said))
}

#[test]
fn a_picture_is_stepped_through_with_its_buttons() -> Result<()> {
    let site = site()?;
    let (mut page, said) = open_run(&site)?;
    wait_for_steps(&mut page, &said, said.len())?;
    for shown in 1..=said.len() {
        page.click("figure.run .on")?;
        wait_for_steps(&mut page, &said, shown)?;
    }
    for shown in (0..said.len()).rev() {
        page.click("figure.run .back")?;
        wait_for_steps(&mut page, &said, shown)?;
    }
    page.click("figure.run .on")?;
    wait_for_steps(&mut page, &said, 1)?;
    let faint = "[...document.querySelectorAll('figure.run .step')].filter((step) => getComputedStyle(step).opacity < 0.5)";
    assert_eq!(
        page.eval(&format!("{faint}.length"))?,
        json!(said.len() - 1),
        "what is to come is hardly seen"
    );
    page.click("figure.run .all")?;
    wait_for_steps(&mut page, &said, said.len())?;
    page.close()
}

#[test]
fn arrow_keys_step_within_a_picture_and_turn_the_page_outside_of_it() -> Result<()> {
    let site = site()?;
    let (mut page, said) = open_run(&site)?;
    let here = page.address()?;
    page.eval("document.querySelector('figure.run').focus()")?;
    let keys = [("ArrowRight", 1), ("ArrowDown", 2), ("ArrowLeft", 1), ("ArrowUp", 0), ("ArrowLeft", 0)];
    for (key, shown) in keys {
        page.press(key)?;
        wait_for_steps(&mut page, &said, shown)?;
    }
    // The button that was clicked has the focus.
    page.click("figure.run .on")?;
    page.press("ArrowRight")?;
    wait_for_steps(&mut page, &said, 2)?;
    assert_eq!(page.address()?, here, "mdBook does not turn the page");

    let next = page.eval("document.querySelector('.nav-chapters.next').href")?;
    page.eval("document.activeElement.blur()")?;
    page.press("ArrowRight")?;
    page.wait_for_address(next.as_str().context("a link")?)?;
    page.close()
}

/// The rows of the table below each bill.
const TABLES: &str = r#"[...document.querySelectorAll(".bill")].map((bill) =>
    [...bill.nextElementSibling.querySelectorAll("tr")].map((row) => [...row.cells].map((cell) => cell.textContent.trim())))"#;

/// Of each bill: what it shows first, and then for each place of the slider and each figure that can be chosen.
const BILLS: &str = r#"[...document.querySelectorAll(".bill")].map((bill) => {
    const [slider, writers, figure] = ["input", "output", "select"].map((name) => bill.querySelector(name));
    const width = (element) => element.getBoundingClientRect().width;
    const drawn = () => [writers.textContent, figure.selectedOptions[0].textContent, [...bill.querySelectorAll(".row")].map((row) => {
        const [policy, value, bar, track] = ["who", "figure", "bar", "track"].map((name) => row.querySelector("." + name));
        return [policy.textContent, value.textContent, 100 * width(bar) / width(track)];
    })];
    const all = [drawn()];
    for (let place = 0; place <= Number(slider.max); place++) {
        slider.value = place;
        slider.dispatchEvent(new Event("input"));
        for (const option of figure.options) {
            figure.value = option.value;
            figure.dispatchEvent(new Event("change"));
            all.push(drawn());
        }
    }
    return all;
})"#;

/// What a bill shows: the writers, the figure's name, and the bars: policy, figure, and length in percent.
type Drawn = (String, String, Vec<(String, String, f64)>);

type Table = Vec<Vec<String>>;

/// What it should show of the rows of a table, for its writers and a column.
fn drawn(heads: &[String], rows: &[Vec<String>], writers: &str, column: usize) -> Result<Drawn> {
    let mut bars = Vec::new();
    for row in rows.iter().filter(|row| row[0] == writers) {
        let number = row[column].replace(',', "");
        let number: f64 = number.split_whitespace().next().context("an empty cell")?.parse()?;
        bars.push((row[1].clone(), row[column].clone(), number));
    }
    let most = bars.iter().map(|(_, _, number)| *number).fold(0.0, f64::max);
    for (_, _, number) in &mut bars {
        *number = if most > 0.0 { 100.0 * *number / most } else { 0.0 };
    }
    Ok((format!("{writers} writers"), heads[column].clone(), bars))
}

#[test]
fn a_bill_shows_the_rows_of_its_table() -> Result<()> {
    let site = site()?;
    let mut page = open(&site, BILL)?;
    let tables: Vec<Table> = serde_json::from_value(page.eval(TABLES)?)?;
    let bills: Vec<Vec<Drawn>> = serde_json::from_value(page.eval(BILLS)?)?;
    assert!(bills.len() > 1 && bills.len() == tables.len(), "{} bills", bills.len());
    for (table, shown) in tables.iter().zip(&bills) {
        let (heads, rows) = table.split_first().context("an empty table")?;
        let mut counts: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        counts.dedup();
        assert!(counts.len() > 1, "{counts:?}");
        let mut expected = vec![drawn(heads, rows, counts[counts.len() - 1], 2)?];
        for writers in counts {
            for column in 2..heads.len() {
                expected.push(drawn(heads, rows, writers, column)?);
            }
        }
        assert_eq!(shown.len(), expected.len());
        for ((writers, figure, bars), expected) in shown.iter().zip(expected) {
            assert_eq!((writers, figure, bars.len()), (&expected.0, &expected.1, expected.2.len()));
            for (bar, (policy, value, length)) in bars.iter().zip(expected.2) {
                assert_eq!((&bar.0, &bar.1), (&policy, &value), "{writers}, {figure}");
                assert!((bar.2 - length).abs() < 0.5, "{writers}, {figure}, {bar:?}: {length} %");
            }
        }
    }
    page.close()
}

#[test]
fn a_bill_can_be_used_with_keys() -> Result<()> {
    let site = site()?;
    let mut page = open(&site, BILL)?;
    let here = page.address()?;
    let tables: Vec<Table> = serde_json::from_value(page.eval(TABLES)?)?;
    let rows = &tables[0][1..];
    let writers = |row: &[String]| {
        let text = json!(format!("{} writers", row[0]));
        format!("document.querySelector('.bill output').textContent === {text}")
    };
    let last = &rows[rows.len() - 1];
    page.wait_for(&writers(last))?;
    page.eval("document.querySelector('.bill input').focus()")?;
    page.press("ArrowLeft")?;
    page.wait_for(&writers(rows.iter().rfind(|row| row[0] != last[0]).context("one count only")?))?;
    page.press("Home")?;
    page.wait_for(&writers(&rows[0]))?;
    page.eval("document.querySelector('.bill select').focus()")?;
    // The first figure is shown; two columns before it say of what.
    for figure in &rows[0][3..] {
        page.press("ArrowDown")?;
        let figure = json!(figure);
        page.wait_for(&format!("document.querySelector('.bill .figure').textContent === {figure}"))?;
    }
    assert_eq!(page.address()?, here, "mdBook does not turn the page");
    page.close()
}

#[test]
fn without_scripts_lists_pictures_and_tables_are_there_and_nothing_that_does_not_work() -> Result<()> {
    let site = site()?;
    let without = |page: &str| Page::open_without_scripts(&address(&site, page), 1200, "light");
    let mut page = without(FRONT)?;
    assert_eq!(page.eval("typeof window.firstAid")?, json!("undefined"), "scripts are off");
    assert_eq!(page.count("document.querySelectorAll('.first-aid').length")?, 1);
    assert_eq!(page.count(&seen(".first-aid"))?, 0);
    for case in &FirstAid::get().cases {
        let link = format!("main a[href='docs/first-aid/{}.html']", case.id);
        assert!(page.count(&seen(&link))? > 0, "no link to {}", case.id);
    }
    page.close()?;

    let mut page = without(RUN)?;
    assert!(page.count(&seen("figure.run .step"))? > 3);
    assert_eq!(page.count("document.querySelectorAll('.step.later').length")?, 0);
    assert_eq!(page.count(&seen("figcaption"))?, 0);
    page.close()?;

    let mut page = without(BILL)?;
    let bills = page.count("document.querySelectorAll('.bill').length")?;
    assert!(bills > 1);
    assert_eq!(page.count(&seen(".bill"))?, 0);
    assert!(page.count(&seen("main table"))? >= bills);
    page.close()
}

//! Tables of the guides that a run gives: each row is played on a real API server with the operators, and the table is compared
//! with the one that is committed.
//!
//! `TANDEM_WRITE_PAGES=1 cargo test -p e2e --test operators pages::` writes them instead.

mod deletion;
mod deletion_subject;
mod drain;
mod drain_rows;
mod seen;

use anyhow::{Context as _, Result, ensure};
use toolbox::workspace;

/// Where it is set, the tests write the tables instead of comparing them.
const WRITES: &str = "TANDEM_WRITE_PAGES";

/// Compares `table` with what stands between the marks called `mark` of the page at `path` (below the root), or writes it there.
fn check(path: &str, mark: &str, table: &str) -> Result<()> {
    let file = workspace::root().join(path);
    let page = std::fs::read_to_string(&file).with_context(|| format!("cannot read {path}"))?;
    let filled = between_marks(&page, mark, table)
        .with_context(|| format!("{path} has no marks {mark} to put the table between"))?;
    if std::env::var_os(WRITES).is_some() {
        return workspace::generate(path, &filled, false);
    }
    ensure!(
        page == filled,
        "the {mark} of {path} is not what this run gives:\n{table}\nif the new one is right: \
         {WRITES}=1 cargo test -p e2e --test operators pages::"
    );
    Ok(())
}

/// The page with `text` between its marks; `None` when it has none.
fn between_marks(page: &str, mark: &str, text: &str) -> Option<String> {
    let (opening, closing) = (format!("<!-- {mark} -->\n"), format!("<!-- /{mark} -->"));
    let (before, rest) = page.split_once(&opening)?;
    let (_, after) = rest.split_once(&closing)?;
    Some(format!("{before}{opening}\n{text}\n{closing}{after}"))
}

/// A table in Markdown.
fn markdown(header: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let titles: Vec<String> = header.iter().map(ToString::to_string).collect();
    let mut table = line(&titles);
    table.push_str(&format!("|{}\n", "---|".repeat(header.len())));
    for row in rows {
        table.push_str(&line(row));
    }
    table
}

#[test]
fn what_stands_between_the_marks_of_a_guide_is_replaced() {
    let marked = |text| format!("above\n<!-- x -->\n\n{text}\n<!-- /x -->\nbelow\n");
    assert_eq!(between_marks(&marked("old\n"), "x", "new\n"), Some(marked("new\n")));
    assert_eq!(between_marks(&marked("old\n"), "y", "new\n"), None);
    assert_eq!(between_marks("no marks", "x", "new"), None);
}

#[test]
fn a_bar_in_a_cell_ends_no_cell() {
    let rows = [vec!["a|b".to_owned(), "c".to_owned()]];
    assert_eq!(markdown(&["x", "y"], &rows), "| x | y |\n|---|---|\n| a\\|b | c |\n");
}

//! Tables of the guides that a run gives: each row is played on a real API server with the operators, and the table is compared
//! with the one that is committed. With `TANDEM_WRITE_PAGES=1` a test writes its table instead.

mod deletion_subject;
mod machine_source;
pub mod seen;

use std::sync::Mutex;

use anyhow::{Context as _, Result, ensure};
use toolbox::workspace;

pub use self::deletion_subject::{DeletionSubject, PodOnNode, SubjectObjects};
pub use self::machine_source::MachineSource;
use crate::process_supervisor::lock;

/// Where it is set, the tests write the tables instead of comparing them.
const WRITES: &str = "TANDEM_WRITE_PAGES";

/// Values of the chart: a lease that the `NodePool` operator gets back within seconds after it was killed, and keeps
/// where it is not scheduled for some.
pub const QUICK_LEASE: [&str; 3] = [
    "nodepoolOperator.leaderElection.leaseDurationSeconds=10",
    "nodepoolOperator.leaderElection.renewDeadlineSeconds=8",
    "nodepoolOperator.leaderElection.retryPeriodSeconds=1",
];

/// The part of a page that a test gives.
#[derive(Clone, Copy, Debug)]
pub struct PageBlock<'a> {
    /// The page, below the root of the repository.
    pub path: &'a str,
    /// What the marks around the part are called.
    pub mark: &'a str,
    /// The test, as arguments of `cargo test -p e2e`.
    pub test: &'a str,
}

impl PageBlock<'_> {
    /// Compares `text` with what stands between the marks, or writes it there.
    ///
    /// # Errors
    /// When it differs, and when the page has no such marks or cannot be read or written.
    pub fn check(&self, text: &str) -> Result<()> {
        // The tests of a program run at the same time, and several have parts of one page.
        static WRITING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = lock(&WRITING);
        let Self { path, mark, test } = self;
        let file = workspace::root().join(path);
        let page = std::fs::read_to_string(&file).with_context(|| format!("cannot read {path}"))?;
        let filled = between_marks(&page, mark, text)
            .with_context(|| format!("{path} has no marks {mark} to put the table between"))?;
        if std::env::var_os(WRITES).is_some() {
            return workspace::generate(path, &filled, false);
        }
        ensure!(
            page == filled,
            "the {mark} of {path} is not what this run gives:\n{text}\nif the new one is right: \
             {WRITES}=1 cargo test -p e2e {test}"
        );
        Ok(())
    }
}

/// The page with `text` between its marks; `None` when it has none.
fn between_marks(page: &str, mark: &str, text: &str) -> Option<String> {
    let (opening, closing) = (format!("<!-- {mark} -->\n"), format!("<!-- /{mark} -->"));
    let (before, rest) = page.split_once(&opening)?;
    let (_, after) = rest.split_once(&closing)?;
    Some(format!("{before}{opening}\n{text}\n{closing}{after}"))
}

/// A table in Markdown.
pub fn markdown(header: &[&str], rows: &[Vec<String>]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}

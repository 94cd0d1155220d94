//! The rows in short, for the README of `conflict-retry`: what its users choose from, beside client-go.

use crate::load::Load;
use crate::numbers::figure;
use crate::policy::Policy;
use crate::row::Row;

/// The policies, and what the README calls them.
const COLUMNS: [(Policy, &str); 5] = [
    (Policy::GoRetry, "client-go, `DefaultRetry`"),
    (Policy::GoBackoff, "client-go, `DefaultBackoff`"),
    (Policy::Live, "`update`"),
    (Policy::Watched, "`update` from a watch"),
    (Policy::Merge, "a field of one's own"),
];

/// The loads, and what the README calls them.
const LOADS: [(Load, &str); 2] = [
    (Load::Burst, "All writers begin at once"),
    (Load::Sustained, "Each writer begins in its own time, again and again"),
];

/// A table for each load in Markdown. A cell has the requests for each success, and the p99.
pub(crate) fn summary(rows: &[Row]) -> String {
    let mut writers: Vec<usize> = rows.iter().map(|row| row.k).collect();
    writers.sort_unstable();
    writers.dedup();
    tables(&writers, |load, k, policy| {
        let is_it = |row: &&Row| {
            row.load == load && row.k == k && row.writer == policy.writer() && row.policy == policy.name()
        };
        let row = rows.iter().find(is_it)?;
        Some(cell(&format!("{:.2}", row.requests_per_success), &figure(row.p99_ms)))
    })
}

fn cell(requests: &str, p99_ms: &str) -> String {
    format!("{requests}, {p99_ms} ms")
}

fn tables(writers: &[usize], measured: impl Fn(Load, usize, Policy) -> Option<String>) -> String {
    let mut text = String::new();
    for (load, title) in LOADS {
        let heads = COLUMNS.map(|(_, head)| head).join(" | ");
        text += &format!("\n{title}:\n\n| writers | {heads} |\n|---:|{}\n", "---:|".repeat(COLUMNS.len()));
        for &k in writers {
            let cells =
                COLUMNS.map(|(policy, _)| measured(load, k, policy).unwrap_or_else(|| "–".to_owned()));
            text += &format!("| {k} | {} |\n", cells.join(" | "));
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::session::Report;

    #[test]
    fn a_cell_has_requests_and_p99_and_what_was_not_measured_is_left_open() {
        let report = Report { latencies_ms: vec![10.0, 1234.5], requests: 9, ..Report::default() };
        let rows = [Row::new(Policy::Live, 50, Load::Burst, &report, 30, 30)];
        let text = summary(&rows);
        assert!(text.contains("| 50 | – | – | 4.50, 1,235 ms | – | – |"), "{text}");
        assert!(text.contains("| 50 | – | – | – | – | – |"), "the other load: {text}");
    }

    /// The cell of a policy in a page of all rows, which has a part for each load.
    fn cell_of(page: &str, load: Load, k: usize, policy: Policy) -> Option<String> {
        let (_, title) = LOADS.into_iter().find(|(other, _)| *other == load)?;
        let (_, part) = page.split_once(&format!("### {title}\n"))?;
        let part = part.split("\n### ").next()?;
        let begin = format!("| {k} | {}: {} | ", policy.writer(), policy.name());
        let row = part.lines().find_map(|line| line.strip_prefix(&begin))?;
        let figures: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        Some(cell(figures.first()?, figures.last()?))
    }

    #[test]
    fn the_readme_of_the_crate_has_the_figures_of_the_page() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = std::fs::read_to_string(root.join("docs/benchmarks/conflict.md")).unwrap();
        let readme = std::fs::read_to_string(root.join("conflict-retry/README.md")).unwrap();
        let writers = [2, 5, 10, 50];
        for k in writers {
            assert!(cell_of(&page, Load::Sustained, k, Policy::GoRetry).is_some(), "{k} writers");
        }
        let wanted = tables(&writers, |load, k, policy| cell_of(&page, load, k, policy));
        assert!(
            readme.contains(&wanted),
            "measure both in one run; by the page the README should have\n{wanted}"
        );
    }
}

//! How many lines the common jobs take: what the README of `conflict-retry` says is what its example and client-go's
//! functions have between their marks.

use std::collections::BTreeMap;

use anyhow::Context as _;

use crate::workspace;

/// The table, the example with its two modules, and the functions with client-go.
const README: &str = "conflict-retry/README.md";
const EXAMPLE: &str = "conflict-retry/examples/jobs.rs";
const CLIENT_GO: &str = "lab/cures/go/jobs.go";

/// Where the second module of the example begins.
const KUBE_ALONE: &str = "mod kube_alone {";

/// The head of the table, and its last row.
const HEAD: &str = "| task | with this crate | with kube alone | with client-go |";
const ALL: &str = "all";

/// What is wrong with the table.
pub(crate) fn complaints() -> anyhow::Result<Vec<String>> {
    let read = |path: &str| {
        std::fs::read_to_string(workspace::root().join(path)).with_context(|| format!("cannot read {path}"))
    };
    let (readme, example, client_go) = (read(README)?, read(EXAMPLE)?, read(CLIENT_GO)?);
    compared(&readme, &example, &client_go)
}

fn compared(readme: &str, example: &str, client_go: &str) -> anyhow::Result<Vec<String>> {
    let (ours, kube_alone) =
        example.split_once(KUBE_ALONE).with_context(|| format!("{EXAMPLE} has no `{KUBE_ALONE}`"))?;
    let columns = [ours, kube_alone, client_go].map(counted);
    let rows = rows(readme);
    let mut complaints = Vec::new();
    for job in columns.iter().flat_map(BTreeMap::keys) {
        if !rows.contains_key(job.as_str()) {
            complaints.push(format!("{README}: the table of jobs has no row `{job}`"));
        }
    }
    for (job, cells) in &rows {
        let wanted = columns
            .each_ref()
            .map(|column| if *job == ALL { Some(column.values().sum()) } else { column.get(*job).copied() });
        if *cells != wanted {
            let (wanted, cells) = (shown(&wanted), shown(cells));
            complaints.push(format!("{README}: `{job}` takes {wanted} lines, and the table says {cells}"));
        }
    }
    if !rows.contains_key(ALL) {
        complaints.push(format!("{README}: the table of jobs does not say what all of them take"));
    }
    complaints.sort();
    complaints.dedup();
    Ok(complaints)
}

fn shown(cells: &[Option<usize>; 3]) -> String {
    cells.map(|cell| cell.map_or_else(|| "–".to_owned(), |lines| lines.to_string())).join(", ")
}

/// The lines of each job: those between its mark and the next one, without empty lines and comments.
fn counted(source: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut job = None;
    for line in source.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("// job: ") {
            job = Some(name.to_owned());
        } else if line == "// end" {
            job = None;
        } else if let Some(job) = &job
            && !line.is_empty()
            && !line.starts_with("//")
        {
            *counts.entry(job.clone()).or_default() += 1;
        }
    }
    counts
}

/// The rows of the table: the number that each cell begins with, and nothing for a dash.
fn rows(readme: &str) -> BTreeMap<&str, [Option<usize>; 3]> {
    let table = readme.lines().skip_while(|line| *line != HEAD).skip(2);
    let rows = table.take_while(|line| line.starts_with('|')).filter_map(|line| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let job = cells.next()?;
        let mut number = || {
            let cell = cells.next()?;
            cell.split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok()
        };
        Some((job, [number(), number(), number()]))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "mod ours {\n    // job: a\n    fn a() {\n\n        // why\n    }\n    // job: b\n    fn b() {}\n    // end\n    fn other() {}\n}\n";
    const ALONE: &str = "    // job: the loop\n    fn again() {}\n    // job: a\n    fn a() {}\n    // job: b\n    fn b() {}\n    // end\n}\n";
    const GO: &str = "// job: a\nfunc a() {\n\tb()\n}\n\n// job: b\nfunc b() {}\n\n// end\n";

    fn said(rows: &str) -> Vec<String> {
        compared(
            &format!("text\n{HEAD}\n|---|---|---|---|\n{rows}\nmore"),
            &format!("{OURS}{KUBE_ALONE}\n{ALONE}"),
            GO,
        )
        .unwrap()
    }

    #[test]
    fn the_table_says_how_many_lines_each_job_has() {
        let right =
            "| the loop | – | 1 | – |\n| a | 2 | 1, with more | 3 |\n| b | 1 | 1 | 1 |\n| all | 3 | 3 | 4 |";
        assert_eq!(said(right), Vec::<String>::new());
        for wrong in [
            right.replace("| a | 2 |", "| a | 3 |"),
            right.replace("| 3 |\n| b", "| 4 |\n| b"),
            right.replace("| all | 3 |", "| all | 4 |"),
            right.replace("| b | 1 | 1 | 1 |\n", ""),
            right.replace("\n| all | 3 | 3 | 4 |", ""),
            format!("| c | 1 | 1 | 1 |\n{right}"),
        ] {
            assert_eq!(said(&wrong).len(), 1, "{wrong}: {:?}", said(&wrong));
        }
    }

    #[test]
    fn the_table_of_the_readme_is_right() {
        assert_eq!(complaints().unwrap(), Vec::<String>::new());
    }
}

//! The result: machine-readable rows, and a table with the peers' figures in it.

use serde::Serialize;

use super::case::{Case, Mix};
use super::growth::{self, Growth};
use super::measure::Measured;
use super::published::{PUBLISHED, Published};
use crate::numbers::{figure, rounded, thousands, whole};

/// One measured row. The peers' figures are not among them.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) mix: &'static str,
    pub(crate) pods: usize,
    pub(crate) nodes: usize,
    pub(crate) placed: usize,
    pub(crate) pods_per_second: f64,
    pub(crate) p99_ms: f64,
    #[serde(rename = "peakRssMiB")]
    pub(crate) peak_rss_mib: f64,
}

/// The machine-readable rows.
pub(crate) fn rows(measured: &[(Case, Measured)]) -> Vec<Row> {
    let row = |(case, measured): &(Case, Measured)| Row {
        mix: case.mix.name(),
        pods: case.pods,
        nodes: measured.nodes,
        placed: measured.placed,
        pods_per_second: rounded(pods_per_second(measured), 100.0),
        p99_ms: rounded(measured.p99_ms, 1000.0),
        peak_rss_mib: rounded(measured.peak_mib, 10.0),
    };
    measured.iter().map(row).collect()
}

/// Pods that a pass plans, by its median time. With one new pod to a pass it says how many could come one by one.
pub(crate) fn pods_per_second(measured: &Measured) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a number of pods is far below 2^52")]
    let planned = measured.planned as f64;
    planned * 1000.0 / measured.median_ms
}

const COLUMNS: usize = 12;
const HEADS: [&str; COLUMNS] = [
    "mix",
    "by",
    "pods",
    "nodes",
    "placed",
    "steps",
    "pods/s",
    "p50 ms",
    "p99 ms",
    "core %",
    "objects MiB",
    "peak MiB",
];
/// The first two columns are words, the others numbers.
const WORDS: usize = 2;

fn notes() -> [&'static str; 8] {
    [
        "nodes: new ones; runonce-down: those that go; replan: those there are, one new pod a pass (pods/s: how many could \
         come one by one)",
        "steps: what a pass looks at, as the planner counts it: pods, nodes and entries of its indexes, each as often as it does; \
         the same on every machine",
        "a pass of ours: from the objects in the caches to the decisions and the reason for each pod and node; the peers \
         time their solvers",
        "p50 and p99: over as many passes as fit the time, 200 at most; * fewer than 100, so that the p99 is the longest",
        "each pass finds the processor's caches full of something else, as that of an operator does (twice the last-level \
         cache is written before it)",
        "core %: how much of a core the process had while it planned; below 95 the machine was busy, and the times are too long",
        "objects: resident before the first pass, pods and nodes as the operator caches them; peak: the most ever, objects \
         included; one process per row",
        "the objects are made by the same rules as the peers', not by their code",
    ]
}

fn of_ours((case, measured): &(Case, Measured)) -> [String; COLUMNS] {
    let few = if measured.passes < 100 { "*" } else { "" };
    [
        case.mix.name().to_owned(),
        "Tandem".to_owned(),
        thousands(case.pods),
        thousands(measured.nodes),
        thousands(measured.placed),
        thousands(measured.steps),
        figure(pods_per_second(measured)),
        figure(measured.median_ms),
        format!("{}{few}", figure(measured.p99_ms)),
        whole(measured.core * 100.0),
        whole(measured.objects_mib),
        whole(measured.peak_mib),
    ]
}

fn of_a_peer(published: &Published) -> [String; COLUMNS] {
    let Published { mix, who, pods, nodes, pods_per_second, milliseconds } = *published;
    let unknown = || "–".to_owned();
    [
        mix.name().to_owned(),
        who.to_owned(),
        thousands(pods),
        nodes.map_or_else(unknown, thousands),
        unknown(),
        unknown(),
        pods_per_second.map_or_else(unknown, whole),
        unknown(),
        milliseconds.map_or_else(unknown, figure),
        unknown(),
        unknown(),
        unknown(),
    ]
}

/// Our rows of each mix, and below them the peers'.
fn cells(measured: &[(Case, Measured)]) -> Vec<[String; COLUMNS]> {
    let of_mix = |mix: Mix| {
        let ours: Vec<_> = measured.iter().filter(|(case, _)| case.mix == mix).map(of_ours).collect();
        let peers = PUBLISHED.iter().filter(|p| p.mix == mix && !ours.is_empty()).map(of_a_peer);
        let peers: Vec<_> = peers.collect();
        ours.into_iter().chain(peers)
    };
    Mix::ALL.into_iter().flat_map(of_mix).collect()
}

/// The table for a terminal.
pub(crate) fn table(measured: &[(Case, Measured)]) -> String {
    let heads = HEADS.map(str::to_owned);
    let lines: Vec<_> = std::iter::once(heads).chain(cells(measured)).collect();
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &lines {
        for (at, (cell, width)) in line.iter().zip(widths).enumerate() {
            text += &if at < WORDS { format!("{cell:<width$}  ") } else { format!("{cell:>width$}  ") };
        }
        text.truncate(text.trim_end().len());
        text += "\n";
    }
    text + "\n" + &notes().join("\n")
}

/// The table, the notes and the growth for a page.
pub(crate) fn markdown(measured: &[(Case, Measured)], growth: &[Growth]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&HEADS.map(str::to_owned));
    text += &format!("|{}{}\n", "---|".repeat(WORDS), "---:|".repeat(HEADS.len() - WORDS));
    text += &cells(measured).iter().map(|cells| line(cells)).collect::<String>();
    text += "\n";
    text += &notes().map(|note| format!("- {note}\n")).concat();
    text + "\n```text\n" + &growth::text(growth) + "\n```\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Vec<(Case, Measured)> {
        let one = Measured {
            nodes: 2595,
            placed: 51_000,
            planned: 51_000,
            passes: 99,
            steps: 1_234_567,
            median_ms: 510.0,
            p99_ms: 612.345_67,
            core: 0.98,
            objects_mib: 100.0,
            peak_mib: 123.45,
            complaints: Vec::new(),
        };
        vec![("cluster-autoscaler/0/51000".parse().unwrap(), one)]
    }

    #[test]
    fn a_row_has_exactly_the_agreed_fields() {
        assert_eq!(
            serde_json::to_string(&rows(&measured())).unwrap(),
            r#"[{"mix":"cluster-autoscaler","pods":51000,"nodes":2595,"placed":51000,"podsPerSecond":100000.0,"p99Ms":612.346,"peakRssMiB":123.5}]"#
        );
    }

    #[test]
    fn the_table_has_our_row_above_the_peers_of_its_mix_and_no_other_mix() {
        let text = table(&measured());
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].starts_with("cluster-autoscaler  Tandem"), "{text}");
        assert!(
            lines[1].contains("1,234,567") && lines[1].contains("100,000") && lines[1].contains("612*"),
            "{text}"
        );
        assert!(lines[2].contains("asserted") && lines[2].contains("2,595"), "{text}");
        assert!(!text.contains("Karpenter"), "{text}");
        assert_eq!(lines[0].chars().count(), lines[1].chars().count(), "columns stand below each other");
    }
}

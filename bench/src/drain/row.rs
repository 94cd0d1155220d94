//! The result: machine-readable rows, a table, and what is wrong with them.

use serde::Serialize;

use crate::numbers::{figure, thousands, whole};

/// What the operator may have resident at any time.
const BAR_MIB: f64 = 128.0;
/// How many lists of one node's pods it may make a second, on average, while nothing can go.
const BAR_LISTS: f64 = 10.0;

/// A part of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) seconds: f64,
    /// The most that the process had resident since it began.
    #[serde(rename = "peakRssMiB")]
    pub(crate) peak_rss_mib: f64,
    /// Lists of one node's pods.
    pub(crate) lists: usize,
    /// Whether nothing could go: then the rate of lists has a bar.
    pub(crate) blocked: bool,
}

impl Phase {
    fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "some thousand lists")]
        let lists = self.lists as f64;
        lists / self.seconds.max(1.0)
    }
}

/// One measured cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) nodes: usize,
    pub(crate) pods_per_node: usize,
    /// The size of a pod in the API server's answer.
    #[serde(rename = "podKiB")]
    pub(crate) pod_kib: f64,
    /// Resident before the scale-down.
    #[serde(rename = "rssMiB")]
    pub(crate) rss_mib: f64,
    pub(crate) phases: Vec<Phase>,
}

const HEADS: [&str; 6] = ["phase", "seconds", "before MiB", "peak MiB", "lists", "lists a second"];

impl Row {
    /// What is wrong with the row.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let size = self.size();
        let mut complaints = Vec::new();
        for phase in &self.phases {
            let Phase { name, peak_rss_mib, .. } = phase;
            if *peak_rss_mib > BAR_MIB {
                complaints.push(format!(
                    "{size}, {name}: {peak_rss_mib:.1} MiB resident, and the bar is {BAR_MIB} MiB"
                ));
            }
            let rate = phase.rate();
            if phase.blocked && rate > BAR_LISTS {
                complaints
                    .push(format!("{size}, {name}: {rate:.1} lists a second, and the bar is {BAR_LISTS}"));
            }
        }
        complaints
    }

    fn size(&self) -> String {
        let Self { nodes, pods_per_node, .. } = self;
        format!("{} nodes × {pods_per_node} pods", thousands(*nodes))
    }

    fn head(&self) -> String {
        format!("{} of {} KiB", self.size(), whole(self.pod_kib))
    }

    fn lines(&self) -> impl Iterator<Item = [String; 6]> {
        self.phases.iter().map(|phase| {
            let (before, peak) = (format!("{:.1}", self.rss_mib), format!("{:.1}", phase.peak_rss_mib));
            let (lists, rate) = (thousands(phase.lists), format!("{:.1}", phase.rate()));
            [phase.name.to_owned(), figure(phase.seconds), before, peak, lists, rate]
        })
    }

    /// For a terminal.
    pub(crate) fn table(&self) -> String {
        let mut text = self.head() + "\n";
        for [name, figures @ ..] in std::iter::once(HEADS.map(str::to_owned)).chain(self.lines()) {
            text += &format!("{name:<24}");
            text.extend(figures.iter().map(|figure| format!("{figure:>15}")));
            text += "\n";
        }
        text
    }

    /// For a page.
    pub(crate) fn markdown(&self) -> String {
        let mut text = self.head() + ":\n\n";
        text += &format!("| {} |\n|---|{}\n", HEADS.join(" | "), "---:|".repeat(HEADS.len() - 1));
        text.extend(self.lines().map(|line| format!("| {} |\n", line.join(" | "))));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(peak_rss_mib: f64, lists: usize, blocked: bool) -> Row {
        let phase = Phase { name: "blocked", seconds: 120.0, peak_rss_mib, lists, blocked };
        Row { nodes: 500, pods_per_node: 30, pod_kib: 11.6, rss_mib: 20.25, phases: vec![phase] }
    }

    #[test]
    fn a_row_has_exactly_the_agreed_fields() {
        assert_eq!(
            serde_json::to_string(&row(40.5, 1000, true)).unwrap(),
            r#"{"nodes":500,"podsPerNode":30,"podKiB":11.6,"rssMiB":20.25,"phases":[{"name":"blocked","seconds":120.0,"peakRssMiB":40.5,"lists":1000,"blocked":true}]}"#
        );
    }

    #[test]
    fn what_is_above_a_bar_is_named_and_a_drain_that_goes_on_may_list() {
        assert_eq!(row(128.0, 1200, true).complaints(), [""; 0]);
        let said = row(128.1, 1201, true).complaints().join("\n");
        assert!(said.contains("500 nodes × 30 pods, blocked: 128.1 MiB resident"), "{said}");
        assert!(said.contains("10.0 lists a second"), "{said}");
        assert_eq!(row(1.0, 5000, false).complaints(), [""; 0]);
    }

    #[test]
    fn both_tables_have_all_figures() {
        for text in [row(40.5, 1080, true).table(), row(40.5, 1080, true).markdown()] {
            for word in ["500 nodes × 30 pods of 12 KiB", "blocked", "120", "20.2", "40.5", "1,080", "9.0"] {
                assert!(text.contains(word), "{word} in\n{text}");
            }
        }
    }
}

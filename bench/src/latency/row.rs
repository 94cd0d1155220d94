//! The result: a machine-readable row, a table, and what is wrong with it.

use serde::Serialize;

use super::sample::Sample;
use crate::numbers::{figure, percentile, rounded, thousands};

/// From a pending pod to the write of the pool's scale: the p99 is below it (`docs/benchmarks/latency.md`).
pub(crate) const BAR_MS: f64 = 1000.0;
/// What an operator may have resident at any time, in the cluster of the page.
pub(crate) const BAR_MIB: f64 = 100.0;

/// The times of all samples, in milliseconds.
#[expect(clippy::struct_field_names, reason = "the rows for machines say the unit in each name")]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Times {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Times {
    fn of(samples: &[Sample], time: fn(&Sample) -> f64) -> Self {
        let mut sorted: Vec<f64> = samples.iter().map(time).collect();
        sorted.sort_by(f64::total_cmp);
        let of = |share| rounded(percentile(&sorted, share), 1000.0);
        Self { p50_ms: of(0.5), p99_ms: of(0.99), max_ms: of(1.0) }
    }
}

/// The memory of an operator's process.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Memory {
    pub(crate) name: &'static str,
    /// Resident in the empty cluster.
    #[serde(rename = "emptyRssMiB")]
    pub(crate) empty_rss_mib: f64,
    /// Resident after the last sample.
    #[serde(rename = "rssMiB")]
    pub(crate) rss_mib: f64,
    /// The most that ever was.
    #[serde(rename = "peakRssMiB")]
    pub(crate) peak_rss_mib: f64,
    /// The most after a start in the full cluster.
    #[serde(rename = "restartedPeakRssMiB")]
    pub(crate) restarted_peak_rss_mib: f64,
}

/// A line of a table: what it is about, and its figures or their heads.
type Line = (String, Vec<String>);

/// One measured cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) samples: usize,
    /// The row's own times: what the bar is about.
    #[serde(flatten)]
    pub(crate) from_create: Times,
    pub(crate) from_unschedulable: Times,
    pub(crate) operators: Vec<Memory>,
}

impl Row {
    pub(crate) fn new(nodes: usize, pods: usize, samples: &[Sample], operators: Vec<Memory>) -> Self {
        Self {
            nodes,
            pods,
            samples: samples.len(),
            from_create: Times::of(samples, |sample| sample.from_create_ms),
            from_unschedulable: Times::of(samples, |sample| sample.from_unschedulable_ms),
            operators,
        }
    }

    /// What is wrong with the row, with a bar for the memory in MiB.
    pub(crate) fn complaints(&self, asked: usize, bar_mib: f64) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.samples != asked {
            complaints.push(format!("{} samples were taken, and {asked} were asked for", self.samples));
        }
        let Times { p50_ms: _, p99_ms, max_ms: _ } = self.from_create;
        if p99_ms >= BAR_MS {
            complaints.push(format!(
                "fromCreate: the p99 is {} ms, and the bar is below {} ms (fromUnschedulable: {} ms)",
                figure(p99_ms),
                figure(BAR_MS),
                figure(self.from_unschedulable.p99_ms)
            ));
        }
        for Memory { name, empty_rss_mib: _, rss_mib, peak_rss_mib, restarted_peak_rss_mib } in
            &self.operators
        {
            if peak_rss_mib.max(*restarted_peak_rss_mib) >= bar_mib {
                complaints.push(format!(
                    "{name} had {peak_rss_mib} MiB resident at most, {rss_mib} MiB in the end and at most \
                     {restarted_peak_rss_mib} MiB when it was started again, and the bar is below {bar_mib} MiB"
                ));
            }
        }
        complaints
    }

    fn head(&self) -> String {
        format!(
            "{} nodes, {} pods, {} samples",
            thousands(self.nodes),
            thousands(self.pods),
            thousands(self.samples)
        )
    }

    /// The two tables, heads first.
    fn tables(&self) -> [Vec<Line>; 2] {
        let head = |name: &str, heads: &[&str]| {
            (name.to_owned(), heads.iter().map(|&head| head.to_owned()).collect())
        };
        let times = |name: &str, times: Times| {
            let Times { p50_ms, p99_ms, max_ms } = times;
            (name.to_owned(), [p50_ms, p99_ms, max_ms].map(figure).into())
        };
        let memory = |memory: &Memory| {
            let Memory { name, empty_rss_mib, rss_mib, peak_rss_mib, restarted_peak_rss_mib } = memory;
            let figures = [empty_rss_mib, rss_mib, peak_rss_mib, restarted_peak_rss_mib];
            ((*name).to_owned(), figures.map(|mib| format!("{mib:.1}")).into())
        };
        let latencies = vec![
            head("to the scale", &["p50 ms", "p99 ms", "max ms"]),
            times("fromCreate", self.from_create),
            times("fromUnschedulable", self.from_unschedulable),
        ];
        let memories = std::iter::once(head("resident", &["empty MiB", "now MiB", "peak MiB", "again MiB"]))
            .chain(self.operators.iter().map(memory))
            .collect();
        [latencies, memories]
    }

    /// The tables for a terminal.
    pub(crate) fn table(&self) -> String {
        let mut text = self.head() + "\n";
        for lines in self.tables() {
            text += "\n";
            for (name, figures) in lines {
                text += &format!("{name:<22}");
                text.extend(figures.iter().map(|figure| format!("{figure:>12}")));
                text += "\n";
            }
        }
        text + "\n" + &NOTES.join("\n")
    }

    /// The tables for a page.
    pub(crate) fn markdown(&self) -> String {
        let mut text = self.head() + ":\n";
        for lines in self.tables() {
            text += "\n";
            for (at, (name, figures)) in lines.iter().enumerate() {
                text += &format!("| {name} | {} |\n", figures.join(" | "));
                if at == 0 {
                    text += &format!("|---|{}\n", "---:|".repeat(figures.len()));
                }
            }
        }
        text + "\n" + &NOTES.map(|note| format!("- {note}\n")).concat()
    }
}

const NOTES: [&str; 3] = [
    "fromCreate: from just before the POST of the pod, the scheduler's attempt included; the bar is about this one",
    "fromUnschedulable: from the watch that shows the pod unschedulable; both end with the watch that shows the larger \
     spec.replicas",
    "now: after the last sample; peak: the most ever, the filling of the cluster included; again: the most after a start \
     in the full cluster",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn row(slowest: f64, peak: f64) -> Row {
        let sample = |ms| Sample { from_create_ms: ms, from_unschedulable_ms: ms / 2.0, failed: None };
        let samples: Vec<Sample> = (1..100).map(f64::from).chain([slowest]).map(sample).collect();
        let memory = Memory {
            name: "autoscaler-operator",
            empty_rss_mib: 8.0,
            rss_mib: 60.5,
            peak_rss_mib: peak,
            restarted_peak_rss_mib: 64.0,
        };
        Row::new(1000, 30_000, &samples, vec![memory])
    }

    #[test]
    fn a_row_has_exactly_the_agreed_fields() {
        assert_eq!(
            serde_json::to_string(&row(100.0, 70.25)).unwrap(),
            r#"{"nodes":1000,"pods":30000,"samples":100,"p50Ms":50.0,"p99Ms":99.0,"maxMs":100.0,"fromUnschedulable":{"p50Ms":25.0,"p99Ms":49.5,"maxMs":50.0},"operators":[{"name":"autoscaler-operator","emptyRssMiB":8.0,"rssMiB":60.5,"peakRssMiB":70.25,"restartedPeakRssMiB":64.0}]}"#
        );
    }

    #[test]
    fn a_missed_bar_and_a_missing_sample_are_named() {
        assert_eq!(row(100.0, 99.9).complaints(100, BAR_MIB), [""; 0]);
        let said = row(100.0, 100.0).complaints(101, BAR_MIB).join("\n");
        assert!(said.contains("100 samples were taken, and 101"), "{said}");
        assert!(said.contains("autoscaler-operator had 100 MiB"), "{said}");
        let mut again = row(100.0, 1.0);
        again.operators[0].restarted_peak_rss_mib = 100.0;
        assert_eq!(again.complaints(100, BAR_MIB).len(), 1);
        let mut slow = row(100.0, 1.0);
        slow.from_create.p99_ms = 1000.0;
        let said = slow.complaints(100, BAR_MIB).join("\n");
        assert!(said.contains("p99 is 1,000 ms"), "{said}");
    }

    #[test]
    fn both_tables_have_both_of_their_lines() {
        for text in [row(100.0, 70.25).table(), row(100.0, 70.25).markdown()] {
            for word in
                ["1,000 nodes", "fromCreate", "fromUnschedulable", "99.0", "autoscaler-operator", "60.5"]
            {
                assert!(text.contains(word), "{word} in\n{text}");
            }
        }
    }
}

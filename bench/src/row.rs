//! The result: one row per policy, number of writers and load.

use serde::Serialize;

use crate::load::Load;
use crate::numbers;
use crate::policy::Policy;
use crate::session::Report;

/// One measured cell.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) writer: &'static str,
    pub(crate) policy: &'static str,
    pub(crate) k: usize,
    pub(crate) load: Load,
    pub(crate) requests_per_success: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) give_ups: u64,
    pub(crate) wall_seconds: f64,
    pub(crate) expected: usize,
    pub(crate) r#final: i64,
    #[serde(skip)]
    watches: u64,
}

impl Row {
    pub(crate) fn new(
        policy: Policy,
        k: usize,
        load: Load,
        report: &Report,
        expected: usize,
        total: i64,
    ) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "thousands of requests at most")]
        let requests_per_success = report.requests as f64 / report.latencies_ms.len().max(1) as f64;
        Self {
            writer: policy.writer(),
            policy: policy.name(),
            k,
            load,
            requests_per_success: rounded(requests_per_success),
            p50_ms: rounded(report.percentile(0.5)),
            p99_ms: rounded(report.percentile(0.99)),
            give_ups: report.give_ups,
            wall_seconds: rounded(report.wall_seconds),
            expected,
            r#final: total,
            watches: report.watches,
        }
    }

    /// What is wrong when the object does not hold what was acknowledged.
    pub(crate) fn lost(&self) -> Option<String> {
        (i64::try_from(self.expected) != Ok(self.r#final)).then(|| {
            let Self { writer, policy, k, load, expected, r#final, .. } = self;
            format!("{writer}, {policy}, {k} writers, {}: expected {expected}, found {final}", load.name())
        })
    }
}

/// To a thousandth: more digits than that are noise.
fn rounded(value: f64) -> f64 {
    numbers::rounded(value, 1000.0)
}

/// The rows as a table.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut group = None;
    for row in rows {
        if group.replace((row.k, row.load)) != Some((row.k, row.load)) {
            text += &format!(
                "\n{} writers, {}\n{:<40}{:>9}{:>9}{:>9}{:>9}{:>8}{:>9}{:>8}{:>8}\n",
                row.k,
                row.load.name(),
                "",
                "requests",
                "p50 ms",
                "p99 ms",
                "give-ups",
                "wall s",
                "expected",
                "final",
                "watches",
            );
        }
        text += &format!(
            "{:<40}{:>9.2}{:>9.1}{:>9.1}{:>9}{:>8.1}{:>9}{:>8}{:>8}\n",
            format!("{}: {}", row.writer, row.policy),
            row.requests_per_success,
            row.p50_ms,
            row.p99_ms,
            row.give_ups,
            row.wall_seconds,
            row.expected,
            row.r#final,
            row.watches,
        );
    }
    text += "\nrequests: GET, PUT and PATCH per success; events of a watch are none, watches opened are counted apart";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_increment_and_one_made_twice_are_named_and_an_exact_count_is_not() {
        let row = |total| Row::new(Policy::Watched, 2, Load::Burst, &Report::default(), 40, total);
        assert_eq!(row(40).lost(), None);
        for total in [39, 41] {
            let said = row(total).lost().unwrap();
            assert_eq!(
                said,
                format!("conflict-retry, default, watch-fed, 2 writers, burst: expected 40, found {total}")
            );
        }
    }

    #[test]
    fn a_row_has_exactly_the_agreed_fields() {
        let row = Row::new(Policy::GoRetry, 2, Load::Sustained, &Report::default(), 0, 0);
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(
            text,
            r#"{"writer":"client-go","policy":"DefaultRetry","k":2,"load":"sustained","requestsPerSuccess":0.0,"p50Ms":0.0,"p99Ms":0.0,"giveUps":0,"wallSeconds":0.0,"expected":0,"final":0}"#
        );
    }
}

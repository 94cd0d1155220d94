//! The result: one row per policy, number of writers and load.

use serde::Serialize;

use crate::load::Load;
use crate::numbers::{self, figure};
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

/// The share of calls that ended without a write, because the policy's attempts were used up.
fn gave_up(row: &Row) -> String {
    #[expect(clippy::cast_precision_loss, reason = "thousands of calls at most")]
    let (failed, made) = (row.give_ups as f64, row.expected as f64);
    if row.give_ups == 0 { "0 %".to_owned() } else { format!("{:.1} %", 100.0 * failed / (failed + made)) }
}

/// The rows in Markdown: a table for each load, from which the site's script makes its bars. `picture` is the file of the
/// plot, beside the page.
pub(crate) fn markdown(rows: &[Row], picture: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(picture) = picture {
        text += &format!(
            "![Requests per success, and p99 in milliseconds, over the number of writers; a line for each policy]({picture})\n\n"
        );
    }
    for (load, title) in [
        (Load::Burst, "All writers begin at once"),
        (Load::Sustained, "Each writer begins in its own time, again and again"),
    ] {
        let mut of_load = rows.iter().filter(|row| row.load == load).peekable();
        if of_load.peek().is_none() {
            continue;
        }
        text += &format!(
            "### {title}\n\n<!-- bill -->\n\n\
             | writers | policy | requests per success | gave up | p50 ms | p99 ms |\n|---:|---|---:|---:|---:|---:|\n"
        );
        for row in of_load {
            text += &format!(
                "| {} | {}: {} | {:.2} | {} | {} | {} |\n",
                row.k,
                row.writer,
                row.policy,
                row.requests_per_success,
                gave_up(row),
                figure(row.p50_ms),
                figure(row.p99_ms),
            );
        }
        text.push('\n');
    }
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
    fn the_page_has_a_line_for_each_row_the_share_of_calls_that_gave_up_and_the_plot() {
        let report = |give_ups| Report {
            latencies_ms: vec![10.0, 1234.5],
            requests: 9,
            give_ups,
            ..Report::default()
        };
        let rows = [
            Row::new(Policy::Watched, 2, Load::Burst, &report(0), 30, 30),
            Row::new(Policy::GoRetry, 50, Load::Burst, &report(10), 30, 30),
        ];
        let text = markdown(&rows, Some("conflict.svg"));
        assert!(text.contains("](conflict.svg)"), "{text}");
        assert!(
            text.contains("| 2 | conflict-retry: default, watch-fed | 4.50 | 0 % | 10.0 | 1,235 |"),
            "{text}"
        );
        assert!(text.contains("| 50 | client-go: DefaultRetry | 4.50 | 25.0 % | 10.0 | 1,235 |"), "{text}");
        assert_eq!(
            text.matches("<!-- bill -->").count(),
            1,
            "nothing was measured under the other load: {text}"
        );
        assert!(!markdown(&rows, None).contains("!["));
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

//! The curve as a self-contained SVG: requests per success and p99 against the number of writers, one line per policy, a
//! row of panels per load. Both axes are logarithmic, because costs grow as powers of the number of writers.

use crate::load::Load;
use crate::policy::Policy;
use crate::row::Row;

/// Size of a panel's plotting area and of the margins around it, in pixels.
const PANEL: (f64, f64) = (400.0, 250.0);
const MARGIN: (f64, f64) = (70.0, 62.0);
/// Room for the legend, to the right.
const LEGEND: f64 = 310.0;
const LINE: f64 = 22.0;

/// What a panel shows.
#[derive(Clone, Copy)]
struct Measure {
    title: &'static str,
    of: fn(&Row) -> f64,
}

const MEASURES: [Measure; 2] = [
    Measure { title: "requests per success", of: |row| row.requests_per_success },
    Measure { title: "p99, milliseconds", of: |row| row.p99_ms },
];

/// A logarithmic axis: values from `low` to `high` over `length` pixels.
pub(crate) struct Axis {
    low: f64,
    high: f64,
    length: f64,
}

impl Axis {
    pub(crate) fn over(values: impl Iterator<Item = f64> + Clone, length: f64) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(f64::NEG_INFINITY, f64::max);
        Self { low: low / 1.15, high: high * 1.15, length }
    }

    pub(crate) fn at(&self, value: f64) -> f64 {
        (value / self.low).ln() / (self.high / self.low).ln() * self.length
    }

    /// 1, 2 and 5 times the powers of ten that lie on the axis.
    pub(crate) fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        let powers = (-3..8).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
        powers.filter(|tick| (self.low..=self.high).contains(tick))
    }
}

/// Light, and dark where the reader's system is.
const STYLE: &str = "text{fill:#24292f}.page{fill:#fff}.frame{fill:none;stroke:#888}.grid{stroke:#888;stroke-opacity:.3}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117}}";

/// Colour and dashes of a policy. The colours can be told from a white page and from a dark one.
fn style(policy: Policy) -> (&'static str, &'static str) {
    match policy {
        Policy::Watched => ("#12855f", ""),
        Policy::Live => ("#1f9d6b", "7 3"),
        Policy::GoRetry => ("#d62839", ""),
        Policy::GoBackoff => ("#c86d00", ""),
        Policy::CompatRetry => ("#d62839", "2 3"),
        Policy::CompatBackoff => ("#c86d00", "2 3"),
        Policy::Guarded => ("#4a78d0", ""),
        Policy::Merge => ("#4a78d0", "7 3"),
        Policy::Apply => ("#4a78d0", "2 3"),
    }
}

/// Draws the rows.
pub(crate) fn svg(rows: &[Row]) -> String {
    let loads: Vec<Load> = [Load::Burst, Load::Sustained]
        .into_iter()
        .filter(|load| rows.iter().any(|row| row.load == *load))
        .collect();
    let policies: Vec<Policy> =
        Policy::ALL.into_iter().filter(|policy| rows.iter().any(|row| is_of(row, *policy))).collect();
    let cell = (PANEL.0 + MARGIN.0 + 20.0, PANEL.1 + MARGIN.1 + 20.0);
    #[expect(clippy::cast_precision_loss, reason = "one or two loads")]
    let (width, height) = (2.0 * cell.0 + LEGEND, loads.len().max(1) as f64 * cell.1 + 10.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"13\" role=\"img\" \
         aria-label=\"Requests per success and p99 over the number of writers\">\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\"/>\n"
    );
    let mut top = 34.0;
    for load in loads {
        let mut left = MARGIN.0;
        for measure in MEASURES {
            let of_load: Vec<&Row> = rows.iter().filter(|row| row.load == load).collect();
            text += &panel(&of_load, &policies, measure, load, (left, top));
            left += cell.0;
        }
        top += cell.1;
    }
    text += &legend(&policies, 2.0 * cell.0);
    text + "</svg>\n"
}

fn is_of(row: &Row, policy: Policy) -> bool {
    row.writer == policy.writer() && row.policy == policy.name()
}

fn panel(rows: &[&Row], policies: &[Policy], measure: Measure, load: Load, corner: (f64, f64)) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a number of writers is small")]
    let writers = |row: &Row| row.k as f64;
    let (width, height) = PANEL;
    let x = Axis::over(rows.iter().map(|row| writers(row)), width);
    // A logarithm knows no zero.
    let value = |row: &Row| (measure.of)(row).max(0.01);
    let y = Axis::over(rows.iter().map(|row| value(row)), height);
    let mut text = format!("<g transform=\"translate({:.1} {:.1})\">\n", corner.0, corner.1);
    text += &format!(
        "<text x=\"0\" y=\"-12\" font-weight=\"bold\">{}: {}</text>\n\
         <rect class=\"frame\" width=\"{width}\" height=\"{height}\"/>\n",
        load.name(),
        measure.title
    );
    for tick in y.ticks() {
        let at = height - y.at(tick);
        text += &format!(
            "<line class=\"grid\" x1=\"0\" x2=\"{width}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>\n",
            at + 4.0
        );
    }
    let mut counts: Vec<usize> = rows.iter().map(|row| row.k).collect();
    counts.sort_unstable();
    counts.dedup();
    for count in counts {
        #[expect(clippy::cast_precision_loss, reason = "a number of writers is small")]
        let at = x.at(count as f64);
        text += &format!(
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{height}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{count}</text>\n",
            height + 18.0
        );
    }
    text += &format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">writers</text>\n",
        width / 2.0,
        height + 38.0
    );
    for policy in policies {
        let (colour, dashes) = style(*policy);
        let mut of_policy: Vec<&&Row> = rows.iter().filter(|row| is_of(row, *policy)).collect();
        of_policy.sort_by_key(|row| row.k);
        let points: Vec<(f64, f64)> =
            of_policy.iter().map(|row| (x.at(writers(row)), height - y.at(value(row)))).collect();
        text += &curve(&points, colour, dashes);
    }
    text + "</g>\n"
}

/// A line through places of a panel, with a dot on each.
pub(crate) fn curve(places: &[(f64, f64)], colour: &str, dashes: &str) -> String {
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let mut text = format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
         stroke-dasharray=\"{dashes}\"/>\n",
        path.join(" ")
    );
    for (x, y) in places {
        text += &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>\n");
    }
    text
}

fn legend(policies: &[Policy], left: f64) -> String {
    let mut text = format!("<g transform=\"translate({left:.1} 40)\">\n");
    let mut y = 0.0;
    for policy in policies {
        let (colour, dashes) = style(*policy);
        text += &format!(
            "<line x1=\"0\" x2=\"30\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"2\" \
             stroke-dasharray=\"{dashes}\"/><text x=\"38\" y=\"{:.1}\">{}: {}</text>\n",
            y + 4.0,
            policy.writer(),
            policy.name()
        );
        y += LINE;
    }
    text + "</g>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Report;

    fn row(policy: Policy, k: usize, load: Load) -> Row {
        let report = Report { latencies_ms: vec![1.5; k], requests: 3, ..Report::default() };
        Row::new(policy, k, load, &report, k, 0)
    }

    #[test]
    fn every_policy_has_a_line_in_every_panel_and_nothing_leaves_the_axes() {
        let rows: Vec<Row> = [Load::Burst, Load::Sustained]
            .into_iter()
            .flat_map(|load| [2, 50].map(|k| [row(Policy::Watched, k, load), row(Policy::GoRetry, k, load)]))
            .flatten()
            .collect();
        let text = svg(&rows);
        assert_eq!(text.matches("<polyline").count(), 2 * 2 * 2);
        assert_eq!(text.matches("<circle").count(), 2 * 2 * 2 * 2);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        for k in [2, 50] {
            let tick = format!("text-anchor=\"middle\">{k}</text>");
            assert_eq!(text.matches(&tick).count(), 2 * 2, "{k} writers in every panel");
        }
        assert!(text.contains("prefers-color-scheme:dark") && !text.contains("white"), "{text}");
    }

    #[test]
    fn an_axis_is_logarithmic() {
        let axis = Axis { low: 1.0, high: 100.0, length: 10.0 };
        assert!((axis.at(10.0) - 5.0).abs() < 1e-9);
        assert_eq!(axis.ticks().collect::<Vec<_>>(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }

    #[test]
    fn no_rows_draw_no_lines() {
        assert!(!svg(&[]).contains("<polyline"));
    }
}

//! A rollout: nodes over time, and the bounds that it kept.

use super::plot::{Entry, PLOT, Sample, Scale, framed, number, pixels};
use crate::soak::check::PoolSize;

/// A number of nodes that changes over time.
struct Series {
    name: &'static str,
    class: &'static str,
    of: fn(&PoolSize) -> usize,
}

const SERIES: [Series; 5] = [
    Series { name: "exist", class: "all", of: |size| size.all },
    Series { name: "Ready and in use", class: "usable", of: |size| size.usable },
    Series { name: "wanted", class: "wanted", of: |size| size.wanted },
    Series { name: "up to date", class: "new", of: |size| size.current },
    Series { name: "out of date", class: "old", of: |size| size.all - size.current },
];

/// Draws the sizes of a pool; the first is at time zero.
pub fn svg(sizes: &[PoolSize]) -> String {
    let rolling = sizes.iter().find(|size| size.rolls);
    let title = rolling.map_or_else(
        || "No rollout".to_owned(),
        |size| {
            let (wanted, surge, missing) = (size.wanted, size.most - size.wanted, size.wanted - size.least);
            format!("A rollout of {wanted} nodes: at most {surge} more, at most {missing} missing")
        },
    );
    let mut inside = String::new();
    if let Some(scale) = Scale::of(sizes) {
        inside += &scale.axes("seconds since the template was changed");
        inside += &band(&scale);
        inside += &deaths(&scale);
        for series in &SERIES {
            inside += &format!("<path class=\"line {}\" d=\"{}\"/>\n", series.class, scale.steps(series.of));
        }
    }
    let mut legend: Vec<Entry> =
        SERIES.iter().map(|series| (Sample::Line(series.class), series.name)).collect();
    legend.push((Sample::Area("band"), "between the bounds"));
    framed(&title, "A rollout: nodes over time", &inside, &legend)
}

/// Between the least nodes to use and the most nodes there may be.
fn band(scale: &Scale) -> String {
    let mut upper = String::new();
    let mut lower = String::new();
    for (at, size) in scale.sizes.iter().enumerate() {
        let (from, to) =
            (scale.x(size.at), scale.sizes.get(at + 1).map_or(pixels(PLOT.0), |next| scale.x(next.at)));
        if to == from {
            continue;
        }
        let (most, least) = (scale.y(number(size.most)), scale.y(number(size.least)));
        upper += &format!("{}{from} {most}H{to}", if upper.is_empty() { "M" } else { "L" });
        lower = format!("L{to} {least}H{from}{lower}");
    }
    format!("<path class=\"band\" d=\"{upper}{lower}Z\"/>\n")
}

/// Where kubelets stop.
fn deaths(scale: &Scale) -> String {
    let deaths = scale.sizes.iter().find(|size| size.dead > 0);
    deaths.map_or_else(String::new, |first| {
        let (x, height) = (scale.x(first.at), PLOT.1);
        format!(
            "<line class=\"death\" x1=\"{x}\" x2=\"{x}\" y2=\"{height}\"/>\
             <text x=\"{}\" y=\"{}\">kubelets stop</text>\n",
            x + 6,
            height - 12.0
        )
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn size(second: i64, all: usize, current: usize) -> PoolSize {
        let at = Timestamp::from_second(1_700_000_000 + second).unwrap();
        let rolls = current < all;
        let bounds = PoolSize { wanted: 10, most: 11, least: 9, ..PoolSize::EMPTY };
        PoolSize { at, all, usable: all, current, rolls, ..bounds }
    }

    #[test]
    fn every_number_has_a_line_that_begins_and_ends_at_the_sides() {
        let text = svg(&[size(0, 10, 10), size(2, 11, 1), size(9, 10, 10)]);
        assert_eq!(text.matches("class=\"line ").count(), 2 * SERIES.len());
        assert!(!text.contains("NaN") && !text.contains("inf"));
        let drawn = text.split("d=\"M0 ").count() - 1;
        assert_eq!(drawn, SERIES.len() + 1 + 2, "lines, the band, and the legend's first column");
        assert!(text.contains(&format!("H{}\"/>", PLOT.0)));
    }

    #[test]
    fn no_recording_draws_no_line() {
        assert!(!svg(&[]).contains("class=\"band\" d="));
    }
}

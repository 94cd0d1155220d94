//! The scaling curves as a self-contained SVG, all axes logarithmic: pods a second on Karpenter's mix beside Karpenter,
//! the time of a pass on every mix, and how long one new pod waits for its decision.

use super::case::{Case, Mix};
use super::growth::{self, Shape};
use super::measure::Measured;
use super::published::{HERE, PUBLISHED};
use super::row::pods_per_second;
use crate::plot::{self, Axis};

/// Size of a panel's plotting area, and the room to its left and around it, in pixels.
const PANEL: (f64, f64) = (380.0, 290.0);
const LEFT: f64 = 80.0;
const TOP: f64 = 50.0;
const BELOW: f64 = 120.0;
const LINE: f64 = 18.0;

/// A curve.
struct Curve {
    name: String,
    colour: &'static str,
    dashes: &'static str,
    points: Vec<(f64, f64)>,
}

struct Panel {
    title: &'static str,
    x: &'static str,
    curves: Vec<Curve>,
}

const PEER: &str = "#c1121f";

fn colour(mix: Mix) -> &'static str {
    match mix {
        Mix::Karpenter => "#0b6e4f",
        Mix::ClusterAutoscaler => "#3a5ba0",
        Mix::RunOnceUp => "#e07a00",
        Mix::RunOnceDown => "#8a4fbf",
        Mix::Replan => "#333333",
    }
}

/// Draws the rows.
pub(crate) fn svg(rows: &[(Case, Measured)]) -> String {
    let panels = [throughput(rows), times(rows), waits(rows)];
    let cell = LEFT + PANEL.0 + 30.0;
    let height = TOP + PANEL.1 + BELOW;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0} {height:.0}\" width=\"{0:.0}\" \
         height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        3.0 * cell
    );
    let mut left = LEFT;
    for panel in &panels {
        text += &draw(panel, left);
        left += cell;
    }
    text + "</svg>\n"
}

#[expect(clippy::cast_precision_loss, reason = "numbers of pods and nodes are far below 2^52")]
fn points(shape: &Shape<'_>, of: impl Fn(&Case, &Measured) -> (usize, f64)) -> Vec<(f64, f64)> {
    let mut points: Vec<_> = shape.rows.iter().map(|(c, m)| of(c, m)).collect();
    points.sort_unstable_by_key(|point| point.0);
    points.into_iter().map(|(x, y)| (x as f64, y)).collect()
}

fn throughput(rows: &[(Case, Measured)]) -> Panel {
    let shapes = growth::shapes(rows);
    let karpenter = shapes.iter().filter(|shape| shape.mix == Mix::Karpenter);
    let ours =
        karpenter.flat_map(|shape| points(shape, |case, measured| (case.pods, pods_per_second(measured))));
    #[expect(clippy::cast_precision_loss, reason = "thousands of pods")]
    let theirs: Vec<_> = PUBLISHED
        .iter()
        .filter(|p| p.who == HERE)
        .filter_map(|p| Some((p.pods as f64, p.pods_per_second?)))
        .collect();
    let hundredfold = theirs.iter().map(|&(x, y)| (x, 100.0 * y)).collect();
    let peer = |name: &str, dashes, points| Curve { name: name.to_owned(), colour: PEER, dashes, points };
    Panel {
        title: "Karpenter's mix: pods a second",
        x: "pods",
        curves: vec![
            Curve {
                name: "Tandem, the whole pass".to_owned(),
                colour: colour(Mix::Karpenter),
                dashes: "",
                points: ours.collect(),
            },
            peer(HERE, "", theirs),
            peer("a hundred times that: the bar", "2 4", hundredfold),
        ],
    }
}

fn times(rows: &[(Case, Measured)]) -> Panel {
    let growth = growth::of(rows);
    let shapes = growth::shapes(rows);
    let curve = |(at, shape): (usize, &Shape<'_>)| {
        let points = points(shape, |case, measured| (case.size(), measured.median_ms));
        let exponent = growth.iter().find(|g| g.name == shape.name).map(|g| format!(", n^{:.2}", g.time));
        let name = format!("{}{}", shape.name, exponent.unwrap_or_default());
        let is_first = shapes[..at].iter().all(|other| other.mix != shape.mix);
        Curve { name, colour: colour(shape.mix), dashes: if is_first { "" } else { "7 3" }, points }
    };
    let curves = shapes.iter().enumerate().map(curve).collect();
    Panel { title: "Median time of a pass, milliseconds", x: "pods and nodes before the pass", curves }
}

fn waits(rows: &[(Case, Measured)]) -> Panel {
    let shapes = growth::shapes(rows);
    let replan = shapes.iter().filter(|shape| shape.mix == Mix::Replan);
    let curves = replan.enumerate().flat_map(|(at, shape)| {
        let curve = |what: &str, dashes, of: fn(&Measured) -> f64| Curve {
            name: format!("{what}, {}", shape.name),
            colour: if at == 0 { colour(Mix::Replan) } else { "#8a4fbf" },
            dashes,
            points: points(shape, |case, measured| (case.size(), of(measured))),
        };
        [curve("p99", "", |measured| measured.p99_ms), curve("p50", "7 3", |measured| measured.median_ms)]
    });
    Panel {
        title: "One new pod in a large cluster, milliseconds",
        x: "pods and nodes",
        curves: curves.collect(),
    }
}

fn draw(panel: &Panel, left: f64) -> String {
    let (width, height) = PANEL;
    let all = || panel.curves.iter().flat_map(|curve| &curve.points);
    let mut text = format!(
        "<g transform=\"translate({left:.1} {TOP:.1})\">\n\
         <text x=\"0\" y=\"-14\" font-weight=\"bold\">{}</text>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"none\" stroke=\"#888\"/>\n",
        panel.title
    );
    if all().next().is_none() {
        return text + &format!("<text x=\"12\" y=\"{:.1}\">not measured</text>\n</g>\n", height / 2.0);
    }
    let x = Axis::over(all().map(|point| point.0), width);
    let y = Axis::over(all().map(|point| point.1), height);
    for tick in y.ticks() {
        let at = height - y.at(tick);
        text += &format!(
            "<line x1=\"0\" x2=\"{width}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            at + 4.0,
            short(tick)
        );
    }
    for tick in x.ticks() {
        let at = x.at(tick);
        text += &format!(
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{height}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
            height + 18.0,
            short(tick)
        );
    }
    text += &format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
        width / 2.0,
        height + 36.0,
        panel.x
    );
    for Curve { colour, dashes, points, .. } in &panel.curves {
        let places: Vec<_> = points.iter().map(|point| (x.at(point.0), height - y.at(point.1))).collect();
        text += &plot::curve(&places, colour, dashes);
    }
    text + &legend(&panel.curves, height + 58.0) + "</g>\n"
}

/// Below the panel, in two columns when there are many curves.
fn legend(curves: &[Curve], top: f64) -> String {
    let mut text = String::new();
    let in_column = if curves.len() > 3 { curves.len().div_ceil(2) } else { curves.len() };
    for (column, curves) in curves.chunks(in_column.max(1)).enumerate() {
        let left = if column == 0 { 0.0 } else { PANEL.0 / 2.0 + 20.0 };
        let mut y = top;
        for Curve { name, colour, dashes, .. } in curves {
            text += &format!(
                "<line x1=\"{left}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"2\" \
                 stroke-dasharray=\"{dashes}\"/><text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\">{name}</text>\n",
                left + 26.0,
                left + 32.0,
                y + 4.0
            );
            y += LINE;
        }
    }
    text
}

/// A tick's number, with k for thousands and M for millions.
fn short(number: f64) -> String {
    match number {
        _ if number >= 1e6 => format!("{}M", number / 1e6),
        _ if number >= 1e3 => format!("{}k", number / 1e3),
        _ => format!("{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str, median_ms: f64) -> (Case, Measured) {
        let case: Case = text.parse().unwrap();
        (
            case,
            Measured {
                planned: case.pods,
                median_ms,
                p99_ms: 2.0 * median_ms,
                core: 1.0,
                ..Measured::default()
            },
        )
    }

    #[test]
    fn every_mix_has_a_curve_and_nothing_leaves_the_axes() {
        let rows: Vec<_> = super::super::case::all(false)
            .into_iter()
            .map(|case| row(&case.to_string(), 0.01 + 0.001 * f64::from(u32::try_from(case.pods).unwrap())))
            .collect();
        let text = svg(&rows);
        // Three, the five mixes, one of them in two shapes, and both of these as p99 and p50.
        assert_eq!(text.matches("<polyline").count(), 3 + 6 + 4);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        let heights = text.split("cy=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        assert!(heights.map(|y| y.parse::<f64>().unwrap()).all(|y| (0.0..=PANEL.1).contains(&y)));
    }

    #[test]
    fn a_panel_without_rows_says_so() {
        let text = svg(&[row("karpenter/0/1000", 1.0)]);
        assert_eq!(text.matches("not measured").count(), 1, "no new pods in large clusters");
    }

    #[test]
    fn ticks_are_short() {
        for (number, text) in [(0.5, "0.5"), (500.0, "500"), (2000.0, "2k"), (1e6, "1M")] {
            assert_eq!(short(number), text);
        }
    }
}

//! How the work of a pass grows with the size of the cluster: as a power of it, between neighbouring sizes and over all.
//!
//! Work is what the planner counts itself (`planner::steps`), and only that is judged. Times stand beside it for people: they
//! also grow because a larger cluster fits less well into the caches of the processor, on some machines more than on others.

use std::fmt::Write as _;

use super::case::{Case, Mix};
use super::measure::Measured;

/// How far the exponent over all sizes of a mix may be above that of n log n: the parts of a pass grow differently, and what
/// does not grow weighs most in the smallest cluster. Work that is quadratic in anything is above it by half at least.
pub(crate) const MARGIN: f64 = 0.25;

/// The growth of the rows of one mix and one shape.
#[derive(Debug)]
pub(crate) struct Growth {
    /// The mix, with the shape if it has several.
    pub(crate) name: String,
    /// Sizes, and the exponent of the steps from each to the next.
    steps: Vec<(usize, usize, f64)>,
    /// The exponent of the steps over all sizes: the slope of the line through the points, both axes logarithmic.
    exponent: f64,
    /// What it would be if the work were n log n.
    bound: f64,
    /// The exponent of the time, which is not judged.
    pub(crate) time: f64,
}

/// Rows of one mix that have as many pods on a node. A node costs more than a pod, so between rows of different shapes
/// the cost changes without the number of objects, and no exponent describes it.
#[derive(Debug)]
pub(crate) struct Shape<'a> {
    pub(crate) mix: Mix,
    /// The mix, with the pods on a node if it has several shapes.
    pub(crate) name: String,
    pub(crate) rows: Vec<&'a (Case, Measured)>,
}

/// The rows by mix and shape, in their order.
pub(crate) fn shapes(rows: &[(Case, Measured)]) -> Vec<Shape<'_>> {
    let mut shapes: Vec<Vec<&(Case, Measured)>> = Vec::new();
    for row in rows {
        let alike =
            |of: &&mut Vec<&(Case, Measured)>| of[0].0.mix == row.0.mix && of[0].0.has_shape_of(row.0);
        match shapes.iter_mut().find(alike) {
            Some(shape) => shape.push(row),
            None => shapes.push(vec![row]),
        }
    }
    let mixes: Vec<Mix> = shapes.iter().map(|rows| rows[0].0.mix).collect();
    let several = |mix: Mix| mixes.iter().filter(|other| **other == mix).count() > 1;
    shapes
        .into_iter()
        .map(|rows| Shape { mix: rows[0].0.mix, name: name(rows[0].0, several), rows })
        .collect()
}

fn name(Case { mix, nodes, pods }: Case, several: impl Fn(Mix) -> bool) -> String {
    if several(mix) { format!("{} {}:1", mix.name(), pods / nodes.max(1)) } else { mix.name().to_owned() }
}

/// The growth of every shape that was measured in more than one size.
pub(crate) fn of(rows: &[(Case, Measured)]) -> Vec<Growth> {
    let of_shape = |Shape { name, rows, .. }: Shape<'_>| {
        let point = |(case, measured): &&(Case, Measured)| Point {
            size: case.size(),
            steps: measured.steps,
            milliseconds: measured.cost_ms(),
        };
        growth(name, &rows.iter().map(point).collect::<Vec<_>>())
    };
    shapes(rows).into_iter().filter_map(of_shape).collect()
}

/// What a pass over a cluster of some size takes.
#[derive(Clone, Copy, Debug)]
struct Point {
    size: usize,
    steps: usize,
    milliseconds: f64,
}

#[expect(clippy::cast_precision_loss, reason = "sizes and steps are far below 2^52")]
fn growth(name: String, points: &[Point]) -> Option<Growth> {
    let logs_of = |of: fn(&Point) -> f64| -> Vec<(f64, f64)> {
        points.iter().map(|point| ((point.size as f64).ln(), of(point).max(1e-6).ln())).collect()
    };
    let logs = logs_of(|point| point.steps as f64);
    let exponent = slope(&logs)?;
    let time = slope(&logs_of(|point| point.milliseconds))?;
    // ln(n ln n) = ln n + ln ln n.
    let n_log_n: Vec<_> = logs.iter().map(|&(x, _)| (x, x + x.ln())).collect();
    let steps = points.windows(2).zip(logs.windows(2)).map(|(points, logs)| {
        (points[0].size, points[1].size, (logs[1].1 - logs[0].1) / (logs[1].0 - logs[0].0))
    });
    Some(Growth { name, steps: steps.collect(), exponent, bound: slope(&n_log_n)?, time })
}

/// The slope of the line with the least squares of distances; none for fewer than two places.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a handful of points")]
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let over: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let under: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    (under > 0.0).then(|| over / under)
}

impl Growth {
    /// What is wrong with it.
    pub(crate) fn complaint(&self) -> Option<String> {
        let most = self.bound + MARGIN;
        (self.exponent > most).then(|| {
            format!(
                "{}: the work grows as n^{:.2}, n log n is n^{:.2} here and n^{most:.2} the most",
                self.name, self.exponent, self.bound
            )
        })
    }
}

/// As text.
pub(crate) fn text(growth: &[Growth]) -> String {
    let mut text = format!(
        "growth: the exponent of a pass's steps over the number of objects, of rows with as many pods on a node; fails above n log n + {MARGIN}; time: that of the median time (less what it waited for a core)"
    );
    for Growth { name, steps, exponent, bound, time } in growth {
        // Writing into a string does not fail.
        let _ = write!(text, "\n{name:<20} n^{exponent:.2} (n log n: n^{bound:.2}; time: n^{time:.2})");
        for (from, to, exponent) in steps {
            let _ = write!(text, "  {from}→{to}: {exponent:.2}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each cost is the steps of one growth, and the time of another whose steps are as many as the objects.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "numbers of steps, not too large and never negative"
    )]
    fn grown(cost: impl Fn(f64) -> f64) -> [Growth; 2] {
        let sizes = [1000, 2000, 5000, 10_000, 100_000];
        let costs = sizes.map(|size: usize| (size, cost(size as f64)));
        let work = costs.map(|(size, cost)| Point { size, steps: cost.round() as usize, milliseconds: 1.0 });
        let time = costs.map(|(size, cost)| Point { size, steps: size, milliseconds: cost });
        [&work, &time].map(|points| growth("a mix".to_owned(), points).unwrap())
    }

    #[test]
    fn linear_and_n_log_n_work_passes_and_steeper_does_not_whatever_time_it_takes() {
        type Cost = fn(f64) -> f64;
        let cases: [(&str, Cost, bool); 5] = [
            ("constant", |_| 3.0, true),
            ("linear", |n| n, true),
            ("n log n", |n| n * n.ln(), true),
            ("n^1.5", |n| n.powf(1.5), false),
            ("quadratic", |n| n * n, false),
        ];
        for (name, cost, passes) in cases {
            let [work, time] = grown(cost);
            assert_eq!(work.complaint().is_none(), passes, "{name}: {work:?}");
            assert_eq!(time.complaint(), None, "{name}: {time:?}");
        }
    }

    #[test]
    fn the_exponent_is_that_of_the_power() {
        let [work, time] = grown(|n| n.powf(1.3));
        assert!((work.exponent - 1.3).abs() < 1e-3);
        assert!(work.steps.iter().all(|(_, _, step)| (step - 1.3).abs() < 1e-3));
        assert!(work.time.abs() < 1e-9 && (time.time - 1.3).abs() < 1e-9);
    }

    #[test]
    fn one_size_has_no_growth() {
        let point = Point { size: 10, steps: 1, milliseconds: 1.0 };
        assert!(growth("a mix".to_owned(), &[point]).is_none());
        assert!(growth("a mix".to_owned(), &[]).is_none());
    }

    #[test]
    fn a_shape_that_grows_too_fast_is_not_hidden_by_another_one() {
        let row = |text: &str, steps| {
            let case: Case = text.parse().unwrap();
            (case, Measured { steps, ..Measured::default() })
        };
        let rows = [
            row("replan/1000/30000", 100),
            row("replan/3000/20000", 100),
            row("replan/15000/100000", 2500),
            row("replan/5000/150000", 500),
            row("karpenter/0/1000", 10),
        ];
        let growth = of(&rows);
        let complaints: Vec<_> = growth.iter().map(|growth| growth.complaint().is_some()).collect();
        assert_eq!(complaints, [false, true], "{growth:?}");
        assert_eq!(growth[1].name, "replan 6:1");
        assert_eq!(shapes(&rows)[2].name, "karpenter");
    }
}

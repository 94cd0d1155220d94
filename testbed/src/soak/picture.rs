//! A rollout as a self-contained SVG: nodes over time, and the bounds that it kept. It has its own background, dark where the
//! reader's is.

use super::check::PoolSize;

/// Size of the plotting area, and the room around it, in pixels.
const PLOT: (f64, f64) = (820.0, 440.0);
const LEFT: f64 = 64.0;
const TOP: f64 = 56.0;
const RIGHT: f64 = 24.0;
const BELOW: f64 = 112.0;
/// Of the legend: lines, and entries in each.
const LINE: f64 = 22.0;
const IN_A_LINE: usize = 3;

const STYLE: &str = "
text { font: 13px sans-serif; fill: #222 } .title { font-weight: bold; font-size: 15px }
.paper { fill: #fff } .grid { stroke: #ddd } .axis { stroke: #888; fill: none } .band { fill: #3a5ba0; fill-opacity: .12 }
.line { fill: none; stroke-width: 2 } .all { stroke: #3a5ba0 } .usable { stroke: #0b6e4f } .new { stroke: #d9730d }
.old { stroke: #8a4fbf; stroke-dasharray: 7 3 } .wanted { stroke: #222; stroke-width: 1; stroke-dasharray: 2 3 }
.death { stroke: #c1121f }
@media (prefers-color-scheme: dark) {
text { fill: #e6e6e6 } .paper { fill: #16181d } .grid { stroke: #30343c } .band { fill: #7fa7ff; fill-opacity: .16 }
.all { stroke: #7fa7ff } .usable { stroke: #4cc38a } .new { stroke: #ffa657 } .old { stroke: #c49bff } .wanted { stroke: #e6e6e6 }
.death { stroke: #ff7b72 }
}
";

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
    let (width, height) = (LEFT + PLOT.0 + RIGHT, TOP + PLOT.1 + BELOW);
    let rolling = sizes.iter().find(|size| size.rolls);
    let title = rolling.map_or_else(
        || "No rollout".to_owned(),
        |size| {
            let (wanted, surge, missing) = (size.wanted, size.most - size.wanted, size.wanted - size.least);
            format!("A rollout of {wanted} nodes: at most {surge} more, at most {missing} missing")
        },
    );
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" aria-label=\"A rollout: nodes over time\">\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"30\">{title}</text>\n\
         <g transform=\"translate({LEFT} {TOP})\">\n"
    );
    if let (Some(first), Some(last)) = (sizes.first(), sizes.last()) {
        let seconds = (last.at - first.at).total(jiff::Unit::Second).unwrap_or(1.0).max(1.0);
        let most = sizes.iter().map(|size| size.all.max(size.most)).max().unwrap_or(1);
        let scale = Scale { sizes, seconds, most: number(most) * 1.04 };
        text += &scale.axes();
        text += &scale.band();
        text += &scale.deaths();
        for series in &SERIES {
            text += &format!("<path class=\"line {}\" d=\"{}\"/>\n", series.class, scale.steps(series.of));
        }
    }
    text + &legend() + "</g>\n</svg>\n"
}

/// From times and numbers to pixels.
struct Scale<'a> {
    sizes: &'a [PoolSize],
    seconds: f64,
    most: f64,
}

impl Scale<'_> {
    fn x(&self, size: &PoolSize) -> i64 {
        let since = self
            .sizes
            .first()
            .map_or(0.0, |first| (size.at - first.at).total(jiff::Unit::Second).unwrap_or(0.0));
        pixels(since / self.seconds * PLOT.0)
    }

    fn y(&self, count: f64) -> i64 {
        pixels(PLOT.1 - count / self.most * PLOT.1)
    }

    fn axes(&self) -> String {
        let (width, height) = PLOT;
        let mut text = String::new();
        for tick in ticks(self.most) {
            let y = self.y(tick);
            text += &format!(
                "<line class=\"grid\" x2=\"{width}\" y1=\"{y}\" y2=\"{y}\"/>\
                 <text x=\"-8\" y=\"{}\" text-anchor=\"end\">{tick}</text>\n",
                y + 4
            );
        }
        for tick in ticks(self.seconds) {
            let x = pixels(tick / self.seconds * width);
            text += &format!(
                "<line class=\"grid\" x1=\"{x}\" x2=\"{x}\" y2=\"{height}\"/>\
                 <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>\n",
                height + 18.0
            );
        }
        text + &format!(
            "<rect class=\"axis\" width=\"{width}\" height=\"{height}\"/>\n\
             <text x=\"-44\" y=\"-10\">nodes</text>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">seconds since the template was changed</text>\n",
            width / 2.0,
            height + 38.0
        )
    }

    /// Between the least nodes to use and the most nodes there may be.
    fn band(&self) -> String {
        let mut upper = String::new();
        let mut lower = String::new();
        for (at, size) in self.sizes.iter().enumerate() {
            let (from, to) =
                (self.x(size), self.sizes.get(at + 1).map_or(pixels(PLOT.0), |next| self.x(next)));
            if to == from {
                continue;
            }
            let (most, least) = (self.y(number(size.most)), self.y(number(size.least)));
            upper += &format!("{}{from} {most}H{to}", if upper.is_empty() { "M" } else { "L" });
            lower = format!("L{to} {least}H{from}{lower}");
        }
        format!("<path class=\"band\" d=\"{upper}{lower}Z\"/>\n")
    }

    /// Where kubelets stop.
    fn deaths(&self) -> String {
        let deaths = self.sizes.iter().find(|size| size.dead > 0);
        deaths.map_or_else(String::new, |first| {
            let (x, height) = (self.x(first), PLOT.1);
            format!(
                "<line class=\"death\" x1=\"{x}\" x2=\"{x}\" y2=\"{height}\"/>\
                 <text x=\"{}\" y=\"{}\">kubelets stop</text>\n",
                x + 6,
                height - 12.0
            )
        })
    }

    /// A line of steps. Of all values in one column of pixels, the least, the greatest and the last are drawn.
    fn steps(&self, of: fn(&PoolSize) -> usize) -> String {
        let mut text = String::new();
        let mut drawn = None;
        let columns = self.sizes.chunk_by(|one, other| self.x(one) == self.x(other));
        for column in columns {
            let heights = || column.iter().map(|size| self.y(number(of(size))));
            let (Some(first), Some(top), Some(bottom), Some(end)) =
                (column.first(), heights().min(), heights().max(), heights().next_back())
            else {
                continue;
            };
            let x = self.x(first);
            for y in [top, bottom, end] {
                match drawn {
                    None => text += &format!("M{x} {y}"),
                    Some(before) if before == y => continue,
                    Some(_) => text += &format!("H{x}V{y}"),
                }
                drawn = Some(y);
            }
        }
        text + &format!("H{}", PLOT.0)
    }
}

fn legend() -> String {
    let mut text = String::new();
    let entries = SERIES.iter().map(|series| (series.class, series.name));
    for (at, (class, name)) in entries.chain([("band", "between the bounds")]).enumerate() {
        let x = number(at % IN_A_LINE) * PLOT.0 / number(IN_A_LINE);
        let y = PLOT.1 + 66.0 + number(at / IN_A_LINE) * LINE;
        let sample = if class == "band" {
            format!("<rect class=\"band\" x=\"{x:.0}\" y=\"{:.0}\" width=\"28\" height=\"14\"/>", y - 7.0)
        } else {
            format!("<path class=\"line {class}\" d=\"M{x:.0} {y:.0}h28\"/>")
        };
        text += &format!("{sample}<text x=\"{:.0}\" y=\"{:.0}\">{name}</text>\n", x + 36.0, y + 4.0);
    }
    text
}

/// Four to ten round numbers from zero on.
fn ticks(most: f64) -> impl Iterator<Item = f64> {
    let power = 10_f64.powf((most / 4.0).log10().floor()).max(1.0);
    let step = [5.0, 2.0, 1.0].map(|digit| digit * power).into_iter().find(|step| most / step >= 4.0);
    let step = step.unwrap_or(power);
    std::iter::successors(Some(0.0), move |tick| Some(tick + step)).take_while(move |tick| *tick <= most)
}

#[expect(clippy::cast_precision_loss, reason = "numbers of nodes are far below 2^52")]
fn number(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, reason = "a place in a picture")]
fn pixels(place: f64) -> i64 {
    place.round() as i64
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn size(second: i64, all: usize, current: usize) -> PoolSize {
        let at = Timestamp::from_second(1_700_000_000 + second).unwrap();
        let rolls = current < all;
        PoolSize { at, all, usable: all, dead: 0, current, rolls, wanted: 10, most: 11, least: 9 }
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
    fn nothing_is_hidden_between_two_pixels() {
        let brief = [size(0, 10, 0), size(5000, 40, 0), size(5001, 10, 0), size(10_000, 10, 0)];
        let scale = Scale { sizes: &brief, seconds: 10_000.0, most: 40.0 };
        assert_eq!(scale.steps(|size| size.all), "M0 330H410V0H410V330H820");
    }

    #[test]
    fn ticks_are_round_and_not_too_many() {
        for (most, expected) in [(9.0, 2.0), (70.0, 10.0), (572.0, 100.0), (130.0, 20.0)] {
            let all: Vec<f64> = ticks(most).collect();
            assert!((all[1] - expected).abs() < 1e-9 && all.len() < 12, "{most}: {all:?}");
        }
    }

    #[test]
    fn no_recording_draws_no_line() {
        assert!(!svg(&[]).contains("class=\"band\" d="));
    }
}

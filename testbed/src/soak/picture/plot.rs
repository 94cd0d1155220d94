//! What both pictures have: the frame, the axes, lines of steps, and the legend.

use jiff::Timestamp;

use crate::soak::check::PoolSize;

/// Size of the plotting area, and the room around it, in pixels.
pub(super) const PLOT: (f64, f64) = (820.0, 440.0);
const LEFT: f64 = 64.0;
const TOP: f64 = 56.0;
const RIGHT: f64 = 24.0;
/// Below the plotting area, without the legend.
const BELOW: f64 = 68.0;
/// Of the legend: lines, and entries in each.
const LINE: f64 = 22.0;
const IN_A_LINE: usize = 3;

const STYLE: &str = "
text { font: 13px sans-serif; fill: #222 } .title { font-weight: bold; font-size: 15px }
.paper { fill: #fff } .grid { stroke: #ddd } .axis { stroke: #888; fill: none } .band { fill: #3a5ba0; fill-opacity: .12 }
.line { fill: none; stroke-width: 2 } .all { stroke: #3a5ba0 } .usable { stroke: #0b6e4f } .new { stroke: #d9730d }
.old { stroke: #8a4fbf; stroke-dasharray: 7 3 } .wanted { stroke: #222; stroke-width: 1; stroke-dasharray: 2 3 }
.death { stroke: #c1121f } .phase { stroke: #222; stroke-dasharray: 6 4 }
.used { fill: #7fc4a6 } .coming { fill: #8fb0ee } .going { fill: #f2b36b } .dead { fill: #c1121f }
@media (prefers-color-scheme: dark) {
text { fill: #e6e6e6 } .paper { fill: #16181d } .grid { stroke: #30343c } .band { fill: #7fa7ff; fill-opacity: .16 }
.all { stroke: #7fa7ff } .usable { stroke: #4cc38a } .new { stroke: #ffa657 } .old { stroke: #c49bff } .wanted { stroke: #e6e6e6 }
.death { stroke: #ff7b72 } .phase { stroke: #e6e6e6 }
.used { fill: #1f6f52 } .coming { fill: #35569c } .going { fill: #a0620f } .dead { fill: #ff7b72 }
}
";

/// A picture with this title, the `inside` of the plotting area and what stands below it.
pub(super) fn framed(title: &str, label: &str, inside: &str, legend: &[Entry]) -> String {
    let lines = number(legend.len().div_ceil(IN_A_LINE));
    let (width, height) = (LEFT + PLOT.0 + RIGHT, TOP + PLOT.1 + BELOW + lines * LINE);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" aria-label=\"{label}\">\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"30\">{title}</text>\n\
         <g transform=\"translate({LEFT} {TOP})\">\n{inside}{}</g>\n</svg>\n",
        entries(legend)
    )
}

/// From times and numbers to pixels.
pub(super) struct Scale<'a> {
    pub(super) sizes: &'a [PoolSize],
    pub(super) seconds: f64,
    pub(super) most: f64,
}

impl<'a> Scale<'a> {
    /// The first size is at time zero, and the last one at the other side; none without a size.
    pub(super) fn of(sizes: &'a [PoolSize]) -> Option<Self> {
        let (first, last) = (sizes.first()?, sizes.last()?);
        let seconds = (last.at - first.at).total(jiff::Unit::Second).unwrap_or(1.0).max(1.0);
        let most = sizes.iter().map(|size| size.all.max(size.most)).max().unwrap_or(1).max(1);
        Some(Self { sizes, seconds, most: number(most) * 1.04 })
    }

    pub(super) fn x(&self, at: Timestamp) -> i64 {
        let since =
            self.sizes.first().map_or(0.0, |first| (at - first.at).total(jiff::Unit::Second).unwrap_or(0.0));
        pixels(since / self.seconds * PLOT.0)
    }

    pub(super) fn y(&self, count: f64) -> i64 {
        pixels(PLOT.1 - count / self.most * PLOT.1)
    }

    /// The axes, with what stands below the one of time.
    pub(super) fn axes(&self, time: &str) -> String {
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
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{time}</text>\n",
            width / 2.0,
            height + 38.0
        )
    }

    /// A line of steps. Of all values in one column of pixels, the least, the greatest and the last are drawn.
    pub(super) fn steps(&self, of: fn(&PoolSize) -> usize) -> String {
        let mut text = String::new();
        let mut drawn = None;
        let columns = self.sizes.chunk_by(|one, other| self.x(one.at) == self.x(other.at));
        for column in columns {
            let heights = || column.iter().map(|size| self.y(number(of(size))));
            let (Some(first), Some(top), Some(bottom), Some(end)) =
                (column.first(), heights().min(), heights().max(), heights().next_back())
            else {
                continue;
            };
            let x = self.x(first.at);
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

/// How an entry of the legend looks.
#[derive(Clone, Copy)]
pub(super) enum Sample {
    Line(&'static str),
    Area(&'static str),
    Number(usize),
}

/// An entry of the legend: how it looks, and what it is.
pub(super) type Entry = (Sample, &'static str);

fn entries(all: &[Entry]) -> String {
    let mut text = String::new();
    for (at, (sample, name)) in all.iter().enumerate() {
        let x = number(at % IN_A_LINE) * PLOT.0 / number(IN_A_LINE);
        let y = PLOT.1 + 66.0 + number(at / IN_A_LINE) * LINE;
        let sample = match sample {
            Sample::Line(class) => {
                format!("<path class=\"line {class}\" d=\"M{x:.0} {y:.0}h28\"/>")
            }
            Sample::Area(class) => {
                format!(
                    "<rect class=\"{class}\" x=\"{x:.0}\" y=\"{:.0}\" width=\"28\" height=\"14\"/>",
                    y - 7.0
                )
            }
            Sample::Number(number) => {
                format!("<text x=\"{:.0}\" y=\"{:.0}\">{number}</text>", x + 10.0, y + 4.0)
            }
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
pub(super) fn number(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, reason = "a place in a picture")]
pub(super) fn pixels(place: f64) -> i64 {
    place.round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(second: i64, all: usize) -> PoolSize {
        let at = Timestamp::from_second(1_700_000_000 + second).unwrap();
        PoolSize { at, all, wanted: 10, most: 11, least: 9, ..PoolSize::EMPTY }
    }

    #[test]
    fn nothing_is_hidden_between_two_pixels() {
        let brief = [size(0, 10), size(5000, 40), size(5001, 10), size(10_000, 10)];
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
}

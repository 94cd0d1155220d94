//! The four parameters of a backoff, each varied by itself: charts of a writer's total wait before it gives up. Pure,
//! except for the output.

use std::time::Duration;

use anyhow::Result;
use conflict_retry::backoff::Backoff;
use conflict_retry::policy::RetryPolicy;

use super::schedule::{millis, pauses};
use crate::context::ScenarioContext;

/// A backoff in the form in which a user writes it.
#[derive(Clone, Copy)]
pub(super) struct Knobs {
    /// Number of attempts.
    pub(super) steps: i32,
    /// The first pause.
    pub(super) duration: Duration,
    /// The factor from one pause to the next.
    pub(super) factor: f64,
    /// The maximum random extension of a pause, as a fraction.
    pub(super) jitter: f64,
}

/// 100 ms, factor 1.5, jitter 0.1, ten steps.
pub(super) const CUSTOM: Knobs =
    Knobs { steps: 10, duration: Duration::from_millis(100), factor: 1.5, jitter: 0.1 };

/// The largest random number in [0, 1).
const ALMOST_ONE: f64 = 1.0 - f64::EPSILON;

/// The minimum and the maximum of a writer's total wait.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub(super) least: Duration,
    pub(super) most: Duration,
}

impl Knobs {
    /// The policy of these parameters.
    pub(super) fn policy(self) -> Result<RetryPolicy> {
        let Self { steps, duration, factor, jitter } = self;
        Ok(RetryPolicy::from_backoff(Backoff::new(steps, duration, factor, jitter, Duration::ZERO)?)?)
    }

    /// The same backoff, `times` as fast.
    pub(super) fn faster(self, times: u32) -> Self {
        Self { duration: self.duration / times, ..self }
    }

    /// The total wait when every attempt conflicts.
    pub(super) fn waiting(self) -> Result<Waiting> {
        let policy = self.policy()?;
        let [least, most] = [0.0, ALMOST_ONE].map(|random| pauses(&policy, random).iter().sum());
        Ok(Waiting { least, most })
    }
}

/// A value of a parameter, and the resulting wait.
type Line = (String, Waiting);

/// Prints four charts, and checks their claims.
pub(super) fn charts(ctx: &ScenarioContext) -> Result<()> {
    ctx.say("Each parameter varied by itself, the others as above: the shortest total time that a writer waits before it gives up. Three charts on one logarithmic scale: ten more blocks are ten times as long.");
    steps(ctx)?;
    durations(ctx)?;
    factors(ctx)?;
    jitters(ctx)
}

fn lines<T: Copy>(
    values: &[T],
    label: impl Fn(T) -> String,
    knobs: impl Fn(T) -> Knobs,
) -> Result<Vec<Line>> {
    values.iter().map(|value| Ok((label(*value), knobs(*value).waiting()?))).collect()
}

fn steps(ctx: &ScenarioContext) -> Result<()> {
    let all =
        lines(&[2, 5, 10, 15, 20], |steps| format!("Steps {steps}"), |steps| Knobs { steps, ..CUSTOM })?;
    ctx.quote(&logarithmic(&all));
    ctx.check(
        "Steps: twice the steps wait more than fifty times as long, because the pauses grow",
        all[4].1.least > all[2].1.least * 50,
    );
    Ok(())
}

fn durations(ctx: &ScenarioContext) -> Result<()> {
    let of = |millis| Knobs { duration: Duration::from_millis(millis), ..CUSTOM };
    let all = lines(&[10, 50, 100, 200, 400], |millis| format!("Duration {millis} ms"), of)?;
    ctx.quote(&logarithmic(&all));
    ctx.check(
        "Duration scales everything: a tenth of it is a tenth of the waiting",
        close(all[0].1.least * 10, all[2].1.least),
    );
    Ok(())
}

fn factors(ctx: &ScenarioContext) -> Result<()> {
    let of = |factor| Knobs { factor, ..CUSTOM };
    let all = lines(&[1.0, 1.25, 1.5, 2.0, 3.0], |factor| format!("Factor {factor}"), of)?;
    ctx.quote(&logarithmic(&all));
    ctx.check_eq(
        "Factor: without growth the waiting is nine times the first pause",
        &all[0].1.least,
        &(CUSTOM.duration * 9),
    );
    ctx.check("and at 3 more than a thousand times as long", all[4].1.least > all[0].1.least * 1000);
    Ok(())
}

fn jitters(ctx: &ScenarioContext) -> Result<()> {
    let of = |jitter| Knobs { jitter, ..CUSTOM };
    let all = lines(&[0.0, 0.1, 0.5, 1.0], |jitter| format!("Jitter {jitter}"), of)?;
    ctx.say(
        "Jitter on a linear scale: the solid bar is the shortest wait, the light one the possible jitter.",
    );
    ctx.quote(&ranges(&all, 40));
    ctx.check("Jitter only lengthens: the least is the same", least_is_the_same(&all));
    ctx.check(
        "a jitter of 1 at most doubles the waiting, and 0 leaves nothing to chance",
        close(all[3].1.most, all[3].1.least * 2) && all[0].1.most == all[0].1.least,
    );
    Ok(())
}

fn least_is_the_same(all: &[Line]) -> bool {
    all.windows(2).all(|pair| pair[0].1.least == pair[1].1.least)
}

/// Whether both are equal except for the nanoseconds that are truncated in each pause.
fn close(a: Duration, b: Duration) -> bool {
    a.abs_diff(b) < Duration::from_micros(1)
}

fn duration_text(time: Duration) -> String {
    if time < Duration::from_secs(1) { millis(time) } else { format!("{:.1} s", time.as_secs_f64()) }
}

/// One block for 10 ms, ten more for each ten times as long.
fn logarithmic(lines: &[Line]) -> String {
    let blocks = |time: Duration| (time.as_secs_f64() / 0.01).max(1.0).log10().mul_add(10.0, 1.0);
    let bars = lines.iter().map(|(text, waiting)| {
        let bar = "█".repeat(whole(blocks(waiting.least)));
        format!("{text:<15}  {bar:<52}  {}\n", duration_text(waiting.least))
    });
    bars.collect()
}

/// From the least to the most; the longest line has `width` blocks.
fn ranges(lines: &[Line], width: u32) -> String {
    let longest = lines.iter().map(|(_, waiting)| waiting.most).max().unwrap_or_default();
    let blocks = |time: Duration| whole(time.div_duration_f64(longest) * f64::from(width));
    let bars = lines.iter().map(|(text, Waiting { least, most })| {
        let solid = blocks(*least);
        let light = blocks(*most).saturating_sub(solid);
        let bar = format!("{}{}", "█".repeat(solid), "░".repeat(light));
        format!(
            "{text:<15}  {bar:<width$}  {} to {}\n",
            duration_text(*least),
            duration_text(*most),
            width = width as usize
        )
    });
    bars.collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few dozen at most")]
fn whole(blocks: f64) -> usize {
    blocks.round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(least: u64, most: u64) -> Line {
        let [least, most] = [least, most].map(Duration::from_millis);
        ("x".to_owned(), Waiting { least, most })
    }

    #[test]
    fn ten_times_as_long_is_ten_blocks_more() {
        let length = |millis| logarithmic(&[line(millis, millis)]).matches('█').count();
        assert_eq!([length(10), length(100), length(1000)], [1, 11, 21]);
    }

    #[test]
    fn chance_is_the_light_part_of_a_bar() {
        let bars = ranges(&[line(10, 20)], 4);
        assert!(bars.contains("██░░  10 ms to 20 ms"), "{bars}");
    }
}

//! The pauses of a backoff, as numbers and bars. Pure.

use std::time::Duration;

use conflict_retry::Backoff;
use conflict_retry::policy::{Cause, Next, RetryPolicy};

/// The pauses of `policy` when every attempt conflicts and every random number is `random`.
pub(super) fn pauses(policy: &RetryPolicy, random: f64) -> Vec<Duration> {
    let mut attempts = policy.attempts();
    let mut pauses = Vec::new();
    while let Next::RetryAfter(pause) = attempts.next(pauses.iter().sum(), Cause::Conflict, || random) {
        pauses.push(pause);
    }
    pauses
}

/// The pauses of `backoff` at their shortest.
pub(super) fn shortest(backoff: Backoff) -> Vec<Duration> {
    RetryPolicy::from_backoff(backoff).map(|policy| pauses(&policy, 0.0)).unwrap_or_default()
}

/// A time in milliseconds, with at most one decimal.
pub(super) fn millis(time: Duration) -> String {
    let millis = (time.as_secs_f64() * 10_000.0).round() / 10.0;
    format!("{millis} ms")
}

/// Times in milliseconds, one after the other.
pub(super) fn listed(times: &[Duration]) -> String {
    let numbers: Vec<String> =
        times.iter().map(|time| millis(*time).trim_end_matches(" ms").to_owned()).collect();
    format!("{} ms", numbers.join(", "))
}

/// Lines with a label, a bar and a value; the longest bar has `width` blocks.
pub(super) fn bars(lines: &[(String, Duration)], width: u32) -> String {
    let longest = lines.iter().map(|(_, time)| *time).max().unwrap_or_default().max(Duration::from_nanos(1));
    let label = lines.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    lines
        .iter()
        .map(|(text, time)| {
            let blocks = (time.as_nanos() * u128::from(width) + longest.as_nanos() / 2) / longest.as_nanos();
            let bar = "█".repeat(usize::try_from(blocks).unwrap_or(0));
            format!("{text:<label$}  {bar:<width$}  {}\n", millis(*time), width = width as usize)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_is_as_wide_as_asked_and_others_in_proportion() {
        let lines = [("a".to_owned(), Duration::from_millis(1)), ("bb".to_owned(), Duration::from_millis(4))];
        assert_eq!(bars(&lines, 4), "a   █     1 ms\nbb  ████  4 ms\n");
        assert_eq!(bars(&[("a".to_owned(), Duration::ZERO)], 2), "a      0 ms\n");
    }

    #[test]
    fn times_are_told_in_milliseconds() {
        assert_eq!(millis(Duration::from_micros(337_500)), "337.5 ms");
        assert_eq!(listed(&[Duration::from_millis(10), Duration::from_secs(1)]), "10, 1000 ms");
    }
}

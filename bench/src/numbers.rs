//! Numbers for tables: ranks, and as many digits as a measurement is good for.

/// The value that this share of `sorted` does not exceed (nearest rank); of fewer than a hundred values the 99th
/// percentile is the greatest. 0 without values.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank lies between 0 and the number of values"
    )]
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// To one of `parts` parts of one.
pub(crate) fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

/// With a comma between thousands.
pub(crate) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Without a fraction.
pub(crate) fn whole(value: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts and sizes, never negative"
    )]
    let number = value.round() as usize;
    thousands(number)
}

/// Three digits are what a time is good for.
pub(crate) fn figure(value: f64) -> String {
    match value {
        _ if value >= 100.0 => whole(value),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_as_many_digits_as_they_are_good_for() {
        for (value, text) in [(0.123_4, "0.12"), (12.34, "12.3"), (1234.4, "1,234")] {
            assert_eq!(figure(value), text);
        }
        assert_eq!(thousands(100), "100");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert!((rounded(1.2344, 1000.0) - 1.234).abs() < 1e-9);
    }

    #[test]
    fn the_p99_of_a_few_values_is_the_greatest_and_of_two_hundred_the_third_greatest() {
        let times = |count: u32| (1..=count).map(f64::from).collect::<Vec<_>>();
        for (count, p99) in [(1, 1.0), (3, 3.0), (99, 99.0), (100, 99.0), (200, 198.0)] {
            assert!((percentile(&times(count), 0.99) - p99).abs() < 1e-9, "{count}");
        }
        assert!((percentile(&times(4), 0.5) - 2.0).abs() < 1e-9);
        assert!(percentile(&[], 0.5).abs() < 1e-9);
    }
}

//! Durations in Go's format, `1h30m` or `1.5s`, as in annotations of Go programs. See
//! <https://pkg.go.dev/time#ParseDuration>.

use k8s_openapi::jiff::SignedDuration;

/// The units in nanoseconds. Both characters that look like `µ` are accepted.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
];

/// Parses a duration; `None` if it is invalid, or more than Go can represent.
pub(super) fn parse(text: &str) -> Option<SignedDuration> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if unsigned == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut rest = Some(unsigned).filter(|text| !text.is_empty())?;
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let (part, after) = part(rest)?;
        nanos = nanos.checked_add(part)?;
        rest = after;
    }
    let nanos = i64::try_from(if negative { -nanos } else { nanos }).ok()?;
    Some(SignedDuration::from_nanos(nanos))
}

/// The nanoseconds of the first number with its unit, and the rest of the text.
fn part(text: &str) -> Option<(i128, &str)> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let (_, pod_group) = UNITS.into_iter().find(|(pod_group, _)| *pod_group == name)?;
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(pod_group)?;
    let mut place = pod_group;
    for digit in fraction.bytes() {
        // Digits below a nanosecond are cut off.
        place /= 10;
        nanos = nanos.checked_add(i128::from(digit - b'0') * place)?;
    }
    Some((nanos, rest))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_go() {
        for (text, millis) in [
            ("30m", Some(1_800_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5h", Some(5_400_000)),
            (".5s", Some(500)),
            ("1.s", Some(1000)),
            ("1h0.25s", Some(3_600_250)),
            ("100ms", Some(100)),
            ("1000us", Some(1)),
            ("1000\u{b5}s", Some(1)),
            ("1000000ns", Some(1)),
            ("-5m", Some(-300_000)),
            ("+5m", Some(300_000)),
            ("0", Some(0)),
            ("", None),
            ("-", None),
            ("5", None),
            ("m", None),
            (".s", None),
            ("1 h", None),
            ("1d", None),
            ("1h ", None),
            ("true", None),
            ("1h30", None),
            ("9999999h", None),
        ] {
            assert_eq!(parse(text).map(|duration| duration.as_millis()), millis, "{text}");
        }
    }
}

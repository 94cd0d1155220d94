//! Kubernetes quantities, read and written exactly: a whole number of nano-units, never a float.
//!
//! Both operators read capacities with this, so that they compute the same node. It is independent of pods and nodes;
//! rounding to the units that the scheduler counts in is [`Exact::milli`] and [`Exact::units`].

use thiserror::Error;

/// An amount in nano-units, between ±(2^63-1) units, as `resource.Quantity` bounds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exact(i128);

/// A text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{text}\" is not a quantity (examples: 500m, 2, 1.5, 512Mi, 1e3)")]
pub struct InvalidQuantity {
    /// What was found.
    pub text: String,
}

const NANO: i128 = 1_000_000_000;
/// `resource.Quantity` caps at 2^63-1 units; a larger amount is that much.
const MAX: i128 = 9_223_372_036_854_775_807 * NANO;
/// Digits after the nano-unit that are kept for rounding; what is beyond only decides that there is a rest.
const KEPT_PLACES: i64 = 20;
/// Decimal digits that always fit an `i128`.
const SAFE_DIGITS: usize = 38;

impl Exact {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Reads a quantity as `resource.ParseQuantity` does: decimal and binary suffixes, exponents, rounded up (away from
    /// zero) to a whole nano-unit, capped at 2^63-1 units.
    ///
    /// # Errors
    ///
    /// When the text is no quantity.
    pub fn parse(text: &str) -> Result<Self, InvalidQuantity> {
        parse(text).map(Self).ok_or_else(|| InvalidQuantity { text: text.to_owned() })
    }

    /// The amount in thousandths, rounded up; what the scheduler counts cpu in.
    pub fn milli(self) -> i64 {
        round_up(self.0, 1_000_000)
    }

    /// The amount in whole units, rounded up; what the scheduler counts everything but cpu in.
    pub fn units(self) -> i64 {
        round_up(self.0, NANO)
    }

    /// Whether the amount is below zero, which no request or capacity may be.
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// The amount as a quantity: the greatest suffix that leaves an integer, from the family (`Ki`, `Mi`, … or `k`,
    /// `M`, …) that `like` is written in.
    pub fn written_like(self, like: &str) -> String {
        let is_binary = like.ends_with('i') && self.0 % NANO == 0;
        render(self.0, if is_binary { BINARY } else { DECIMAL })
    }

    /// The sum, within the bounds of a quantity.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self((self.0 + other.0).clamp(-MAX, MAX))
    }

    /// The difference, within the bounds of a quantity.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self((self.0 - other.0).clamp(-MAX, MAX))
    }
}

fn round_up(nano: i128, per: i128) -> i64 {
    let rounded = nano.div_euclid(per) + i128::from(nano.rem_euclid(per) != 0);
    i64::try_from(rounded).unwrap_or(if nano < 0 { i64::MIN } else { i64::MAX })
}

/// Suffixes with their size in nano-units, the greatest first.
const BINARY: &[(&str, i128)] = &[
    ("Ei", NANO << 60),
    ("Pi", NANO << 50),
    ("Ti", NANO << 40),
    ("Gi", NANO << 30),
    ("Mi", NANO << 20),
    ("Ki", NANO << 10),
    ("", NANO),
];
const DECIMAL: &[(&str, i128)] = &[
    ("E", NANO * 1_000_000_000_000_000_000),
    ("P", NANO * 1_000_000_000_000_000),
    ("T", NANO * 1_000_000_000_000),
    ("G", NANO * 1_000_000_000),
    ("M", NANO * 1_000_000),
    ("k", NANO * 1_000),
    ("", NANO),
    ("m", 1_000_000),
    ("u", 1_000),
    ("n", 1),
];

fn render(nano: i128, suffixes: &[(&str, i128)]) -> String {
    let exact = suffixes.iter().find(|(_, size)| nano != 0 && nano % size == 0);
    exact.map_or_else(|| "0".to_owned(), |(suffix, size)| format!("{}{suffix}", nano / size))
}

fn parse(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let (ten, two) = exponents(suffix)?;
    let digits = format!("{whole}{fraction}");
    let places = ten.saturating_sub(i64::try_from(fraction.len()).ok()?);
    let magnitude = nano(digits.trim_start_matches('0'), places, two);
    Some(if negative { -magnitude } else { magnitude })
}

/// The suffix as an exponent of ten and one of two.
fn exponents(suffix: &str) -> Option<(i64, u32)> {
    Some(match suffix {
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "" => (0, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => (suffix.strip_prefix(['e', 'E'])?.parse::<i64>().ok()?, 0),
    })
}

/// `digits` × 10^`ten` × 2^`two` in nano-units, rounded up, capped.
fn nano(digits: &str, ten: i64, two: u32) -> i128 {
    let Ok(len) = i64::try_from(digits.len()) else { return MAX };
    if digits.is_empty() {
        return 0;
    }
    // 10^19 is above 2^63-1 already, so the number of digits decides before any arithmetic can overflow.
    if len.saturating_add(ten) > 19 {
        return MAX;
    }
    let mut shift = ten.saturating_add(9);
    let mut kept = digits.len();
    let mut rest = false;
    while kept > 0 && (shift < -KEPT_PLACES || kept > SAFE_DIGITS) {
        kept -= 1;
        shift = shift.saturating_add(1);
        rest |= digits.as_bytes()[kept] != b'0';
    }
    if kept == 0 {
        return i128::from(rest);
    }
    let Ok(number) = digits[..kept].parse::<i128>() else { return MAX };
    let factor = 1_i128 << two;
    let exact = match u32::try_from(shift) {
        Ok(up) => 10_i128
            .checked_pow(up)
            .and_then(|scale| number.checked_mul(scale))
            .and_then(|n| n.checked_mul(factor)),
        Err(_) => {
            u32::try_from(-shift).ok().and_then(|down| divided(number, 10_i128.pow(down), factor, &mut rest))
        }
    };
    exact.and_then(|n| n.checked_add(i128::from(rest))).map_or(MAX, |n| n.min(MAX))
}

/// `number` × `factor` ÷ `by`, rounded down; `rest` says whether something was rounded away. The quotient and the
/// remainder are scaled apart, so that only a result beyond every quantity can overflow.
fn divided(number: i128, by: i128, factor: i128, rest: &mut bool) -> Option<i128> {
    let tail = (number % by).checked_mul(factor)?;
    *rest |= tail % by != 0;
    (number / by).checked_mul(factor)?.checked_add(tail / by)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_every_suffix_and_exponent() {
        for (text, milli) in [
            ("0", 0),
            ("1", 1000),
            ("+1", 1000),
            ("1.", 1000),
            (".5", 500),
            ("1.5", 1500),
            ("100m", 100),
            ("0.1m", 1),
            ("1u", 1),
            ("1n", 1),
            ("1000000n", 1),
            ("1000001n", 2),
            ("2k", 2_000_000),
            ("1e3", 1_000_000),
            ("1E3", 1_000_000),
            ("1e+3", 1_000_000),
            ("15e-1", 1500),
            ("1M", 1_000_000_000),
            ("1Ki", 1_024_000),
            ("1.5Ki", 1_536_000),
            ("0.0009765625Ki", 1000),
            ("-1", -1000),
            ("-1.0001", -1000),
            ("00012", 12_000),
        ] {
            assert_eq!(Exact::parse(text).unwrap().milli(), milli, "{text}");
        }
    }

    #[test]
    fn whole_units_are_rounded_up() {
        for (text, units) in [
            ("1.5", 2),
            ("1m", 1),
            ("512Mi", 536_870_912),
            ("1Gi", 1_073_741_824),
            ("1Ti", 1 << 40),
            ("1Pi", 1 << 50),
            ("7Ei", 7 << 60),
            ("1G", 1_000_000_000),
            ("1T", 1_000_000_000_000),
            ("1P", 1_000_000_000_000_000),
            ("9E", 9_000_000_000_000_000_000),
            ("129e6", 129_000_000),
            ("0.1", 1),
        ] {
            assert_eq!(Exact::parse(text).unwrap().units(), units, "{text}");
        }
    }

    #[test]
    fn amounts_beyond_the_range_are_capped() {
        for text in [
            "10E",
            "8Ei",
            "1e100",
            "9223372036854775808",
            "99999999999999999999999999999999999999999999",
            "1e9223372036854775807",
        ] {
            assert_eq!(Exact::parse(text).unwrap().units(), i64::MAX, "{text}");
        }
    }

    #[test]
    fn the_smallest_rest_still_counts() {
        for text in ["1e-30", "0.00000000000000000000000000000000000000000000001", "1e-9223372036854775807"] {
            assert_eq!(Exact::parse(text).unwrap(), Exact(1), "{text}");
        }
        assert_eq!(Exact::parse("0e-30").unwrap(), Exact::ZERO);
    }

    #[test]
    fn refuses_what_is_no_quantity() {
        for text in [
            "", "-", ".", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i", "-3.01e-",
            "1 Gi", " 1", "1e", "ten", "0x10", "1,5",
        ] {
            let result = Exact::parse(text);
            // "1e" is not in the table of suffixes, and no exponent either.
            assert!(result.is_err(), "{text} gave {result:?}");
        }
    }

    #[test]
    fn differences_are_written_in_the_family_of_the_whole() {
        for (whole, part, rest) in [
            ("4", "80m", "3920m"),
            ("4", "0.5", "3500m"),
            ("16Gi", "1Gi", "15Gi"),
            ("16Gi", "100Mi", "16284Mi"),
            ("16Gi", "1", "17179869183"),
            ("16Gi", "1m", "17179869183999m"),
            ("1.5Gi", "0.5Gi", "1Gi"),
            ("1G", "1M", "999M"),
            ("2e3", "1", "1999"),
            ("110", "0", "110"),
            ("1", "1000m", "0"),
            ("1", "1u", "999999u"),
            ("1E", "1n", "999999999999999999999999999n"),
            ("100k", "0", "100k"),
        ] {
            let rest_of = Exact::parse(whole).unwrap().minus(Exact::parse(part).unwrap());
            assert_eq!(rest_of.written_like(whole), rest, "{whole} - {part}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_as_the_same_amount(nano in 0_i64..i64::MAX, binary: bool) {
            let exact = Exact(i128::from(nano));
            let text = exact.written_like(if binary { "1Gi" } else { "1" });
            prop_assert_eq!(Exact::parse(&text).unwrap(), exact, "{}", text);
        }

        #[test]
        fn decimal_fractions_agree_with_integer_arithmetic(whole in 0_i64..1_000_000, thousandths in 0_i64..1000) {
            let text = format!("{whole}.{thousandths:03}");
            prop_assert_eq!(Exact::parse(&text).unwrap().milli(), whole * 1000 + thousandths);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[-+]?[0-9.]{0,60}([numkMGTPE]i?|[eE][-+]?[0-9]{0,20})?") {
            let _ = Exact::parse(&text);
        }

        #[test]
        fn rounding_up_never_loses(nano in 0_i64..i64::MAX) {
            let exact = Exact(i128::from(nano));
            prop_assert!(i128::from(exact.milli()) * 1_000_000 >= exact.0);
            prop_assert!(i128::from(exact.milli() - 1) * 1_000_000 < exact.0 || exact.0 == 0);
        }
    }
}

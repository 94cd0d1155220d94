//! Exact arithmetic on `resource.Quantity`: allocatable is capacity less reserved, to the last nano unit.
//!
//! Nothing is ever computed in floating point. A quantity with digits below a nano unit is rounded up, as Kubernetes
//! does.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Nano units in one unit: the finest that Kubernetes keeps.
const NANO: i128 = 1_000_000_000;
/// Longest quantity the schema takes; longer ones could overflow.
const MAX_CHARS: usize = 32;

/// How a quantity is written: `Ki`, `Mi`, … or `m`, `k`, `M`, ….
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Binary,
    Decimal,
}

/// Text that is not a quantity, or one too large to compute with.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a quantity that can be computed with")]
pub struct NotAQuantity(pub String);

/// `capacity - reserved` in the notation of `capacity`; `None` when `reserved` is the greater one.
pub fn subtract(capacity: &Quantity, reserved: &Quantity) -> Result<Option<Quantity>, NotAQuantity> {
    let (whole, format) = parse(&capacity.0)?;
    let (part, _) = parse(&reserved.0)?;
    let rest = whole - part;
    Ok((rest >= 0).then(|| Quantity(render(rest, format))))
}

/// Whether `quantity` can be computed with.
pub fn check(quantity: &Quantity) -> Result<(), NotAQuantity> {
    parse(&quantity.0).map(|_| ())
}

fn parse(text: &str) -> Result<(i128, Format), NotAQuantity> {
    let bad = || NotAQuantity(text.to_owned());
    if text.len() > MAX_CHARS {
        return Err(bad());
    }
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(bad());
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().map_err(|_| bad())?;
    let (multiplier, exponent, format) = scale(suffix).ok_or_else(bad)?;
    let fraction_digits = i32::try_from(fraction.len()).map_err(|_| bad())?;
    let shift = exponent + 9 - fraction_digits;
    let scaled = mantissa.checked_mul(multiplier).ok_or_else(bad)?;
    let power = 10_i128.checked_pow(shift.unsigned_abs()).ok_or_else(bad)?;
    let nanos = if shift >= 0 {
        scaled.checked_mul(power).ok_or_else(bad)?
    } else {
        // The mantissa is not negative, so adding the divisor less one rounds up.
        scaled.checked_add(power - 1).ok_or_else(bad)? / power
    };
    Ok((nanos, format))
}

/// The suffix as (factor, power of ten, notation).
fn scale(suffix: &str) -> Option<(i128, i32, Format)> {
    let binary = |power: u32| Some((1024_i128.pow(power), 0, Format::Binary));
    let decimal = |exponent: i32| Some((1, exponent, Format::Decimal));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
            (-20..=20).contains(&exponent).then_some(())?;
            decimal(exponent)
        }
    }
}

/// The shortest exact notation: the greatest suffix that leaves an integer.
fn render(nanos: i128, format: Format) -> String {
    const BINARY: [(&str, u32); 6] = [("Ei", 6), ("Pi", 5), ("Ti", 4), ("Gi", 3), ("Mi", 2), ("Ki", 1)];
    const DECIMAL: [(&str, u32); 10] = [
        ("E", 27),
        ("P", 24),
        ("T", 21),
        ("G", 18),
        ("M", 15),
        ("k", 12),
        ("", 9),
        ("m", 6),
        ("u", 3),
        ("n", 0),
    ];
    if nanos == 0 {
        return "0".to_owned();
    }
    if format == Format::Binary && nanos % NANO == 0 {
        let units = nanos / NANO;
        return BINARY
            .iter()
            .map(|(suffix, power)| (suffix, 1024_i128.pow(*power)))
            .find(|(_, unit)| units % unit == 0)
            .map_or_else(|| units.to_string(), |(suffix, unit)| format!("{}{suffix}", units / unit));
    }
    DECIMAL
        .iter()
        .map(|(suffix, power)| (suffix, 10_i128.pow(*power)))
        .find(|(_, unit)| nanos % unit == 0)
        .map_or_else(|| nanos.to_string(), |(suffix, unit)| format!("{}{suffix}", nanos / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn less(capacity: &str, reserved: &str) -> Option<String> {
        subtract(&Quantity(capacity.into()), &Quantity(reserved.into())).unwrap().map(|q| q.0)
    }

    #[test]
    fn subtraction_is_exact_in_every_notation() {
        for (capacity, reserved, rest) in [
            ("4", "80m", "3920m"),
            ("4", "0.5", "3500m"),
            ("16Gi", "1Gi", "15Gi"),
            ("16Gi", "100Mi", "16284Mi"),
            ("16Gi", "1", "17179869183"),
            ("1.5Gi", "0.5Gi", "1Gi"),
            ("1G", "1M", "999M"),
            ("2e3", "1", "1999"),
            ("110", "0", "110"),
            ("1", "1000m", "0"),
            ("1", "1u", "999999u"),
            ("1E", "1n", "999999999999999999999999999n"),
            ("100k", "0", "100k"),
        ] {
            assert_eq!(less(capacity, reserved).as_deref(), Some(rest), "{capacity} - {reserved}");
        }
    }

    #[test]
    fn more_reserved_than_there_is_has_no_answer() {
        assert_eq!(less("1", "1001m"), None);
    }

    #[test]
    fn digits_below_a_nano_unit_are_rounded_up() {
        assert_eq!(parse("0.0000000001").unwrap().0, 1);
    }

    #[test]
    fn nonsense_is_refused_and_nothing_overflows() {
        for text in
            ["", ".", "1.2.3", "-1", "1Zi", "1e", "1e99", "abc", "Gi", "9999999999999999999999999999999Ei"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}

//! Which of two resource versions is newer. Pure.
//!
//! Since Kubernetes 1.35 a resourceVersion is a decimal number that can be compared within one resource type (KEP-5504:
//! no sign, no leading zero, any length: compare the lengths, then the digits). API servers of the aggregation layer
//! may still return opaque strings; those do not parse here and are not compared.

use std::cmp::Ordering;
use std::fmt;

/// A resourceVersion that can be compared with others of the same resource type.
///
/// ```
/// use conflict_retry::freshness::Version;
///
/// assert!(Version::parse("99") < Version::parse("100"));
/// assert_eq!(Version::parse("0"), None, "which means: any version will do");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(String);

impl Version {
    /// Parses a version; `None` when it cannot be compared: empty, `0`, with a leading zero, or with anything but
    /// digits.
    pub fn parse(text: &str) -> Option<Self> {
        let comparable =
            !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        comparable.then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_is_newer_then_digits_decide() {
        let fifty = "9".repeat(50);
        for (older, newer) in [("100", "200"), ("99", "100"), ("1", "2"), ("100", fifty.as_str())] {
            assert!(Version::parse(older) < Version::parse(newer), "{older} {newer}");
        }
        assert_eq!(Version::parse("1"), Version::parse("1"));
    }

    #[test]
    fn what_is_no_number_is_not_compared() {
        for text in ["", "0", "0100", "100a", "-1", " 1"] {
            assert_eq!(Version::parse(text), None, "{text:?}");
        }
    }
}

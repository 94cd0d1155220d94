//! `spec.nodeSelector`.

use std::collections::BTreeMap;

use crate::reasons::Rejection;

/// Whether the node has every label with its value.
///
/// # Errors
///
/// The first label that is missing or different.
pub(crate) fn matches(
    selector: &[(String, String)],
    labels: &BTreeMap<String, String>,
) -> Result<(), Rejection> {
    match selector.iter().find(|(key, value)| labels.get(key) != Some(value)) {
        None => Ok(()),
        Some((key, value)) => Err(Rejection::NodeSelectorMismatch(format!("{key}={value}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_must_be_there_with_its_value() {
        let labels =
            BTreeMap::from([("zone".to_owned(), "a".to_owned()), ("disk".to_owned(), "ssd".to_owned())]);
        let selector = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        assert_eq!(matches(&selector(&[]), &labels), Ok(()));
        assert_eq!(matches(&selector(&[("zone", "a"), ("disk", "ssd")]), &labels), Ok(()));
        for missing in [("zone", "b"), ("gpu", "")] {
            assert!(matches(&selector(&[missing]), &labels).is_err(), "{missing:?}");
        }
    }
}

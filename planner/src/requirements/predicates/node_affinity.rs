//! Required node affinity: terms are alternatives, the rules of a term must all hold.

use std::collections::BTreeMap;

use crate::reasons::Rejection;
use crate::requirements::constraints::{NAME_FIELD, Operator, Rule, Term};
use crate::requirements::profile::Profile;

/// Whether one of the terms matches the node. A term without rules matches no node, nor does a list without terms.
///
/// # Errors
///
/// Says that no term matches.
pub fn matches(terms: Option<&[Term]>, node: &Profile) -> Result<(), Rejection> {
    match terms {
        Some(terms) if !terms.iter().any(|term| term_matches(term, node)) => {
            Err(Rejection::NodeAffinityMismatch)
        }
        Some(_) | None => Ok(()),
    }
}

fn term_matches(term: &Term, node: &Profile) -> bool {
    let Term { labels, fields } = term;
    !term.is_empty()
        && labels.iter().all(|rule| label_matches(rule, &node.labels))
        && fields.iter().all(|rule| field_matches(rule, node.name.as_deref()))
}

fn label_matches(rule: &Rule, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&rule.key);
    match rule.operator {
        Operator::In => value.is_some_and(|v| rule.values.contains(v)),
        Operator::NotIn => value.is_none_or(|v| !rule.values.contains(v)),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => compare(value, &rule.values, |value, bound| value > bound),
        Operator::Lt => compare(value, &rule.values, |value, bound| value < bound),
        Operator::Unknown => false,
    }
}

/// The scheduler knows one field and two operators; a node that does not exist yet has no name to be asked for.
fn field_matches(rule: &Rule, name: Option<&str>) -> bool {
    let named = name.is_some_and(|name| rule.values.iter().any(|v| v == name));
    rule.key == NAME_FIELD
        && match rule.operator {
            Operator::In => named,
            Operator::NotIn => !named,
            Operator::Exists | Operator::DoesNotExist | Operator::Gt | Operator::Lt | Operator::Unknown => {
                false
            }
        }
}

fn compare(value: Option<&String>, bounds: &[String], holds: fn(i64, i64) -> bool) -> bool {
    let [bound] = bounds else { return false };
    matches!((value.map(|v| v.parse()), bound.parse()), (Some(Ok(value)), Ok(bound)) if holds(value, bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(key: &str, operator: Operator, values: &[&str]) -> Rule {
        Rule { key: key.to_owned(), operator, values: values.iter().map(|v| (*v).to_owned()).collect() }
    }

    fn node() -> Profile {
        let labels = [("zone", "a"), ("cores", "16"), ("word", "many")];
        Profile {
            name: Some("n1".to_owned()),
            labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            taints: vec![],
        }
    }

    fn matched(labels: Vec<Rule>, fields: Vec<Rule>, node: &Profile) -> bool {
        matches(Some(&[Term { labels, fields }]), node).is_ok()
    }

    #[test]
    fn every_operator_over_labels() {
        for (operator, key, values, expected) in [
            (Operator::In, "zone", &["a", "b"][..], true),
            (Operator::In, "zone", &["b"], false),
            (Operator::In, "gone", &[""], false),
            (Operator::NotIn, "zone", &["b"], true),
            (Operator::NotIn, "zone", &["a"], false),
            (Operator::NotIn, "gone", &["a"], true),
            (Operator::Exists, "zone", &[], true),
            (Operator::Exists, "gone", &[], false),
            (Operator::DoesNotExist, "gone", &[], true),
            (Operator::DoesNotExist, "zone", &[], false),
            (Operator::Gt, "cores", &["8"], true),
            (Operator::Gt, "cores", &["16"], false),
            (Operator::Lt, "cores", &["17"], true),
            (Operator::Lt, "cores", &["16"], false),
            (Operator::Gt, "word", &["8"], false),
            (Operator::Gt, "gone", &["8"], false),
            (Operator::Gt, "cores", &["few"], false),
            (Operator::Gt, "cores", &["1", "2"], false),
            (Operator::Unknown, "zone", &["a"], false),
        ] {
            let found = matched(vec![rule(key, operator, values)], vec![], &node());
            assert_eq!(found, expected, "{key} {operator:?} {values:?}");
        }
    }

    #[test]
    fn the_name_is_the_only_field() {
        let unborn = Profile { name: None, ..node() };
        for (operator, key, value, existing, planned) in [
            (Operator::In, NAME_FIELD, "n1", true, false),
            (Operator::In, NAME_FIELD, "n2", false, false),
            (Operator::NotIn, NAME_FIELD, "n1", false, true),
            (Operator::NotIn, NAME_FIELD, "n2", true, true),
            (Operator::Exists, NAME_FIELD, "", false, false),
            (Operator::In, "metadata.uid", "n1", false, false),
        ] {
            assert_eq!(
                matched(vec![], vec![rule(key, operator, &[value])], &node()),
                existing,
                "{key} {operator:?}"
            );
            assert_eq!(
                matched(vec![], vec![rule(key, operator, &[value])], &unborn),
                planned,
                "{key} {operator:?}"
            );
        }
    }

    #[test]
    fn terms_are_alternatives_and_empty_ones_match_nothing() {
        let yes = Term { labels: vec![rule("zone", Operator::In, &["a"])], fields: vec![] };
        let no = Term { labels: vec![rule("zone", Operator::In, &["b"])], fields: vec![] };
        assert!(matches(None, &node()).is_ok());
        assert!(matches(Some(&[]), &node()).is_err());
        assert!(matches(Some(&[Term::default()]), &node()).is_err());
        assert!(matches(Some(&[no.clone(), yes.clone()]), &node()).is_ok());
        assert!(!matched([yes.labels, no.labels].concat(), vec![], &node()));
    }
}

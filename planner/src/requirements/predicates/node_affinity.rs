//! Required node affinity: terms are alternatives, the rules of a term must all hold.

use std::collections::BTreeMap;

use crate::reasons::Rejection;
use crate::requirements::constraints::{NAME_FIELD, NodeRequirement, NodeTerm, RequirementOperator};
use crate::requirements::node_profile::NodeProfile;

/// Whether one of the terms matches the node. A term without rules matches no node, nor does a list without terms.
///
/// # Errors
///
/// That no term matches.
pub(crate) fn matches(terms: Option<&[NodeTerm]>, node: &NodeProfile) -> Result<(), Rejection> {
    match terms {
        Some(terms) if !terms.iter().any(|term| term_matches(term, node)) => {
            Err(Rejection::NodeAffinityMismatch)
        }
        Some(_) | None => Ok(()),
    }
}

fn term_matches(term: &NodeTerm, node: &NodeProfile) -> bool {
    let NodeTerm { labels, fields } = term;
    !term.is_empty()
        && labels.iter().all(|rule| label_matches(rule, &node.labels))
        && fields.iter().all(|rule| field_matches(rule, node.name.as_deref()))
}

fn label_matches(rule: &NodeRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&rule.key);
    match rule.operator {
        RequirementOperator::In => value.is_some_and(|v| rule.values.contains(v)),
        RequirementOperator::NotIn => value.is_none_or(|v| !rule.values.contains(v)),
        RequirementOperator::Exists => value.is_some(),
        RequirementOperator::DoesNotExist => value.is_none(),
        RequirementOperator::Gt => compare(value, &rule.values, |value, bound| value > bound),
        RequirementOperator::Lt => compare(value, &rule.values, |value, bound| value < bound),
        RequirementOperator::Unknown => false,
    }
}

/// The scheduler supports one field and two operators; a node that does not exist yet has no name to match.
fn field_matches(rule: &NodeRequirement, name: Option<&str>) -> bool {
    let named = name.is_some_and(|name| rule.values.iter().any(|v| v == name));
    rule.key == NAME_FIELD
        && match rule.operator {
            RequirementOperator::In => named,
            RequirementOperator::NotIn => !named,
            RequirementOperator::Exists
            | RequirementOperator::DoesNotExist
            | RequirementOperator::Gt
            | RequirementOperator::Lt
            | RequirementOperator::Unknown => false,
        }
}

fn compare(value: Option<&String>, bounds: &[String], holds: fn(i64, i64) -> bool) -> bool {
    let [bound] = bounds else { return false };
    matches!((value.map(|v| v.parse()), bound.parse()), (Some(Ok(value)), Ok(bound)) if holds(value, bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(key: &str, operator: RequirementOperator, values: &[&str]) -> NodeRequirement {
        NodeRequirement {
            key: key.to_owned(),
            operator,
            values: values.iter().map(|v| (*v).to_owned()).collect(),
        }
    }

    fn node() -> NodeProfile {
        let labels = [("zone", "a"), ("cores", "16"), ("word", "many")];
        NodeProfile {
            name: Some("n1".to_owned()),
            labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            taints: vec![],
        }
    }

    fn matched(labels: Vec<NodeRequirement>, fields: Vec<NodeRequirement>, node: &NodeProfile) -> bool {
        matches(Some(&[NodeTerm { labels, fields }]), node).is_ok()
    }

    #[test]
    fn every_operator_over_labels() {
        for (operator, key, values, expected) in [
            (RequirementOperator::In, "zone", &["a", "b"][..], true),
            (RequirementOperator::In, "zone", &["b"], false),
            (RequirementOperator::In, "gone", &[""], false),
            (RequirementOperator::NotIn, "zone", &["b"], true),
            (RequirementOperator::NotIn, "zone", &["a"], false),
            (RequirementOperator::NotIn, "gone", &["a"], true),
            (RequirementOperator::Exists, "zone", &[], true),
            (RequirementOperator::Exists, "gone", &[], false),
            (RequirementOperator::DoesNotExist, "gone", &[], true),
            (RequirementOperator::DoesNotExist, "zone", &[], false),
            (RequirementOperator::Gt, "cores", &["8"], true),
            (RequirementOperator::Gt, "cores", &["16"], false),
            (RequirementOperator::Lt, "cores", &["17"], true),
            (RequirementOperator::Lt, "cores", &["16"], false),
            (RequirementOperator::Gt, "word", &["8"], false),
            (RequirementOperator::Gt, "gone", &["8"], false),
            (RequirementOperator::Gt, "cores", &["few"], false),
            (RequirementOperator::Gt, "cores", &["1", "2"], false),
            (RequirementOperator::Unknown, "zone", &["a"], false),
        ] {
            let found = matched(vec![rule(key, operator, values)], vec![], &node());
            assert_eq!(found, expected, "{key} {operator:?} {values:?}");
        }
    }

    #[test]
    fn the_name_is_the_only_field() {
        let unborn = NodeProfile { name: None, ..node() };
        for (operator, key, value, existing, planned) in [
            (RequirementOperator::In, NAME_FIELD, "n1", true, false),
            (RequirementOperator::In, NAME_FIELD, "n2", false, false),
            (RequirementOperator::NotIn, NAME_FIELD, "n1", false, true),
            (RequirementOperator::NotIn, NAME_FIELD, "n2", true, true),
            (RequirementOperator::Exists, NAME_FIELD, "", false, false),
            (RequirementOperator::In, "metadata.uid", "n1", false, false),
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
        let yes = NodeTerm { labels: vec![rule("zone", RequirementOperator::In, &["a"])], fields: vec![] };
        let no = NodeTerm { labels: vec![rule("zone", RequirementOperator::In, &["b"])], fields: vec![] };
        assert!(matches(None, &node()).is_ok());
        assert!(matches(Some(&[]), &node()).is_err());
        assert!(matches(Some(&[NodeTerm::default()]), &node()).is_err());
        assert!(matches(Some(&[no.clone(), yes.clone()]), &node()).is_ok());
        assert!(!matched([yes.labels, no.labels].concat(), vec![], &node()));
    }
}

//! Label selectors, in a form that can be compared and hashed, and matched without allocating.
//!
//! Two selectors with the same rules in another order are equal. The caller knows what a selector selects (pools, pods,
//! namespaces).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// A label selector; all its rules must hold, so one without rules selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Selector {
    /// Sorted, without duplicates.
    rules: Vec<LabelRule>,
}

/// A rule over one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct LabelRule {
    key: String,
    test: Test,
}

/// The test of a rule on the label's value; the values are sorted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

/// An invalid label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the selector's rule over \"{key}\" has the operator \"{operator}\" with {values} values")]
pub(crate) struct InvalidSelector {
    /// Label of the rule.
    pub key: String,
    /// Operator of the rule.
    pub operator: String,
    /// Number of its values.
    pub values: usize,
}

impl Selector {
    /// Reads a selector.
    ///
    /// # Errors
    ///
    /// For an operator that does not exist, and for one that needs values and has none, or the other way round.
    pub(crate) fn read(selector: &LabelSelector) -> Result<Self, InvalidSelector> {
        let pairs = selector.match_labels.iter().flatten().map(|(key, value)| Ok(equals(key, value)));
        let rules = selector.match_expressions.iter().flatten().map(rule);
        let rules = pairs.chain(rules).collect::<Result<BTreeSet<_>, _>>()?;
        Ok(Self { rules: rules.into_iter().collect() })
    }

    /// This selector, which also requires that `key` is `value`.
    #[must_use]
    pub(crate) fn with(self, key: &str, value: &str) -> Self {
        self.and(equals(key, value))
    }

    /// This selector, which also requires that `key` is not `value`.
    #[must_use]
    pub(crate) fn without(self, key: &str, value: &str) -> Self {
        self.and(LabelRule { key: key.to_owned(), test: Test::NotIn(vec![value.to_owned()]) })
    }

    fn and(mut self, rule: LabelRule) -> Self {
        if let Err(at) = self.rules.binary_search(&rule) {
            self.rules.insert(at, rule);
        }
        self
    }

    /// Whether an object with these labels is selected.
    pub(crate) fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.matches_with(|key| labels.and_then(|l| l.get(key)).map(String::as_str))
    }

    /// Whether an object is selected. `value` looks up its labels.
    pub(crate) fn matches_with<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.rules.iter().all(|rule| {
            let value = value(&rule.key);
            let among = |values: &[String]| value.is_some_and(|v| values.iter().any(|wanted| wanted == v));
            match &rule.test {
                Test::In(values) => among(values),
                Test::NotIn(values) => !among(values),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
            }
        })
    }

    /// Whether it has no rules, so that it selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The label keys that it uses.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.key.as_str())
    }

    /// Labels, with their values, that every selected object has; used to find the selectors that match an object.
    pub(crate) fn anchors(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rules.iter().filter_map(|rule| match &rule.test {
            Test::In(values) => match values.as_slice() {
                [value] => Some((rule.key.as_str(), value.as_str())),
                _ => None,
            },
            Test::NotIn(_) | Test::Exists | Test::DoesNotExist => None,
        })
    }
}

fn equals(key: &str, value: &str) -> LabelRule {
    LabelRule { key: key.to_owned(), test: Test::In(vec![value.to_owned()]) }
}

fn rule(requirement: &LabelSelectorRequirement) -> Result<LabelRule, InvalidSelector> {
    let LabelSelectorRequirement { key, operator, values } = requirement;
    let values: BTreeSet<_> = values.iter().flatten().cloned().collect();
    let count = values.len();
    let values = values.into_iter().collect();
    let test = match (operator.as_str(), count) {
        ("In", 1..) => Test::In(values),
        ("NotIn", 1..) => Test::NotIn(values),
        ("Exists", 0) => Test::Exists,
        ("DoesNotExist", 0) => Test::DoesNotExist,
        _ => {
            return Err(InvalidSelector { key: key.clone(), operator: operator.clone(), values: count });
        }
    };
    Ok(LabelRule { key: key.clone(), test })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(selector: Value) -> Result<Selector, InvalidSelector> {
        Selector::read(&serde_json::from_value(selector).unwrap())
    }

    fn rule(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
    }

    fn selected(selector: &Selector, labels: &Value) -> bool {
        selector.matches(Some(&serde_json::from_value(labels.clone()).unwrap()))
    }

    #[test]
    fn every_operator() {
        for (selector, labels, expected) in [
            (json!({}), json!({}), true),
            (json!({ "matchLabels": { "t": "a" } }), json!({ "t": "a" }), true),
            (json!({ "matchLabels": { "t": "a" } }), json!({ "t": "b" }), false),
            (json!({ "matchLabels": { "t": "" } }), json!({}), false),
            (rule("t", "In", &["a", "b"]), json!({ "t": "b" }), true),
            (rule("t", "In", &["a", "b"]), json!({}), false),
            (rule("t", "NotIn", &["a"]), json!({}), true),
            (rule("t", "NotIn", &["a"]), json!({ "t": "a" }), false),
            (rule("t", "Exists", &[]), json!({ "t": "" }), true),
            (rule("t", "Exists", &[]), json!({}), false),
            (rule("t", "DoesNotExist", &[]), json!({}), true),
            (rule("t", "DoesNotExist", &[]), json!({ "t": "" }), false),
        ] {
            let selector_read = read(selector.clone()).unwrap();
            assert_eq!(selected(&selector_read, &labels), expected, "{selector} on {labels}");
        }
        assert!(read(json!({})).unwrap().matches(None));
    }

    #[test]
    fn rules_that_mean_nothing_are_errors() {
        for (operator, values) in
            [("Gt", &["1"][..]), ("in", &["a"]), ("In", &[]), ("NotIn", &[]), ("Exists", &["a"])]
        {
            assert!(read(rule("t", operator, values)).is_err(), "{operator} {values:?}");
        }
    }

    #[test]
    fn selectors_that_say_the_same_are_equal() {
        let written = read(json!({ "matchLabels": { "a": "1" },
            "matchExpressions": [{ "key": "b", "operator": "In", "values": ["y", "x"] }] }))
        .unwrap();
        let otherwise = read(json!({ "matchExpressions": [
            { "key": "b", "operator": "In", "values": ["x", "y", "x"] },
            { "key": "a", "operator": "In", "values": ["1"] }] }))
        .unwrap();
        assert_eq!(written, otherwise);
        assert_eq!(written.clone().with("a", "1"), written, "a rule is there once");
        assert_ne!(written.clone().with("c", "1"), written);
        assert_ne!(written.clone().without("a", "1"), written);
    }

    #[test]
    fn anchors_are_labels_that_whatever_is_selected_has() {
        for (selector, anchors) in [
            (json!({}), vec![]),
            (json!({ "matchLabels": { "a": "1", "b": "2" } }), vec![("a", "1"), ("b", "2")]),
            (rule("t", "In", &["a", "b"]), vec![]),
            (rule("t", "NotIn", &["a"]), vec![]),
        ] {
            assert_eq!(read(selector).unwrap().anchors().collect::<Vec<_>>(), anchors);
        }
    }
}

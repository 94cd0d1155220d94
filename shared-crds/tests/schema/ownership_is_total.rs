//! Every leaf of `NodePool` has exactly one owner, and every row of the contract names an existing field.

use shared_crds::conditions::ConditionType;
use shared_crds::ownership::{self, Endpoint, NODE_POOL};

use crate::walk;

/// Owned entry by entry, by condition type; `ConditionType::owner_on_node_pool` is total because it is a match.
const CONDITIONS: &str = "status.conditions";

#[test]
fn every_leaf_has_exactly_one_owner() {
    let schema = walk::of("nodepools");
    let mut leaves = 0;
    for field in walk::fields(&schema).iter().filter(|f| f.is_leaf() && !f.path.starts_with(CONDITIONS)) {
        leaves += 1;
        let longest = NODE_POOL
            .iter()
            .filter(|rule| {
                ownership::rule_for(&field.path).is_some_and(|found| found.path.len() == rule.path.len())
            })
            .filter(|rule| field.path.starts_with(rule.path))
            .count();
        assert_eq!(longest, 1, "{} must have exactly one owner", field.path);
    }
    assert!(leaves > 20, "the walk found only {leaves} leaves");
}

#[test]
fn every_row_names_an_existing_field() {
    let schema = walk::of("nodepools");
    let fields = walk::fields(&schema);
    for rule in NODE_POOL {
        assert!(fields.iter().any(|f| f.path == rule.path), "the schema has no field {}", rule.path);
    }
}

#[test]
fn endpoints_agree_with_what_the_api_server_lets_through() {
    for rule in NODE_POOL {
        let expected = match rule.path {
            "spec.replicas" => Endpoint::Scale,
            path if path.starts_with("status.") => Endpoint::Status,
            _ => Endpoint::Main,
        };
        assert_eq!(rule.endpoint, expected, "{}", rule.path);
    }
}

#[test]
fn every_condition_type_is_listed_once() {
    let mut names: Vec<_> = ConditionType::ALL.iter().map(|c| c.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ConditionType::ALL.len());
}

//! **The contract**: the owner of each field of a `NodePool`, the endpoint it is written through, and its protection.
//!
//! This table is the only source of that. The README's table, the RBAC rules, what each operator puts in its
//! status and the tests that read `managedFields` are derived from it or checked against it. A test walks the schema and
//! fails when a leaf has no owner, or two.

use crate::conditions::ConditionType;
pub use crate::owner::Owner;

/// The endpoint a field is written through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// The object itself.
    Main,
    /// Its `/scale` subresource.
    Scale,
    /// Its `/status` subresource.
    Status,
}

impl Endpoint {
    /// The endpoint as RBAC names it.
    pub const fn rbac_resource(self) -> &'static str {
        match self {
            Self::Main => "nodepools",
            Self::Scale => "nodepools/scale",
            Self::Status => "nodepools/status",
        }
    }
}

/// One row of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The field and everything below it, unless a longer path says otherwise.
    pub path: &'static str,
    /// Its owner.
    pub owner: Owner,
    /// The endpoint that it is written through.
    pub endpoint: Endpoint,
    /// What prevents other writers from overwriting it.
    pub protection: &'static str,
    /// The writer that fills it while it is unset, if not the owner: with a guarded write, which never changes a set
    /// value.
    pub filled_by: Option<Owner>,
}

const fn rule(path: &'static str, owner: Owner, endpoint: Endpoint, protection: &'static str) -> Rule {
    Rule { path, owner, endpoint, protection, filled_by: None }
}

impl Rule {
    const fn filled_by(self, filler: Owner) -> Self {
        Self { filled_by: Some(filler), ..self }
    }

    /// Whether `writer` may write the field: always as its owner, and as the one who fills it only while it is unset.
    pub fn may_write(&self, writer: Owner, is_unset: bool) -> bool {
        let scales = self.owner == Owner::Scaler && matches!(writer, Owner::AutoscalerOperator | Owner::User);
        self.owner == writer || scales || (is_unset && self.filled_by == Some(writer))
    }
}

const OWN_MANAGER: &str = "its own field manager";

/// The contract. A field belongs to the row with the longest path that contains it.
pub const NODE_POOL: &[Rule] = &[
    rule("spec", Owner::User, Endpoint::Main, "CEL validation"),
    rule(
        "spec.replicas",
        Owner::Scaler,
        Endpoint::Scale,
        "a guard on the generation the decision was made from (the Autoscaler's `guarded` writes the object: a scale has none)",
    )
    .filled_by(Owner::NodepoolOperator),
    rule("status.replicas", Owner::NodepoolOperator, Endpoint::Status, OWN_MANAGER),
    rule("status.readyReplicas", Owner::NodepoolOperator, Endpoint::Status, OWN_MANAGER),
    rule("status.upToDateReplicas", Owner::NodepoolOperator, Endpoint::Status, OWN_MANAGER),
    rule("status.unavailableReplicas", Owner::NodepoolOperator, Endpoint::Status, OWN_MANAGER),
    rule("status.selector", Owner::NodepoolOperator, Endpoint::Status, OWN_MANAGER),
    rule("status.observedGeneration", Owner::NodepoolOperator, Endpoint::Status, OWN_MANAGER),
    rule("status.nodes", Owner::NodepoolOperator, Endpoint::Status, OWN_MANAGER),
    rule("status.provisioning", Owner::NodepoolOperator, Endpoint::Status, OWN_MANAGER),
    rule("status.disruption", Owner::NodepoolOperator, Endpoint::Status, OWN_MANAGER),
    rule("status.rollout", Owner::NodepoolOperator, Endpoint::Status, OWN_MANAGER),
    rule("status.replacement", Owner::NodepoolOperator, Endpoint::Status, OWN_MANAGER),
    rule("status.autoscaling", Owner::AutoscalerOperator, Endpoint::Status, OWN_MANAGER),
    rule(
        SCALE_DOWN,
        Owner::AutoscalerOperator,
        Endpoint::Status,
        "a guard on the generation and on the list before",
    ),
];

/// The list of nodes to remove. It belongs to the write of a count, so it must not be executed late: it is not part of
/// the applied status, but written by a separate patch.
const SCALE_DOWN: &str = "status.autoscaling.scaleDown";

/// A field below `status` that is written by a patch that tests what was there before, instead of being applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardedField {
    /// The keys from `status` down to it.
    pub path: &'static [&'static str],
    /// The key in it that identifies a value.
    pub witness: &'static str,
}

/// The fields of a `NodePool` that are written that way.
pub const GUARDED: &[GuardedField] =
    &[GuardedField { path: &["autoscaling", "scaleDown"], witness: "decisionID" }];

/// The row that a field belongs to: the one with the longest path. Conditions have no row of their own, because each
/// type has its own owner: ask [`ConditionType::owner_on_node_pool`].
pub fn rule_for(path: &str) -> Option<&'static Rule> {
    NODE_POOL
        .iter()
        .filter(|rule| {
            path.strip_prefix(rule.path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
        .max_by_key(|rule| rule.path.len())
}

/// The names of the fields directly under `status` that `owner` writes. `conditions` is not among them: it is shared.
pub fn status_fields(owner: Owner) -> impl Iterator<Item = &'static str> {
    NODE_POOL
        .iter()
        .filter(move |rule| rule.owner == owner && rule.endpoint == Endpoint::Status)
        .filter_map(|rule| rule.path.strip_prefix("status."))
        .filter(|field| !field.contains('.'))
}

/// The condition types that `owner` writes on a `NodePool`.
pub fn conditions(owner: Owner) -> impl Iterator<Item = ConditionType> {
    ConditionType::ALL.iter().copied().filter(move |condition| condition.owner_on_node_pool() == Some(owner))
}

/// The contract as the table that README shows; a test compares the two.
pub fn markdown_table() -> String {
    let fields = NODE_POOL.iter().map(|rule| {
        let path = if rule.path == "spec" { "spec.* (all but replicas)" } else { rule.path };
        let (owner, endpoint) = (rule.owner.describe(), rule.endpoint.rbac_resource());
        let filler =
            rule.filled_by.map(|filler| format!("; the {} fills it while it is unset", filler.describe()));
        let filler = filler.unwrap_or_default();
        format!("| `{path}` | {owner}{filler} | `{endpoint}` | {} |\n", rule.protection)
    });
    let conditions = [Owner::NodepoolOperator, Owner::AutoscalerOperator].into_iter().map(|owner| {
        let types = conditions(owner).map(|c| format!("`{c}`")).collect::<Vec<_>>().join(", ");
        let (owner, endpoint) = (owner.describe(), Endpoint::Status.rbac_resource());
        format!("| `status.conditions`: {types} | {owner} | `{endpoint}` | {OWN_MANAGER}; the list is a map keyed by `type` |\n")
    });
    let head = "| field of `NodePool` | owner | written through | what protects it |\n|---|---|---|---|\n"
        .to_owned();
    std::iter::once(head).chain(fields).chain(conditions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_path_wins() {
        assert_eq!(rule_for("spec.replicas").map(|r| r.owner), Some(Owner::Scaler));
        assert_eq!(rule_for("spec.minReplicas").map(|r| r.owner), Some(Owner::User));
        assert_eq!(
            rule_for("status.autoscaling.scaleDown.nodes").map(|r| r.owner),
            Some(Owner::AutoscalerOperator)
        );
    }

    #[test]
    fn the_nodepool_operator_fills_an_unset_count_and_never_changes_one() {
        let rule = rule_for("spec.replicas").unwrap();
        assert!(
            rule.may_write(Owner::NodepoolOperator, true) && !rule.may_write(Owner::NodepoolOperator, false)
        );
        assert!(rule.may_write(Owner::AutoscalerOperator, false) && rule.may_write(Owner::User, false));
        assert!(!rule_for("spec.minReplicas").unwrap().may_write(Owner::NodepoolOperator, true));
    }

    #[test]
    fn a_field_without_a_row_has_no_owner() {
        assert_eq!(rule_for("status.phase"), None);
        assert_eq!(rule_for("status.replicasX"), None);
    }

    #[test]
    fn what_is_guarded_has_a_rule_of_its_own() {
        for field in GUARDED {
            let path = format!("status.{}", field.path.join("."));
            assert_eq!(rule_for(&path).map(|rule| rule.path), Some(path.as_str()));
        }
    }

    #[test]
    fn every_condition_has_an_operator_for_owner() {
        for condition in ConditionType::ALL {
            let owner = condition.owner_on_node_pool();
            assert!(owner.is_none_or(|owner| owner.field_manager().is_some()), "{condition}");
            assert_eq!(owner.is_none(), *condition == ConditionType::SchedulesValid, "{condition}");
        }
    }
}

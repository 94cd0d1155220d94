//! **The contract, for the API server**: conditions in CEL under which a write by one of the operators is refused. They are derived
//! from [`ownership`], and hold whatever program writes with the operator's token.
//!
//! What is not named as the writer's own is refused, so a field that a later version adds needs no new condition to be safe.

mod machine;
mod node;

use serde::Serialize;

pub use self::machine::{cluster_api, no_machines, node_claims};
pub use self::node::{kubelets, nodes};
use crate::conditions::ConditionType;
use crate::names::POOL_FINALIZER;
pub use crate::owner::Owner;
use crate::ownership::{self, Endpoint, NODE_POOL};

/// One condition of a `ValidatingAdmissionPolicy`: what must hold, and what is said otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Validation {
    /// In CEL, over `object`, `oldObject` and `request`.
    pub expression: String,
    /// For the writer that is refused.
    pub message: String,
}

impl Validation {
    fn new(expression: String, message: &str) -> Self {
        Self { expression, message: message.to_owned() }
    }
}

/// What one writer may change of a `NodePool`: all else is refused. [`Grant::of`] has an operator's from the contract. A controller
/// of another project, for which the contract has no row, brings its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant<'a> {
    /// The writer's name, for messages.
    pub name: &'a str,
    /// The fields directly below `spec`.
    pub spec: Vec<&'a str>,
    /// The paths of fields that it may change only while they are unset.
    pub filled: Vec<&'a str>,
    /// The finalizer that it may add and remove.
    pub finalizer: Option<&'a str>,
    /// The fields directly below `status`; `conditions` is not among them.
    pub status: Vec<&'a str>,
    /// The types of its conditions.
    pub conditions: Vec<&'a str>,
}

impl Grant<'static> {
    /// What the contract gives to `writer`.
    pub fn of(writer: Owner) -> Self {
        Self {
            name: writer.field_manager().unwrap_or_default(),
            spec: own_fields(writer, "spec"),
            filled: filled_fields(writer).collect(),
            finalizer: (writer == Owner::NodepoolOperator).then_some(POOL_FINALIZER),
            status: own_fields(writer, "status"),
            conditions: ownership::conditions(writer).map(ConditionType::as_str).collect(),
        }
    }
}

impl Grant<'_> {
    /// What must hold of a change of a `NodePool` by this writer, through the object or its `/status`.
    pub fn validations(&self) -> Vec<Validation> {
        let name = self.name;
        let mut validations = Vec::new();
        let mut add = |endpoint: Endpoint, expression: String, what: &str| {
            let endpoint = match endpoint {
                Endpoint::Main => "",
                Endpoint::Scale => "scale",
                Endpoint::Status => "status",
            };
            // Absent for the object itself.
            let elsewhere = format!("request.?subResource.orValue('') != '{endpoint}'");
            validations.push(Validation {
                expression: format!("{elsewhere} || ({expression})"),
                message: format!(
                    "{name} does not own {what} of a NodePool, see the contract in Tandem's README"
                ),
            });
        };

        add(Endpoint::Main, unchanged("spec", &self.spec), &all_but("spec", &self.spec));
        for field in &self.filled {
            let unset = format!("!has(oldObject.{field})");
            let same = format!("has(object.{field}) && object.{field} == oldObject.{field}");
            add(Endpoint::Main, format!("{unset} || ({same})"), &format!("a {field} that is set"));
        }
        for list in ["labels", "annotations", "ownerReferences"] {
            let same = format!("object.metadata.?{list} == oldObject.metadata.?{list}");
            add(Endpoint::Main, same, &format!("metadata.{list}"));
        }
        let finalizer = self.finalizer.unwrap_or_default();
        let others =
            |of: &str| format!("{of}.metadata.?finalizers.orValue([]).filter(f, f != '{finalizer}')");
        add(
            Endpoint::Main,
            format!("{} == {}", others("object"), others("oldObject")),
            "the finalizers of others",
        );

        let mut status = self.status.clone();
        status.push("conditions");
        add(Endpoint::Status, unchanged("status", &status), &all_but("status", &self.status));
        let own = list(&self.conditions);
        let others = |of: &str| format!("{of}.?status.conditions.orValue([]).filter(c, !(c.type in {own}))");
        add(
            Endpoint::Status,
            format!("{} == {}", others("object"), others("oldObject")),
            &format!("status.conditions but {}", self.conditions.join(", ")),
        );
        validations
    }
}

/// What must hold of a change of a `NodePool` by this operator, through any of its endpoints.
pub fn node_pool(writer: Owner) -> Vec<Validation> {
    Grant::of(writer).validations()
}

/// The fields directly below `parent` that `writer` may write, also where it may only fill them.
fn own_fields(writer: Owner, parent: &str) -> Vec<&'static str> {
    let below = |path: &'static str| {
        path.strip_prefix(parent)?.strip_prefix('.').filter(|field| !field.contains('.'))
    };
    NODE_POOL.iter().filter(|rule| rule.may_write(writer, true)).filter_map(|rule| below(rule.path)).collect()
}

/// The fields that `writer` may write only while they are unset.
fn filled_fields(writer: Owner) -> impl Iterator<Item = &'static str> {
    let filled =
        NODE_POOL.iter().filter(move |rule| rule.may_write(writer, true) && !rule.may_write(writer, false));
    filled.map(|rule| rule.path)
}

/// Everything below `parent` is as it was, but for these fields.
fn unchanged(parent: &str, except: &[&str]) -> String {
    let (object, old) =
        (format!("object.?{parent}.orValue({{}})"), format!("oldObject.?{parent}.orValue({{}})"));
    let except = list(except);
    format!(
        "{old}.all(k, k in {except} || (k in {object} && {object}[k] == {old}[k])) && {object}.all(k, k in {except} || k in {old})"
    )
}

fn all_but(parent: &str, fields: &[&str]) -> String {
    if fields.is_empty() { parent.to_owned() } else { format!("{parent} but {}", fields.join(", ")) }
}

/// The map `list` of the metadata of `of`, such as its labels; empty where it is absent.
fn map_of(of: &str, list: &str) -> String {
    format!("{of}.metadata.?{list}.orValue({{}})")
}

/// Every entry of the map `one` is in `other` with the same value, but for those that `but` holds of, with their key as `k`.
fn all_in(one: &str, other: &str, but: &str) -> String {
    format!("{one}.all(k, {but} || (k in {other} && {other}[k] == {one}[k]))")
}

fn list(items: &[&str]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("'{item}'")).collect();
    format!("[{}]", items.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operator_may_write_what_the_contract_gives_it_and_nothing_else() {
        let text = |writer| {
            node_pool(writer)
                .iter()
                .map(|v| format!("{}\n  {}\n", v.message, v.expression))
                .collect::<String>()
        };
        let (autoscaler, node_pools) = (text(Owner::AutoscalerOperator), text(Owner::NodepoolOperator));
        assert!(autoscaler.contains("does not own spec but replicas of"), "{autoscaler}");
        assert!(autoscaler.contains("does not own status but autoscaling of"), "{autoscaler}");
        assert!(!autoscaler.contains("that is set"), "{autoscaler}");
        assert!(node_pools.contains("does not own a spec.replicas that is set of"), "{node_pools}");
        for (writer, text) in
            [(Owner::AutoscalerOperator, &autoscaler), (Owner::NodepoolOperator, &node_pools)]
        {
            let status: String = text.lines().filter(|line| line.contains("!= 'status'")).collect();
            for rule in NODE_POOL {
                let field = rule.path.strip_prefix("status.").filter(|field| !field.contains('.'));
                if let Some(field) = field {
                    assert_eq!(status.contains(&format!("'{field}'")), rule.owner == writer, "{field}");
                }
            }
        }
        assert!(node_pools.contains("tandem.dev/nodes") && !autoscaler.contains("tandem.dev/nodes"));
    }

    #[test]
    fn a_writer_that_the_contract_does_not_name_may_change_what_it_brings_and_nothing_else() {
        let grant = Grant { name: "third", conditions: vec!["example.com/Seen"], ..Grant::default() };
        let validations = grant.validations();
        // As many as an operator's that fills nothing.
        assert_eq!(validations.len(), node_pool(Owner::AutoscalerOperator).len());
        let said: Vec<&str> = validations.iter().map(|validation| validation.message.as_str()).collect();
        for what in ["spec", "status", "status.conditions but example.com/Seen"] {
            let message =
                format!("third does not own {what} of a NodePool, see the contract in Tandem's README");
            assert!(said.contains(&message.as_str()), "{said:?}");
        }
        let text: String = validations.iter().map(|validation| validation.expression.as_str()).collect();
        assert!(
            text.contains("k in ['conditions']") && text.contains("c.type in ['example.com/Seen']"),
            "{text}"
        );
    }
}

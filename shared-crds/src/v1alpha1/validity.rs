//! What the schema cannot refuse and no node can be made from. Both operators read it: one creates no node of such a pool,
//! the other does not count on any.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{ASSUMED_POD_CAPACITY, NodePool};
use crate::QualifiedName;
use crate::quantity::Exact;

/// Longest value of a label, and so the longest pool name that a node can carry.
const MAX_LABEL_VALUE: usize = 63;

/// Why no node can be made from a pool's spec. The text is for the user.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPool {
    /// The name does not fit in a label.
    #[error("the pool's name or namespace has {0} characters, and nodes carry it in a label, which holds 63")]
    NameTooLong(usize),
    /// It is not known how much of a resource a node has.
    #[error("neither spec.template.spec.capacity nor the provider says how much {0} a node has")]
    UnknownCapacity(&'static str),
    /// More of a resource is reserved than the capacity.
    #[error("spec.template.spec.reserved.{0} is more than the capacity of a node")]
    ReservedExceedsCapacity(String),
}

/// Checks a pool. Quantities that cannot be read are not looked at: reading them says what is wrong with them.
///
/// # Errors
/// The first problem.
pub fn check(pool: &NodePool) -> Result<(), InvalidPool> {
    let QualifiedName { namespace, name } = QualifiedName::of(&pool.metadata);
    let longest = name.len().max(namespace.len());
    if longest > MAX_LABEL_VALUE {
        return Err(InvalidPool::NameTooLong(longest));
    }
    let (template, capacities) = (&pool.spec.template.spec, pool.capacity());
    let amount = |quantity: &Quantity| Exact::parse(&quantity.0).ok();
    for (resource, reserved) in &template.reserved {
        let assumed = (resource == "pods").then(|| Quantity(ASSUMED_POD_CAPACITY.to_string()));
        let capacity = capacities.get(resource).cloned().or(assumed);
        let capacity = capacity.map_or(Some(Exact::ZERO), |capacity| amount(&capacity));
        if let (Some(reserved), Some(capacity)) = (amount(reserved), capacity)
            && reserved > capacity
        {
            return Err(InvalidPool::ReservedExceedsCapacity(resource.clone()));
        }
    }
    Ok(())
}

/// Checks that pods can be planned onto the pool before it has a node.
///
/// # Errors
/// The first resource of which a node's capacity is not known.
pub fn check_capacity(pool: &NodePool) -> Result<(), InvalidPool> {
    let capacity = pool.capacity();
    let unknown = ["cpu", "memory"].into_iter().find(|resource| !capacity.contains_key(*resource));
    unknown.map_or(Ok(()), |resource| Err(InvalidPool::UnknownCapacity(resource)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pool(name: &str, capacity: &Value, reserved: &Value) -> NodePool {
        serde_json::from_value(json!({
            "apiVersion": "tandem.dev/v1alpha1",
            "kind": "NodePool",
            "metadata": { "name": name, "namespace": "ns" },
            "spec": {
                "maxReplicas": 1,
                "template": { "spec": { "capacity": capacity, "reserved": reserved } },
                "provider": { "simulated": {} },
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_pool_that_no_node_can_be_made_of_is_named() {
        let capacity = json!({ "cpu": "4", "memory": "8Gi" });
        let reserved = |resource: &str| Err(InvalidPool::ReservedExceedsCapacity(resource.to_owned()));
        for (name, reserves, expected) in [
            ("p", json!({ "cpu": "4", "memory": "1Gi", "pods": "110" }), Ok(())),
            ("p", json!({ "cpu": "4001m" }), reserved("cpu")),
            ("p", json!({ "pods": "111" }), reserved("pods")),
            ("p", json!({ "example.com/gpu": "1" }), reserved("example.com/gpu")),
            ("p", json!({ "cpu": "no quantity" }), Ok(())),
            (&"a".repeat(63), json!({}), Ok(())),
            (&"a".repeat(64), json!({}), Err(InvalidPool::NameTooLong(64))),
        ] {
            assert_eq!(check(&pool(name, &capacity, &reserves)), expected, "{name} {reserves}");
        }
    }

    #[test]
    fn capacity_is_the_templates_and_else_the_providers() {
        let mut pool = pool("p", &json!({ "cpu": "4" }), &json!({ "memory": "9Gi" }));
        assert_eq!(check_capacity(&pool), Err(InvalidPool::UnknownCapacity("memory")));
        let said = json!({ "provisioning": { "capacity": { "cpu": "8", "memory": "8Gi" } } });
        pool.status = serde_json::from_value(said).unwrap();
        let amounts = pool.capacity().into_iter().map(|(name, amount)| format!("{name}={}", amount.0));
        assert_eq!(amounts.collect::<Vec<_>>(), ["cpu=4", "memory=8Gi"]);
        assert_eq!(check_capacity(&pool), Ok(()));
        assert_eq!(check(&pool), Err(InvalidPool::ReservedExceedsCapacity("memory".to_owned())));
    }
}

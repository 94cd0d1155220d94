//! What an operator may write to the objects of those that make machines: Karpenter's and Cluster API's.

use super::{Validation, all_in, list, map_of};
use crate::names::{
    CLUSTER_ANNOTATION, DELETE_MACHINE_ANNOTATION, EXCLUDE_DRAINING_ANNOTATION, NODEPOOL_LABEL,
    NODEPOOL_NAMESPACE_LABEL,
};

/// The kind of object, and the part of it, that a request is for.
const KIND: &str = "request.resource.resource";
const PART: &str = "request.?subResource.orValue('')";

/// What must hold of a write to an object of Karpenter by the operator that makes nodes.
pub fn node_claims() -> Vec<Validation> {
    let labels = list(&[NODEPOOL_LABEL, NODEPOOL_NAMESPACE_LABEL]);
    let claim = "(request.operation == 'DELETE' ? oldObject : object)";
    vec![
        Validation::new(
            format!("{KIND} == 'nodeclaims' && {PART} == '' && request.operation in ['CREATE', 'DELETE']"),
            "nodepool-operator does not own this object of Karpenter: it makes and deletes NodeClaims, and writes \
             nothing else",
        ),
        Validation::new(
            format!("{labels}.all(k, k in {})", map_of(claim, "labels")),
            "nodepool-operator does not own this NodeClaim: its labels name no NodePool of Tandem",
        ),
        Validation::new(
            format!(
                "request.operation != 'CREATE' || '{CLUSTER_ANNOTATION}' in {}",
                map_of("object", "annotations")
            ),
            "nodepool-operator does not own a NodeClaim that does not say for which cluster it is made",
        ),
    ]
}

/// What must hold of a write to an object of Cluster API by the operator that makes nodes.
pub fn cluster_api() -> Vec<Validation> {
    let machine = |expression: &str, message: &str| {
        let others = format!("{KIND} != 'machines'");
        Validation::new(
            format!("{others} || ({expression})"),
            &format!("nodepool-operator does not own {message} of a Machine"),
        )
    };
    let annotations = |of: &str| map_of(of, "annotations");
    let marks = list(&[DELETE_MACHINE_ANNOTATION, EXCLUDE_DRAINING_ANNOTATION]);
    let unmarked =
        |one: &str, other: &str| all_in(&annotations(one), &annotations(other), &format!("k in {marks}"));
    let same = |list: &str| format!("object.metadata.?{list} == oldObject.metadata.?{list}");
    vec![
        Validation::new(
            format!(
                "request.operation == 'UPDATE' && (({KIND} == 'machinedeployments' && {PART} == 'scale') || \
                 ({KIND} == 'machines' && {PART} == ''))"
            ),
            "nodepool-operator does not own this object of Cluster API: it sizes MachineDeployments and marks Machines, \
             and writes nothing else",
        ),
        machine(
            &format!("{} && {}", unmarked("object", "oldObject"), unmarked("oldObject", "object")),
            "annotations but its marks",
        ),
        machine(
            &["labels", "finalizers", "ownerReferences"].map(same).join(" && "),
            "labels, finalizers and owners",
        ),
        // Cluster API's own webhook fills in defaults with every write.
        machine(&all_in("oldObject.spec", "object.spec", "false"), "the spec"),
    ]
}

/// What must hold of a write of an operator that makes no machines to an object of those that do: there is none.
pub fn no_machines() -> Vec<Validation> {
    vec![Validation::new(
        "false".to_owned(),
        "autoscaler-operator does not own this object: it makes and ends no machines",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_other_projects_objects_what_tandem_writes_is_named_and_all_else_refused() {
        let text = |all: Vec<Validation>| all.into_iter().map(|it| it.expression + "\n").collect::<String>();
        let claims = text(node_claims());
        for name in [NODEPOOL_LABEL, NODEPOOL_NAMESPACE_LABEL, CLUSTER_ANNOTATION] {
            assert!(claims.contains(&format!("'{name}'")), "{claims}");
        }
        assert!(claims.contains("in ['CREATE', 'DELETE']") && !claims.contains("'UPDATE'"), "{claims}");
        let machines = text(cluster_api());
        for name in [DELETE_MACHINE_ANNOTATION, EXCLUDE_DRAINING_ANNOTATION] {
            // In what is, and in what was.
            assert_eq!(machines.matches(name).count(), 2, "{machines}");
        }
        assert!(machines.starts_with("request.operation == 'UPDATE' && "), "{machines}");
        assert_eq!(text(no_machines()), "false\n");
    }

    #[test]
    fn each_refusal_says_whose_the_object_is_not() {
        for Validation { message, .. } in [node_claims(), cluster_api(), no_machines()].concat() {
            assert!(message.contains("-operator does not own "), "{message}");
        }
    }
}

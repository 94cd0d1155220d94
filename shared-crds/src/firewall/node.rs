//! What the operator that makes nodes, and kubelets, may write to Nodes.

use super::{Validation, all_in, list, map_of};
use crate::names::{
    KUBELETS_LABELS, LEFT_OVER_ANNOTATION, LOCATION_LABELS, MACHINE_LABEL, MEMBER_LABEL,
    MEMBER_NAMESPACE_LABEL, NODE_FINALIZER, TEMPLATE_APPLIED_ANNOTATION, TEMPLATE_HASH_ANNOTATION,
};

/// The key is one of an annotation or a finalizer of Tandem.
const OURS: &str = "k.startsWith('tandem.dev/')";

/// The write makes the Node one of a pool: after it the Node has all by which the operator knows its pool and its machine, and
/// holds its deletion.
fn joins() -> String {
    let labels = map_of("object", "labels");
    let all = list(&[MEMBER_LABEL, MEMBER_NAMESPACE_LABEL, MACHINE_LABEL]);
    let finalizer = format!("'{NODE_FINALIZER}' in object.metadata.?finalizers.orValue([])");
    format!("({all}.all(l, l in {labels}) && {finalizer})")
}

fn is_member(of: &str) -> String {
    format!("('{MEMBER_LABEL}' in {})", map_of(of, "labels"))
}

/// The Node is what is left of a machine that was deleted, and about to be deleted too.
fn is_left_over(of: &str) -> String {
    format!("({of}.metadata.?annotations[?'{LEFT_OVER_ANNOTATION}'].orValue('') == 'true')")
}

/// What must hold of a change of a Node by the operator that makes nodes.
pub fn nodes() -> Vec<Validation> {
    let control_plane =
        |of: &str| format!("('node-role.kubernetes.io/control-plane' in {})", map_of(of, "labels"));
    let mut validations = vec![
        Validation::new(
            format!(
                "!((object != null && {}) || (oldObject != null && {}))",
                control_plane("object"),
                control_plane("oldObject")
            ),
            "nodepool-operator does not own this Node: it runs a control plane",
        ),
        Validation::new(
            format!("request.operation != 'CREATE' || {}", is_member("object")),
            "nodepool-operator does not own this Node: it belongs to no NodePool",
        ),
        Validation::new(
            // A node that registered while its machine was being ended goes without ever becoming a member.
            format!(
                "request.operation != 'DELETE' || {} || {}",
                is_member("oldObject"),
                is_left_over("oldObject")
            ),
            "nodepool-operator does not own this Node: it belongs to no NodePool",
        ),
    ];
    validations.extend(strangers());
    validations
}

/// What must hold of a change of a Node that belongs to no pool: it makes the Node one of a pool or says that it is left over, and
/// changes nothing else.
fn strangers() -> Vec<Validation> {
    let stranger = |expression: &str, message: &str| {
        let others = format!("request.operation != 'UPDATE' || {}", is_member("oldObject"));
        Validation::new(
            format!("{others} || ({expression})"),
            &format!("nodepool-operator does not own {message}"),
        )
    };
    let joins = joins();
    let (labels, old_labels) = (map_of("object", "labels"), map_of("oldObject", "labels"));
    let (annotations, old_annotations) =
        (map_of("object", "annotations"), map_of("oldObject", "annotations"));
    let fixed = list(&[&KUBELETS_LABELS[..], &LOCATION_LABELS[..]].concat());
    // The template of the pool may have other values for labels of the Node, and for annotations.
    let overwritten = format!("({joins} && k in {labels} && !(k in {fixed}))");
    let kept_labels = format!(
        "{} && {labels}.all(k, {joins} || k in {old_labels})",
        all_in(&old_labels, &labels, &overwritten)
    );
    let own = list(&[TEMPLATE_HASH_ANNOTATION, TEMPLATE_APPLIED_ANNOTATION, LEFT_OVER_ANNOTATION]);
    let written = format!("k in {own} || ({joins} && !{OURS})");
    let kept_annotations = format!(
        "{} && {old_annotations}.all(k, k in {annotations})",
        all_in(&annotations, &old_annotations, &written)
    );
    let finalizers = |of: &str| format!("{of}.metadata.?finalizers.orValue([])");
    let others = |of: &str| format!("{}.filter(f, !{joins} || f != '{NODE_FINALIZER}')", finalizers(of));
    let same = |field: &str| format!("object.{field} == oldObject.{field}");
    let taints = |of: &str| format!("{of}.?spec.taints.orValue([])");
    let spec = ["unschedulable", "providerID", "podCIDRs", "configSource"];
    let spec = spec.map(|field| same(&format!("?spec.{field}"))).join(" && ");
    vec![
        stranger(
            &format!("{joins} || {}", is_left_over("object")),
            "this Node: it belongs to no NodePool, and this write does not make it a node of one",
        ),
        stranger(&kept_labels, "labels of a Node that belongs to no NodePool"),
        stranger(&kept_annotations, "annotations of a Node that belongs to no NodePool"),
        stranger(
            &format!("{} == {}", others("object"), others("oldObject")),
            "finalizers of others of a Node that belongs to no NodePool",
        ),
        stranger(&same("metadata.?ownerReferences"), "owners of a Node that belongs to no NodePool"),
        stranger(&spec, "the spec of a Node that belongs to no NodePool"),
        stranger(
            &format!(
                "{old}.all(t, t in {new}) && ({joins} || {new} == {old})",
                old = taints("oldObject"),
                new = taints("object")
            ),
            "taints of a Node that belongs to no NodePool",
        ),
    ]
}

/// What must hold when a kubelet registers its Node or changes it.
pub fn kubelets() -> Vec<Validation> {
    // A Node that is being registered was nothing before.
    let before = |part: &str, none: &str| {
        format!("(oldObject == null ? dyn({none}) : dyn(oldObject.metadata.?{part}.orValue({none})))")
    };
    let (annotations, old) = (map_of("object", "annotations"), before("annotations", "{}"));
    let others = format!("!{OURS}");
    let finalizers = |of: &str| format!("{of}.filter(k, {OURS})");
    vec![
        Validation::new(
            format!("{} && {}", all_in(&annotations, &old, &others), all_in(&old, &annotations, &others)),
            "a kubelet does not own annotations of tandem.dev: the NodePool operator decides from them",
        ),
        Validation::new(
            format!(
                "{} == {}",
                finalizers("object.metadata.?finalizers.orValue([])"),
                finalizers(&before("finalizers", "[]"))
            ),
            "a kubelet does not own finalizers of tandem.dev: they drain the node before it goes",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expressions of those whose message contains `said`.
    fn expressions(validations: &[Validation], said: &str) -> Vec<String> {
        let about = |it: &&Validation| it.message.contains(said);
        validations.iter().filter(about).map(|it| it.expression.clone()).collect()
    }

    #[test]
    fn a_node_of_no_pool_is_deleted_only_when_it_shows_that_its_machine_is_gone() {
        let all = expressions(&nodes(), "it belongs to no NodePool");
        let of = |operation: &str| {
            let start = format!("request.operation != '{operation}' || ");
            all.iter().find_map(|it| it.strip_prefix(&start)).unwrap().to_owned()
        };
        let deletion = of("DELETE");
        assert!(deletion.contains(LEFT_OVER_ANNOTATION) && deletion.contains(MEMBER_LABEL), "{deletion}");
        assert!(!of("CREATE").contains(LEFT_OVER_ANNOTATION), "no Node is made to be deleted");
    }

    #[test]
    fn a_node_that_joins_a_pool_gets_what_the_operator_records_and_keeps_the_rest() {
        let all = strangers();
        let joins = joins();
        for name in [MEMBER_LABEL, MEMBER_NAMESPACE_LABEL, MACHINE_LABEL, NODE_FINALIZER] {
            assert!(joins.contains(&format!("'{name}'")), "{joins}");
        }
        for what in ["labels", "annotations", "finalizers", "owners", "the spec", "taints"] {
            let found = expressions(&all, &format!("does not own {what} of"));
            assert_eq!(found.len(), 1, "{what}");
            // Members are changed as before.
            let others = format!("request.operation != 'UPDATE' || {} || (", is_member("oldObject"));
            assert!(found[0].starts_with(&others) && found[0].ends_with(')'), "{}", found[0]);
        }
        let labels = &expressions(&all, "own labels of")[0];
        for label in KUBELETS_LABELS.into_iter().chain(LOCATION_LABELS) {
            assert!(labels.contains(&format!("'{label}'")), "{labels}");
        }
    }

    #[test]
    fn a_kubelet_that_registers_its_node_is_asked_as_one_that_changes_it() {
        let all = kubelets();
        assert_eq!(all.len(), 2);
        for Validation { expression, .. } in all {
            assert!(expression.contains("oldObject == null ? dyn("), "{expression}");
            assert!(!expression.replace("dyn(oldObject.metadata", "").contains("oldObject.metadata"));
        }
    }
}

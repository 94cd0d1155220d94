//! Which pods matter for a node's removal.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// The annotation of a pod that the kubelet runs from a file.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Whether the removal of the node must wait for this pod. `DaemonSet` pods would come back, mirror pods only mirror
/// what the kubelet runs from a file, and finished pods run nothing.
pub fn blocks_removal(pod: &Pod) -> bool {
    !is_bound_to_its_node(pod) && !is_finished(pod)
}

/// Whether the pod's containers have ended, and it is being deleted.
pub fn is_finished_and_ending(pod: &Pod) -> bool {
    is_finished(pod) && pod.metadata.deletion_timestamp.is_some() && !is_bound_to_its_node(pod)
}

/// The names of the claims whose volumes the pod uses.
pub fn claims(pod: &Pod) -> impl Iterator<Item = String> {
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(move |volume| {
        let of_claim = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone());
        // The claim that is made for it has both names.
        of_claim.or_else(|| volume.ephemeral.as_ref().map(|_| format!("{pod_name}-{}", volume.name)))
    })
}

/// Whether the pod's containers have ended.
pub fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether the pod belongs to the node and not to a workload: it is part of a `DaemonSet`, or the kubelet runs it from
/// a file.
pub fn is_bound_to_its_node(pod: &Pod) -> bool {
    let of_daemon_set = pod.metadata.owner_references.iter().flatten().any(is_daemon_set);
    let mirror = pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(MIRROR_ANNOTATION));
    of_daemon_set || mirror
}

/// Whether the owner is a `DaemonSet` that controls the pod.
pub fn is_daemon_set(owner: &OwnerReference) -> bool {
    owner.controller == Some(true) && owner.kind == "DaemonSet"
}

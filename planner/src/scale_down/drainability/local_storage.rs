//! Pods that keep data on their node (local storage).

use k8s_openapi::api::core::v1::Volume;

use super::blockers::{Blocker, BlockingPodReason};
use crate::input::pod_info::PodInfo;

/// Cluster Autoscaler's annotation: names of local volumes that may be lost, separated by commas without spaces.
const DISPENSABLE: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";

/// Blocks a pod with a local volume that the annotation does not name.
pub(super) fn blocker(pod: &PodInfo) -> Option<Blocker> {
    let volumes = pod.spec().into_iter().flat_map(|spec| spec.volumes.iter().flatten());
    let dispensable = pod.annotation(DISPENSABLE).unwrap_or_default();
    let is_kept =
        |volume: &&Volume| is_local(volume) && !dispensable.split(',').any(|name| name == volume.name);
    let volume = volumes.into_iter().find(is_kept)?;
    let why = format!("keeps data on the node (volume {})", volume.name);
    Some(Blocker::lasting(BlockingPodReason::LocalStorageRequested, why))
}

/// `hostPath` volumes, and `emptyDir` volumes unless they are in memory, where no data is expected to survive.
fn is_local(volume: &Volume) -> bool {
    volume.host_path.is_some()
        || volume.empty_dir.as_ref().is_some_and(|dir| dir.medium.as_deref() != Some("Memory"))
}

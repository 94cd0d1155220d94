//! What is kept of the annotations of nodes and pods.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Prefixes of the annotations that the planner reads.
const READ_ANNOTATIONS: [&str; 4] =
    ["tandem.dev/", "kubernetes.io/config.mirror", "cluster-autoscaler.kubernetes.io/", "karpenter.sh/"];

/// Drops the annotations that the planner does not read.
pub(super) fn keep_read(metadata: &mut ObjectMeta) {
    let is_read = |key: &str| READ_ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix));
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| is_read(key));
    }
}

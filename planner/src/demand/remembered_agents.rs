//! The agents that pools remember, as selectors of other pods see them: a pool without nodes has no pods that show which
//! anti-affinity keeps others away from its nodes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::input::observed::Observed;
use crate::input::pod_info::{Labels, PodInfo};

/// A pod for each namespace and labels that remembered agents have. It has no constraints of its own, since none are remembered: those
/// of a `DaemonSet` are in its template.
pub(super) fn pods(observed: &Observed) -> Vec<PodInfo> {
    let known = observed.pools.iter().filter_map(|pool| observed.remembered(pool)?.discovered.as_ref());
    let agents = known.flat_map(|known| &known.pods);
    let subjects: BTreeSet<(&str, &Labels)> =
        agents.map(|agent| (agent.namespace.as_str(), &agent.labels)).collect();
    subjects.into_iter().map(|(namespace, labels)| pod(namespace, labels)).collect()
}

fn pod(namespace: &str, labels: &Labels) -> PodInfo {
    let metadata = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        labels: Some(labels.clone()),
        ..ObjectMeta::default()
    };
    PodInfo::from(Pod { metadata, ..Pod::default() })
}

//! How much of each node its pods request.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;

use super::counting::{Counted, CountedTemplate, CountingRules};
use super::utilization::Utilization;
use crate::demand::Demand;
use crate::index::{Indexed, PassNodeIndex, PodIndex};
use crate::input::last_template::LastTemplate;
use crate::input::pod_info::PodInfo;
use crate::pools;
use crate::resources::{Amounts, ResourceNames};
use crate::steps;

/// The requests of the pods on a node, relative to its allocatable resources.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    /// The utilization, or what cannot be read of the node.
    pub utilization: Result<Utilization, String>,
    /// Pods whose requests or selectors cannot be read.
    pub unreadable: Vec<PodIndex>,
}

/// What the pods of a node ask for.
#[derive(Clone, Default)]
struct Asked {
    /// Those that count.
    used: Amounts,
    /// Those whose part of the node is left out.
    reserved: Amounts,
    /// Pods whose requests or selectors cannot be read.
    unreadable: Vec<PodIndex>,
}

/// The usage of every node, of the pods that count by its `rules`. Where daemons are left out, they are missing from what
/// is requested and from what the node has, as in Cluster Autoscaler.
pub(crate) fn usage(
    all_nodes: &[Arc<Node>],
    rules: &Indexed<PassNodeIndex, CountingRules>,
    all_pods: &[Arc<PodInfo>],
    demand: &Demand,
    now: Timestamp,
    names: &mut ResourceNames,
) -> Indexed<PassNodeIndex, Usage> {
    steps::count(all_nodes.len() + all_pods.len());
    let mut asked: Indexed<PassNodeIndex, Asked> = vec![Asked::default(); all_nodes.len()].into();
    let mut last = LastTemplate::default();
    for (pod, placed) in all_pods.iter().zip(&demand.placed) {
        let Some((class, node)) = *placed else { continue };
        let request = &demand.classes[class].request;
        match rules[node].counted(pod, last.of(pod, CountedTemplate::of), now) {
            Counted::Used => asked[node].used.give(request, 1),
            Counted::Reserved => asked[node].reserved.give(request, 1),
            Counted::Not => {}
        }
    }
    for &pod in &demand.misread {
        if let Some((_, node)) = demand.placed[pod] {
            asked[node].unreadable.push(pod);
        }
    }
    let mut usage = |(node, asked): (&Arc<Node>, Asked)| {
        let Asked { used, reserved, unreadable } = asked;
        let utilization = pools::allocatable(node, names).map(|mut allocatable| {
            let gpus = names.gpus_of(&allocatable);
            allocatable.take(&reserved, 1);
            Utilization::of(&used, &allocatable, &gpus)
        });
        Usage {
            utilization: utilization.map_err(|problem| format!("{problem} in status.allocatable")),
            unreadable,
        }
    };
    all_nodes.iter().zip(asked).map(&mut usage).collect()
}

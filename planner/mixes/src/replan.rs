//! Passes over a large cluster in which little changes: every pass finds one new pending pod among those that run.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use shared_crds::v1alpha1::Expander;

use crate::objects::{
    self, AFFINITY_LABEL, ANTI_AFFINITY_LABEL, HOST_KEY, MIB, SPREAD_LABEL, Size, ZONE_KEY, ZONES, labels,
};
use crate::{Keep, Mix};

/// Nodes of 4 cores and 16 GiB.
const NODE: Size = Size { cpu: 4000, memory: 16_384 * MIB };
/// Total requests of the pods of one node: three quarters of it.
const ASKED: Size = Size { cpu: NODE.cpu / 4 * 3, memory: NODE.memory / 4 * 3 };
/// On one node in ten the pods request half as much, so that it is a candidate for scale-down in every pass.
const IDLE_EVERY: usize = 10;
/// The round in which every node gets the pod of a `DaemonSet`.
const DAEMON_ROUND: usize = 2;
/// Workloads whose pods spread.
const VALUES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// A cluster, and the pods that are added to it one by one.
#[derive(Clone, Debug)]
pub struct Replan<P> {
    /// The cluster without the new pod.
    pub cluster: Mix<P>,
    request: Size,
}

/// The result that the planner must have for a new pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedPlacement {
    /// An existing node has room for it.
    Fits,
    /// It needs a new node.
    NewNode,
}

impl<P> Replan<P> {
    /// A cluster of `nodes` nodes in three zones with `pods` pods, the new one of each pass counted. On every node one
    /// pod wants a host of its own and one is a `DaemonSet`'s, and every workload that spreads is spread evenly.
    pub fn new(nodes: usize, pods: usize, keep: Keep<'_, P>) -> Self {
        let running = pods.saturating_sub(1);
        let on_each = running.div_ceil(nodes.max(1)).max(1) as u64;
        let request = Size { cpu: ASKED.cpu / on_each, memory: ASKED.memory / on_each / MIB * MIB };
        let capacity = objects::capacity(NODE, 110);
        let mut pools: Vec<_> = ZONES.iter().map(|zone| objects::pool(zone, Some(zone), &capacity)).collect();
        for (zone, pool) in pools.iter_mut().enumerate() {
            pool.spec.replicas = i32::try_from((nodes + ZONES.len() - 1 - zone) / ZONES.len()).ok();
        }
        let name = |at: usize| format!("node-{at:05}");
        let cluster = Mix {
            now: objects::now(),
            nodes: (0..nodes)
                .map(|at| Arc::new(objects::node(&pools[at % ZONES.len()], &name(at))))
                .collect(),
            pods: (0..running)
                .map(|at| {
                    let (round, node) = (at / nodes, at % nodes);
                    if round == DAEMON_ROUND {
                        return Arc::new(keep(objects::daemon(&format!("node-agent-{at:06}"), &name(node))));
                    }
                    let half = if node % IDLE_EVERY == 0 { 2 } else { 1 };
                    let request = Size { cpu: request.cpu / half, memory: request.memory / half };
                    let zone = ZONES[node % ZONES.len()];
                    Arc::new(keep(objects::on(resident(round, at, zone, request), &name(node))))
                })
                .collect(),
            daemon_sets: vec![Arc::new(objects::daemon_set())],
            autoscalers: vec![objects::autoscaler(Expander::default(), None)],
            pools: pools.into_iter().map(Arc::new).collect(),
        };
        Self { cluster, request }
    }

    /// The new pod of this pass, of each kind in turn, with the expected result.
    pub fn newcomer(&self, pass: usize) -> (Pod, ExpectedPlacement) {
        let request = Size { cpu: self.request.cpu.min(500), memory: self.request.memory.min(1024 * MIB) };
        let named = |kind: &str, labels| objects::pod(&format!("new-{pass:06}"), kind, labels, request);
        let spread = labels([(SPREAD_LABEL, VALUES[pass % VALUES.len()])]);
        match pass % 5 {
            0 => (named("plain", spread), ExpectedPlacement::Fits),
            1 => (
                objects::spread(named("zone-spread", spread.clone()), ZONE_KEY, spread),
                ExpectedPlacement::Fits,
            ),
            2 => (
                objects::spread(named("host-spread", spread.clone()), HOST_KEY, spread),
                ExpectedPlacement::Fits,
            ),
            3 => {
                let near = labels([(AFFINITY_LABEL, ZONES[pass % ZONES.len()])]);
                (objects::near_its_like(named("zone-near", near), ZONE_KEY), ExpectedPlacement::Fits)
            }
            // Every host has one already.
            _ => (
                alone(named("host-apart", labels([(ANTI_AFFINITY_LABEL, "nginx")]))),
                ExpectedPlacement::NewNode,
            ),
        }
    }
}

/// The pod that every node has in this round: first the one that wants a host of its own, then in turn pods that want to
/// be near their like (one workload for each zone; nodes go round the zones, so each is in one), and others.
fn resident(round: usize, at: usize, zone: &str, request: Size) -> Pod {
    let named = |kind: &str, labels| objects::pod(&format!("{kind}-{at:06}"), kind, labels, request);
    match round {
        0 => alone(named("host-apart", labels([(ANTI_AFFINITY_LABEL, "nginx")]))),
        _ if round % 5 == 1 => named("zone-near", labels([(AFFINITY_LABEL, zone)])),
        _ => named("plain", labels([(SPREAD_LABEL, VALUES[round % VALUES.len()])])),
    }
}

fn alone(pod: Pod) -> Pod {
    objects::apart_from_its_like(pod, HOST_KEY)
}

//! The cases of Cluster Autoscaler's benchmarks: the estimator's (`pkg/estimator/binpacking_estimator_test.go`) and those
//! of a whole loop (`pkg/core/bench/benchmark_runonce_test.go`), each with the numbers that the peer asserts.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use shared_crds::v1alpha1::{Expander, ScaleDownSpec};

use crate::objects::{self, Size, labels};
use crate::{Keep, Mix};

/// Pods of the estimator's case that ask for 50m, and those that ask for 95m.
const SMALL: (usize, Size) = (50_000, Size { cpu: 50, memory: 100 });
const LARGE: (usize, Size) = (1000, Size { cpu: 95, memory: 190 });
/// Nodes of the cases of a whole loop.
const WHOLE_NODE: Size = Size { cpu: 10_000, memory: 10_000 };

fn like(kind: &str, count: usize, request: Size) -> impl Iterator<Item = Pod> + '_ {
    (0..count).map(move |at| objects::pod(&format!("{kind}-{at:06}"), kind, labels([("app", kind)]), request))
}

/// 51,000 pods of two sizes on nodes of 1,000m; every number is multiplied by `percent`/100.
pub fn estimator<P>(percent: usize, keep: Keep<'_, P>) -> Mix<P> {
    let scaled = |count: usize| count * percent / 100;
    let pods = like("small", scaled(SMALL.0), SMALL.1).chain(like("large", scaled(LARGE.0), LARGE.1));
    let node = objects::capacity(Size { cpu: 1000, memory: 5000 }, 100);
    objects::from_zero(vec![objects::pool("pool", None, &node)], Expander::default(), pods.map(keep))
}

/// The fewest nodes that have the cpu of [`estimator`]'s pods: what the peer asserts, 2,595 at 100 percent.
pub fn estimator_nodes(percent: usize) -> usize {
    (50 * (SMALL.0 * percent / 100) + 95 * (LARGE.0 * percent / 100)).div_ceil(1000)
}

/// 50 pending pods for each of `nodes` nodes that do not exist yet.
pub fn run_once_up<P>(nodes: usize, keep: Keep<'_, P>) -> Mix<P> {
    let request = Size { cpu: WHOLE_NODE.cpu / 50, memory: WHOLE_NODE.memory / 50 };
    let pool = objects::pool("pool", None, &objects::capacity(WHOLE_NODE, 110));
    objects::from_zero(vec![pool], Expander::default(), like("web", nodes * 50, request).map(keep))
}

/// `nodes` nodes, each with 40 pods of a hundredth of a node: three of five can go, when the pods of all of them are
/// packed onto the rest. Nodes go at once and any number together, as the peer's benchmark sets it.
pub fn run_once_down<P>(nodes: usize, keep: Keep<'_, P>) -> Mix<P> {
    let mut pool = objects::pool("pool", None, &objects::capacity(WHOLE_NODE, 110));
    pool.spec.replicas = i32::try_from(nodes).ok();
    let name = |at: usize| format!("node-{at:05}");
    let request = Size { cpu: WHOLE_NODE.cpu / 100, memory: WHOLE_NODE.memory / 100 };
    let pods = like("web", nodes * 40, request).enumerate().map(|(at, mut pod)| {
        let safe = labels([("cluster-autoscaler.kubernetes.io/safe-to-evict", "true")]);
        pod.metadata.annotations = Some(safe);
        Arc::new(keep(objects::on(pod, &name(at % nodes))))
    });
    let at_once =
        ScaleDownSpec { unneeded_seconds: 0, delay_after_add_seconds: 0, ..ScaleDownSpec::default() };
    Mix {
        now: objects::now(),
        nodes: (0..nodes).map(|at| Arc::new(objects::node(&pool, &name(at)))).collect(),
        pods: pods.collect(),
        daemon_sets: Vec::new(),
        pools: vec![Arc::new(pool)],
        autoscalers: vec![objects::autoscaler(Expander::default(), Some(at_once))],
    }
}

//! What the peers' own benchmarks have shown: figures only, to stand beside ours.
//!
//! Their benchmarks time the solver on objects in memory. Ours time the whole pass, from objects to named decisions.

use super::case::Mix;

/// A figure of a peer.
pub(crate) struct Published {
    pub(crate) mix: Mix,
    /// The peer, and where it was measured.
    pub(crate) who: &'static str,
    pub(crate) pods: usize,
    pub(crate) nodes: Option<usize>,
    pub(crate) pods_per_second: Option<f64>,
    pub(crate) milliseconds: Option<f64>,
}

/// Karpenter v1.14.1, its own benchmark run on two cores of this kind.
pub(crate) const HERE: &str = "Karpenter v1.14.1, run on 2 such cores";
/// kubernetes-sigs/karpenter, pull request 2486, the run before the change.
const M3: &str = "Karpenter #2486, published, Apple M3 Pro";
/// kubernetes-sigs/karpenter, pull request 1938.
const EARLIER: &str = "Karpenter #1938, published";
/// kubernetes-sigs/cluster-autoscaler, `BenchmarkBinpackingEstimate` and `BenchmarkRunOnce…`: counts, and no times.
const ASSERTED: &str = "Cluster Autoscaler, asserted, no time published";
/// The objective of Cluster Autoscaler's FAQ for up to 1,000 nodes with 30 pods each, without pod affinity.
const OBJECTIVE: &str = "Cluster Autoscaler, objective for a decision";

const fn karpenter(who: &'static str, pods: usize, nodes: Option<usize>, per_second: f64) -> Published {
    Published { mix: Mix::Karpenter, who, pods, nodes, pods_per_second: Some(per_second), milliseconds: None }
}

const fn asserted(mix: Mix, pods: usize, nodes: usize) -> Published {
    Published { mix, who: ASSERTED, pods, nodes: Some(nodes), pods_per_second: None, milliseconds: None }
}

/// All of them.
pub(crate) const PUBLISHED: [Published; 13] = [
    karpenter(HERE, 1000, None, 350.0),
    karpenter(HERE, 2000, None, 350.0),
    karpenter(HERE, 10_000, Some(2000), 291.0),
    karpenter(HERE, 20_000, Some(4000), 225.0),
    karpenter(M3, 1000, None, 1287.0),
    karpenter(M3, 5000, None, 1337.0),
    karpenter(M3, 10_000, None, 1233.0),
    karpenter(M3, 20_000, None, 990.0),
    karpenter(EARLIER, 20_000, Some(4000), 560.0),
    asserted(Mix::ClusterAutoscaler, 51_000, 2595),
    asserted(Mix::RunOnceUp, 50_000, 1000),
    asserted(Mix::RunOnceDown, 80_000, 1200),
    Published {
        mix: Mix::Replan,
        who: OBJECTIVE,
        pods: 30_000,
        nodes: Some(1000),
        pods_per_second: None,
        milliseconds: Some(60_000.0),
    },
];

//! The mix of Karpenter's scheduling benchmark (`pkg/controllers/provisioning/scheduling/scheduling_benchmark_test.go`):
//! five kinds of pods in equal parts, random requests, from zero nodes.
//!
//! As there, the label a pod has and the label its spread constraint counts are drawn apart, so that most of them
//! spread over pods other than themselves. What differs: the peer has one pool with 400 instance types (1 to 400 cores,
//! 2 GiB and 10 pods a core) in no zone at first; here a pool is one type in one zone, so there are eight sizes of that
//! shape in each of three zones.

use shared_crds::v1alpha1::Expander;

use crate::objects::{
    self, AFFINITY_LABEL, ANTI_AFFINITY_LABEL, HOST_KEY, MIB, SPREAD_LABEL, Size, ZONE_KEY, ZONES, labels,
};
use crate::random::Random;
use crate::{Keep, Mix};

const CORES: [u64; 8] = [2, 4, 8, 16, 32, 48, 64, 96];
const CPU: [u64; 5] = [100, 250, 500, 1000, 1500];
const MEMORY: [u64; 6] = [100, 256, 512, 1024, 2048, 4096];
const VALUES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
/// The peer seeds its own with the same number.
const SEED: u64 = 42;

/// `count` pending pods: a fifth each without constraints (and what is left by the division), spread over zones, spread
/// over hosts, near their like in one zone, and one to a host.
///
/// The pools grow by fewest nodes, since that is what is asserted: no more nodes than the pods that want a host each.
pub fn karpenter<P>(count: usize, keep: Keep<'_, P>) -> Mix<P> {
    let mut random = Random::seeded(SEED);
    let fifth = count / 5;
    let pods = (0..count).map(|at| {
        let request = Size { cpu: random.pick(&CPU), memory: random.pick(&MEMORY) * MIB };
        let value = random.pick(&VALUES);
        let counted = labels([(SPREAD_LABEL, random.pick(&VALUES))]);
        let named = |kind: &str, labels| objects::pod(&format!("{kind}-{at:06}"), kind, labels, request);
        let spread = labels([(SPREAD_LABEL, value)]);
        match at.checked_div(fifth) {
            Some(0) => objects::spread(named("zone-spread", spread), ZONE_KEY, counted),
            Some(1) => objects::spread(named("host-spread", spread), HOST_KEY, counted),
            Some(2) => {
                objects::near_its_like(named("zone-near", labels([(AFFINITY_LABEL, value)])), ZONE_KEY)
            }
            Some(3) => {
                let alone = named("host-apart", labels([(ANTI_AFFINITY_LABEL, "nginx")]));
                objects::apart_from_its_like(alone, HOST_KEY)
            }
            _ => named("plain", spread),
        }
    });
    let pools = ZONES.iter().flat_map(|zone| {
        CORES.map(|cores| {
            let size = Size { cpu: cores * 1000, memory: cores * 2048 * MIB };
            objects::pool(&format!("{zone}-{cores:03}"), Some(zone), &objects::capacity(size, cores * 10))
        })
    });
    objects::from_zero(pools.collect(), Expander::LeastNodes, pods.map(keep))
}

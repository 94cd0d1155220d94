//! Property tests: with constant input, no pool scales up after it has scaled down, or the other way round, however
//! much time passes: the pods stay as they are, decisions are carried out, time advances.

use std::cmp::Ordering;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::json;

use super::properties::{carry_out, cluster};
use crate::fixtures::{Read, TestCluster};
use crate::{Observed, ScalingPlan, plan};

/// The direction of each pool.
fn directions(plan: &ScalingPlan) -> Vec<Ordering> {
    plan.pools.iter().map(|decision| decision.desired.cmp(&decision.current)).collect()
}

/// Whether a pool's replicas were within its bounds. A correction of what another writer set comes from the input, not
/// from the planner.
fn was_within(plan: &ScalingPlan, at: usize) -> bool {
    let spec = &plan.pools[at].object.spec;
    spec.replicas == Some(spec.effective_replicas())
}

/// `observed`, with every node Ready, open to pods and matching its pool's template. A node that does not match is
/// removed to make room for one that does if the pool may not scale up: one down and one up, which is no oscillation,
/// as the other property shows.
fn like_new(mut observed: Observed) -> Observed {
    let pools = observed.pools.clone();
    for node in &mut observed.nodes {
        let node = Arc::make_mut(node);
        let of = crate::input::nodes::pool_of(node).map(|(_, name)| name.to_owned());
        let pool = pools.iter().find(|pool| pool.metadata.name == of);
        let template = pool.map(|pool| pool.spec.template.spec.clone()).unwrap_or_default();
        let spec = node.spec.get_or_insert_default();
        spec.unschedulable = None;
        spec.taints = Some(template.taints.iter().map(Taint::from).collect());
        let status = node.status.get_or_insert_default();
        status.allocatable = Some(template.capacity);
        status.conditions.iter_mut().flatten().for_each(|condition| condition.status = "True".to_owned());
    }
    observed
}

/// A seed of the property below. While pool `gpu` is starting, the pod that fits both pools is planned onto `n0`, so
/// `plain` scales up; once all nodes are up, that pod is planned onto the node of `gpu`, and the new node seems
/// unneeded.
#[test]
fn a_pool_that_grew_for_pending_pods_does_not_shrink_before_they_are_bound() {
    let taint = json!([{ "key": "gpu", "effect": "NoSchedule" }]);
    let tolerates = json!({ "spec": { "tolerations": [{ "key": "gpu", "operator": "Exists" }] } });
    let mut observed = TestCluster::eager()
        .pool("gpu", json!({ "spec": { "replicas": 1, "maxReplicas": 1, "template": { "spec": { "taints": taint } } } }))
        .pool("plain", json!({ "spec": { "replicas": 2 } }))
        .node("plain", "n0", json!({}))
        .pending("choice", 1, "3", &tolerates)
        .pending("none", 2, "2500m", &json!({}))
        .observed;
    let before = plan(&observed);
    assert_eq!(before.results(), ["fits n0", "fits upcoming ns/plain", "grows ns/plain"]);
    carry_out(&before, &mut observed);
    let after = plan(&observed);
    assert_eq!(after.results(), ["fits zgpu-0", "fits n0", "fits zplain-1"]);
    assert_eq!((after.desired("gpu"), after.desired("plain")), (1, 3));
    assert_eq!(after.verdict("zplain-2"), "NeededByPendingPods");
    // Once bound, they are no longer pending.
    observed.pods.clear();
    let bound = TestCluster { observed }
        .running("choice", "zgpu-0", "3", json!({}))
        .running("none-0", "n0", "2500m", json!({}))
        .running("none-1", "zplain-1", "2500m", json!({}));
    assert_eq!(bound.plan().desired("plain"), 2);
}

fn after(observed: &mut Observed, seconds: i64) {
    observed.now = observed.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_pool_goes_one_way_only_while_the_input_is_constant(
        observed in cluster().prop_map(like_new),
        steps in prop::collection::vec(0_i64..900, 1..12),
    ) {
        let mut observed = observed;
        let mut last = plan(&observed);
        let counts = |(at, direction)| if was_within(&last, at) { direction } else { Ordering::Equal };
        let mut gone: Vec<_> = directions(&last).into_iter().enumerate().map(counts).collect();
        carry_out(&last, &mut observed);
        for step in steps {
            after(&mut observed, step);
            last = plan(&observed);
            for (at, direction) in directions(&last).into_iter().enumerate().filter(|(_, d)| d.is_ne()) {
                let decision = &last.pools[at];
                prop_assert!(
                    gone[at].is_eq() || gone[at] == direction,
                    "{} to {} after {:?}: {}", decision.current, decision.desired, gone[at], decision.message
                );
                gone[at] = direction;
            }
            carry_out(&last, &mut observed);
        }
    }

    #[test]
    fn every_cluster_comes_to_rest_and_stays_at_rest_however_much_time_passes(
        observed in cluster(),
        steps in prop::collection::vec(0_i64..900, 40),
    ) {
        let mut observed = observed;
        for (at, step) in steps.into_iter().enumerate() {
            let plan = plan(&observed);
            let moving = directions(&plan).into_iter().any(Ordering::is_ne);
            prop_assert!(at < 30 || !moving, "still moving in pass {}", at);
            carry_out(&plan, &mut observed);
            after(&mut observed, step);
        }
    }
}

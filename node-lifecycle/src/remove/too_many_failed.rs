//! Whether so many nodes have failed that none is replaced for it.
//!
//! A node that is not Ready may be dead, or cut off with its pods running, or everything may be well and only the control
//! plane's view of it be gone. A machine that is not listed may be gone, or its provider may list a part of its machines. Nothing
//! here tells which. So a node is replaced only after a time, only while few nodes have failed in either way, and its pods are
//! given up only when the provider has confirmed the end of its machine.

use shared_crds::NodePool;

use crate::assess::health;
use crate::assess::membership::Member;
use crate::assess::node_states::NodeReadiness;
use crate::{ClusterReadiness, Observed};

/// Why no node is replaced for its state; `None` where one may be. `wanted` is the number of nodes that the pool should have.
pub(crate) fn brake(
    observed: &Observed,
    pool: &NodePool,
    members: &[Member],
    wanted: usize,
) -> Option<String> {
    let spec = health::spec(pool);
    let is_unhealthy = |member: &&Member| {
        member.readiness != NodeReadiness::Starting
            && health::has_machine(member)
            && member.health.is_unhealthy()
    };
    let unhealthy: Vec<&Member> = members.iter().filter(is_unhealthy).collect();
    Failed::count(members, &unhealthy).brake(observed.cluster_readiness, wanted, spec.bound(wanted))
}

/// How many nodes count against `spec.repair.maxUnhealthy`, for however short a time they have failed: those that stay, and those
/// that leave and whose machine has not ended yet, whichever way they leave. One that is only drained may be repaired, too.
struct Failed {
    /// Nodes that are not Ready and whose machine their provider does not list.
    unlisted: usize,
    /// Unhealthy nodes, but those.
    unhealthy: usize,
}

impl Failed {
    fn count(members: &[Member], unhealthy: &[&Member]) -> Self {
        let counts = |member: &Member| member.leaving.is_none_or(|it| !it.is_out_of_service());
        let is_unlisted = |member: &Member| member.has_finalizer && member.lost.is_some();
        let unhealthy = unhealthy.iter().filter(|member| counts(member) && !is_unlisted(member));
        Self {
            unlisted: members.iter().filter(|member| counts(member) && is_unlisted(member)).count(),
            unhealthy: unhealthy.count(),
        }
    }

    /// Why no node is replaced for its state: so many have failed that the cause is something else, such as a provider that lists
    /// a part of its machines; `None` when that is not so.
    fn brake(&self, cluster_readiness: ClusterReadiness, wanted: usize, bound: usize) -> Option<String> {
        let Self { unlisted, unhealthy } = *self;
        let allowed = format!("with {wanted} nodes wanted spec.repair.maxUnhealthy allows {bound}");
        let is_too_many = unlisted + unhealthy > bound;
        let too_many = is_too_many.then(|| match (unlisted, unhealthy) {
            (0, _) => format!("{}, and {allowed}", are_unhealthy(unhealthy, "")),
            (_, 0) => format!("{}, and {allowed}", are_unlisted(unlisted)),
            _ => {
                let both = [are_unlisted(unlisted), are_unhealthy(unhealthy, "other ")].join(" and ");
                format!("{both}, and {allowed} of both together")
            }
        });
        let ClusterReadiness { not_ready, all } = cluster_readiness;
        let outage = cluster_readiness
            .is_outage()
            .then(|| format!("{not_ready} of {all} nodes of all pools are not Ready"));
        let all = [too_many, outage].into_iter().flatten().collect::<Vec<_>>().join(", and ");
        let advice = if unlisted > 0 { "; delete the Nodes whose machines are known to be gone" } else { "" };
        (!all.is_empty()).then(|| format!("{all}, so none is replaced{advice}"))
    }
}

fn are_unhealthy(count: usize, other: &str) -> String {
    if count == 1 {
        format!("1 {other}node is unhealthy")
    } else {
        format!("{count} {other}nodes are unhealthy")
    }
}

fn are_unlisted(count: usize) -> String {
    if count == 1 {
        "the machine of 1 node is not listed any more".to_owned()
    } else {
        format!("the machines of {count} nodes are not listed any more")
    }
}

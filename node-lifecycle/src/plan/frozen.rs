//! Why nothing may be changed in a pool although it is not paused: what the provider has does not fit what it was asked for.

use std::collections::BTreeSet;

use shared_crds::conditions::Reason;
use shared_crds::{NodePool, names};

use crate::Observed;
use crate::assess::membership::Member;
use crate::assess::outdated::OutdatedCriteria;
use crate::count::sizing;
use crate::plan::decision::Stall;

/// How many machines more than it was asked for a provider may have before nothing is made or removed: what a request
/// whose answer was lost may add. Machine Controller Manager allows two as well (its `safety-up`).
const TOLERATED_SURPLUS: usize = 2;

/// Why nothing may be changed although the pool is not paused.
pub(crate) fn frozen(observed: &Observed, pool: &NodePool, members: &[Member]) -> Option<Stall> {
    let another = another_provider(observed, pool, members)
        .map(|message| Stall { reason: Reason::InvalidSpec, message });
    let too_many = || {
        too_many_machines(observed, pool, members)
            .map(|message| Stall { reason: Reason::TooManyMachines, message })
    };
    let of_another_cluster = || {
        machines_of_another_cluster(observed, members)
            .map(|message| Stall { reason: Reason::AnotherCluster, message })
    };
    another.or_else(of_another_cluster).or_else(too_many)
}

/// What to say about a pool with nodes whose machines carry another cluster than this one has: they may be the machines of
/// the cluster of which this one is a copy, or this cluster's own identity was changed.
fn machines_of_another_cluster(observed: &Observed, members: &[Member]) -> Option<String> {
    let mut found = members.iter().filter_map(|member| {
        let (machine, carries) =
            observed.supply.foreign.get_key_value(names::machine_of(&member.node.metadata)?)?;
        Some((member.name(), machine, carries))
    });
    let (node, machine, carries) = found.next()?;
    let cluster = &observed.cluster;
    Some(format!(
        "the machine {machine} of the node {node} carries {carries}, and this cluster is {cluster}: if this cluster made \
         the machine, set --cluster-id (clusterId of the chart) to what it was then; until then nothing is made or removed"
    ))
}

/// What to say about a pool whose provider lists more machines than it was asked for, by more than [`TOLERATED_SURPLUS`]:
/// something is wrong there, so neither are more requested nor are these removed. A number that the provider keeps is
/// judged by its writer instead.
fn too_many_machines(observed: &Observed, pool: &NodePool, members: &[Member]) -> Option<String> {
    if observed.supply.size.is_some() {
        return None;
    }
    let recorded = pool.status.as_ref().and_then(|status| status.provisioning.as_ref()?.machines);
    // A pool without a record has asked for none.
    let recorded = usize::try_from(recorded.unwrap_or_default()).unwrap_or_default();
    let wanted = sizing::wanted(observed, pool, members);
    let criteria = OutdatedCriteria::of(pool, observed.now);
    let is_rolling = members.iter().any(|member| criteria.replaces(member));
    let surge = if is_rolling { criteria.surge(wanted) } else { 0 };
    let asked = recorded.max(wanted + surge);
    let without_node = observed.in_flight().count() + observed.joining().len();
    let staying = members.iter().filter(|member| member.stays()).count() + observed.unread().count();
    let unasked = (staying + without_node).saturating_sub(asked).min(without_node);
    (unasked > TOLERATED_SURPLUS).then(|| {
        format!(
            "the provider lists {unasked} machines more than it was asked for: delete them there, or raise \
             spec.replicas if they are wanted; until then nothing is made or removed"
        )
    })
}

/// What to say about a pool whose provider was changed while it had nodes or machines: which of them to delete, and
/// where, depends on who made them.
fn another_provider(observed: &Observed, pool: &NodePool, members: &[Member]) -> Option<String> {
    let current = pool.spec.provider.reference().unwrap_or_default();
    let made_by = members.iter().filter_map(Member::made_by);
    let all: BTreeSet<&str> = made_by.chain(observed.supply.former.iter().map(String::as_str)).collect();
    let others: Vec<&str> = all.into_iter().filter(|provider| *provider != current).collect();
    (!others.is_empty()).then(|| {
        let others = others.join(" and ");
        format!(
            "spec.provider was changed to {current} while the pool has nodes or machines of {others}: set it back, and \
             use another pool for {current}; until then nothing is made or removed"
        )
    })
}

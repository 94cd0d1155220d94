//! Why nothing may be changed in a pool, or none may be added, although it is not paused: what the provider has does not fit what it was
//! asked for.

use std::collections::BTreeSet;

use shared_crds::conditions::Reason;
use shared_crds::{NodePool, names};

use crate::Observed;
use crate::assess::membership::Member;
use crate::plan::decision::Stall;

/// Why nothing may be changed although the pool is not paused.
pub(crate) fn frozen(observed: &Observed, pool: &NodePool, members: &[Member]) -> Option<Stall> {
    let another = another_provider(observed, pool, members)
        .map(|message| Stall { reason: Reason::InvalidSpec, message });
    let of_another_cluster = || {
        machines_of_another_cluster(observed, members)
            .map(|message| Stall { reason: Reason::AnotherCluster, message })
    };
    another.or_else(of_another_cluster)
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

/// What to say about a pool whose provider lists so many machines more than it was asked for that growth waits.
pub(crate) fn too_many_machines(unasked: usize) -> Stall {
    let message = format!(
        "the provider lists {unasked} machines more than it was asked for: delete them there, or raise spec.replicas if they \
         are wanted; until then no machine is made, and none without a Node is removed"
    );
    Stall { reason: Reason::TooManyMachines, message }
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

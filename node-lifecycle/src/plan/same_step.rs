//! The same kind of step for every node, and how long to wait for nodes that cannot be read.

use k8s_openapi::jiff::SignedDuration;

use crate::assess::absence;
use crate::assess::membership::Member;
use crate::input::observed::Observed;
use crate::input::supply::Absence;
use crate::{NodeAction, NodeStep};

/// Polling interval of a pool with an unreadable node: no watch event reports that it became readable or is gone.
pub(crate) const UNREADABLE_POLL: SignedDuration = SignedDuration::from_secs(30);

/// Each node with its step.
pub(crate) fn steps(
    observed: &Observed,
    members: Vec<Member>,
    action: impl Fn(&Member) -> NodeAction,
) -> Vec<NodeStep> {
    let all: Vec<&Member> = members.iter().collect();
    let absences: Vec<Absence> =
        members.iter().map(|member| absence::absence(observed, &all, member)).collect();
    let step = |(member, absence): (Member, Absence)| NodeStep {
        action: action(&member),
        cause: None,
        waits: None,
        absence,
        member,
    };
    members.into_iter().zip(absences).map(step).collect()
}

//! Which volumes keep a node that no pod keeps any more.
//!
//! A volume is detached some time after its pod has ended, when the kubelet has unmounted it. A machine that ends before
//! that leaves it attached: no kubelet confirms that it is unmounted, and its next pod waits for minutes.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::v1alpha1::DrainTimeoutAction;

use crate::assess::drain_limits::DrainLimits;
use crate::assess::membership::Member;
use crate::{AttachedVolumes, Blocker, DrainStep};

/// From when on a volume takes longer than usual: a kubelet unmounts within seconds, and most drivers detach as fast.
const LATE_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// How long a node waits whose machine is off. Kubernetes asks for the detachment of its volumes as soon as its pods are gone, but
/// not once its Node is gone, then only after minutes; what is asked for does not need the Node any more.
const OUT_OF_SERVICE_LIMIT: SignedDuration = SignedDuration::from_secs(60);

/// What keeps `member`, which no pod keeps any more; `None` when it may be removed. A node that was never Ready has no
/// kubelet that could have mounted anything.
pub(crate) fn hold(
    member: &Member,
    attached: &AttachedVolumes,
    limits: DrainLimits,
    now: Timestamp,
) -> Option<DrainStep> {
    let leaving = member.leaving.filter(|leaving| leaving.was_ready)?;
    let started = leaving.draining_since()?;
    let waited = attached.times.get(member.name()).copied().unwrap_or_default();
    let is_forced = limits.on_timeout == DrainTimeoutAction::Force
        && limits.has_left_less(SignedDuration::ZERO, started, leaving.observed, now);
    let limit = if leaving.is_out_of_service() {
        limits.detachment.min(OUT_OF_SERVICE_LIMIT)
    } else {
        limits.detachment
    };
    if waited >= limit || is_forced {
        return None;
    }
    let Some(by_node) = &attached.by_node else {
        return Some(DrainStep::waits(Blocker::Unread("volume attachments"), false));
    };
    let volumes = by_node.get(member.name()).filter(|volumes| !volumes.is_empty())?;
    Some(DrainStep::waits(Blocker::Volumes(volumes.clone()), waited < LATE_AFTER))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Taint};
    use shared_crds::names;

    use super::*;
    use crate::input::observed_time::NodeTime;
    use crate::testing::{at, draining};

    /// What keeps node `n-000`, whose drain began at second 5, at second 100.
    fn held(volumes: Option<&[&str]>, waited: i64, limits: DrainLimits) -> Option<DrainStep> {
        held_on(draining(0, 5), volumes, waited, limits)
    }

    fn held_on(node: Node, volumes: Option<&[&str]>, waited: i64, limits: DrainLimits) -> Option<DrainStep> {
        let times = NodeTime { draining: SignedDuration::MAX, was_ready: true, ..NodeTime::default() };
        let member = Member::read(&std::sync::Arc::new(node), at(100), times);
        let names = |volumes: &[&str]| volumes.iter().map(ToString::to_string).collect::<Vec<_>>();
        let attached = AttachedVolumes {
            by_node: volumes.map(|volumes| [("n-000".to_owned(), names(volumes))].into()),
            times: [("n-000".to_owned(), SignedDuration::from_secs(waited))].into(),
        };
        hold(&member, &attached, limits, at(100))
    }

    #[test]
    fn a_node_waits_for_its_volumes_until_their_time_or_that_of_the_drain_is_over() {
        let limits = DrainLimits::default();
        let attached =
            |is_late: bool| Some(DrainStep::waits(Blocker::Volumes(vec!["pv".to_owned()]), !is_late));
        assert_eq!(held(Some(&[]), 0, limits), None);
        assert_eq!(held(Some(&["pv"]), 29, limits), attached(false));
        assert_eq!(held(Some(&["pv"]), 299, limits), attached(true));
        assert_eq!(held(Some(&["pv"]), 300, limits), None);
        let none = DrainLimits { detachment: SignedDuration::ZERO, ..limits };
        assert_eq!(held(Some(&["pv"]), 0, none), None);
        for (timeout, on_timeout, expected) in [
            (95, DrainTimeoutAction::Force, None),
            (96, DrainTimeoutAction::Force, attached(false)),
            (95, DrainTimeoutAction::GiveBack, attached(false)),
        ] {
            let limits =
                DrainLimits { timeout: Some(SignedDuration::from_secs(timeout)), on_timeout, ..limits };
            assert_eq!(held(Some(&["pv"]), 0, limits), expected, "{timeout} {on_timeout:?}");
        }
    }

    #[test]
    fn a_node_whose_machine_is_off_waits_only_until_the_detachment_is_asked_for() {
        let mut node = draining(0, 5);
        let taint = Taint { key: names::OUT_OF_SERVICE_TAINT.into(), ..Taint::default() };
        node.spec.as_mut().unwrap().taints = Some(vec![taint]);
        let limits = DrainLimits::default();
        let held = |waited, limits| held_on(node.clone(), Some(&["pv"]), waited, limits).is_some();
        assert!(held(59, limits) && !held(60, limits));
        assert!(!held(5, DrainLimits { detachment: SignedDuration::from_secs(5), ..limits }));
    }

    #[test]
    fn a_node_whose_volumes_cannot_be_listed_waits_as_long_as_for_a_volume() {
        let limits = DrainLimits::default();
        let unread = DrainStep::waits(Blocker::Unread("volume attachments"), false);
        assert_eq!(held(None, 299, limits), Some(unread));
        assert_eq!(held(None, 300, limits), None);
    }
}

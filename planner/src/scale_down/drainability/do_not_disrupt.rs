//! Karpenter's annotation of pods that are not to be disturbed, for good or for a while after their start.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Blocker, BlockingPodReason, duration};
use crate::input::pod_info::PodInfo;

/// `true`, or for how long after `status.startTime`; anything else is as if it were not there.
const ANNOTATION: &str = "karpenter.sh/do-not-disrupt";

/// Blocks a pod that asks for it. A pod that is being deleted is past asking.
pub(super) fn blocker(pod: &PodInfo, now: Timestamp) -> Option<Blocker> {
    let value = pod.annotation(ANNOTATION)?;
    if pod.deleted().is_some() {
        return None;
    }
    let why = format!("asks not to be disrupted ({ANNOTATION}: {value})");
    let lasting = Blocker::lasting(BlockingPodReason::DoNotDisruptAnnotation, why);
    if value == "true" {
        return Some(lasting);
    }
    let period = duration::parse(value).filter(SignedDuration::is_positive)?;
    let Some(started) = pod.started() else {
        // The time has not begun to count.
        return Some(lasting);
    };
    let until = started.checked_add(period).unwrap_or(Timestamp::MAX);
    (now < until).then_some(Blocker { until: Some(until), ..lasting })
}

//! Karpenter's annotation of pods that must not be disrupted, permanently or for some time after their start.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Blocker, BlockingPodReason, duration};
use crate::input::pod_info::PodInfo;

/// `true`, or how long after `status.startTime`; any other value is ignored.
const ANNOTATION: &str = "karpenter.sh/do-not-disrupt";

/// Blocks a pod with the annotation. For a pod that is being deleted the annotation is ignored.
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
        // The pod has not started, so the time has not begun.
        return Some(lasting);
    };
    let until = started.checked_add(period).unwrap_or(Timestamp::MAX);
    (now < until).then_some(Blocker { until: Some(until), ..lasting })
}

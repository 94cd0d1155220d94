//! The annotations by which pods and nodes ask to be left alone: Cluster Autoscaler's and Karpenter's. Both operators
//! read them the same way. And the one by which a pending pod asks that its nodes come later.

mod duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Cluster Autoscaler's annotation of a pod: `true`, `false` or `on-completion`.
pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// Karpenter's annotation of a pod: `true`, or for how long after `status.startTime` it must not be disrupted. On a Node
/// `true`.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// Cluster Autoscaler's annotation of a pending pod: how long after its creation pools begin to grow for it.
pub const POD_SCALE_UP_DELAY: &str = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay";
/// Annotations of a Node that protect it from scale-down, with the value that does.
const OF_NODES: [(&str, &str); 2] =
    [("cluster-autoscaler.kubernetes.io/scale-down-disabled", "true"), (DO_NOT_DISRUPT, "true")];

/// What a pod asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodProtection {
    /// As the end of a sentence about the pod.
    pub why: String,
    /// When it ends by time alone; `None` when it does not.
    pub until: Option<Timestamp>,
}

/// A pod that runs until it ends by itself, by the value of [`SAFE_TO_EVICT`].
pub fn on_completion(safe_to_evict: Option<&str>) -> Option<PodProtection> {
    let why = "runs until it ends by itself (safe-to-evict: on-completion)".to_owned();
    (safe_to_evict == Some("on-completion")).then_some(PodProtection { why, until: None })
}

/// A pod that forbids its eviction, by the value of [`SAFE_TO_EVICT`].
pub fn not_safe_to_evict(safe_to_evict: Option<&str>) -> Option<PodProtection> {
    let why = "forbids its eviction (safe-to-evict: false)".to_owned();
    (safe_to_evict == Some("false")).then_some(PodProtection { why, until: None })
}

/// A pod that must not be disrupted, by the value of [`DO_NOT_DISRUPT`], which is ignored where it is neither `true` nor
/// a positive duration. `started` is the pod's `status.startTime`.
pub fn do_not_disrupt(
    value: Option<&str>,
    started: Option<Timestamp>,
    now: Timestamp,
) -> Option<PodProtection> {
    let value = value?;
    let why = format!("asks not to be disrupted ({DO_NOT_DISRUPT}: {value})");
    let lasting = PodProtection { why, until: None };
    if value == "true" {
        return Some(lasting);
    }
    let period = duration::parse(value).filter(SignedDuration::is_positive)?;
    let Some(started) = started else {
        // The pod has not started, so the time has not begun.
        return Some(lasting);
    };
    let until = started.checked_add(period).unwrap_or(Timestamp::MAX);
    (now < until).then_some(PodProtection { until: Some(until), ..lasting })
}

/// How long after its creation pools begin to grow for a pod, by the value of [`POD_SCALE_UP_DELAY`]; `None` if that is no
/// duration in Go's format, or below zero.
pub fn scale_up_delay(value: &str) -> Option<SignedDuration> {
    duration::parse(value).filter(|delay| !delay.is_negative())
}

/// What the annotations of `pod` ask for; `None` for a pod that is being deleted, and for one with
/// `safe-to-evict: "true"`, which overrides the other annotation as in Cluster Autoscaler.
pub fn of_pod(pod: &Pod, now: Timestamp) -> Option<PodProtection> {
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    let is_deleted = pod.metadata.deletion_timestamp.is_some();
    of_annotations(|key| annotation(&pod.metadata, key), is_deleted, started, now)
}

/// [`of_pod`] for a pod that is kept in another form: the value of an annotation, whether the pod is being deleted, and its
/// `status.startTime`.
pub fn of_annotations<'a>(
    annotation: impl Fn(&str) -> Option<&'a str>,
    is_deleted: bool,
    started: Option<Timestamp>,
    now: Timestamp,
) -> Option<PodProtection> {
    let safe_to_evict = annotation(SAFE_TO_EVICT);
    if is_deleted || safe_to_evict == Some("true") {
        return None;
    }
    on_completion(safe_to_evict)
        .or_else(|| not_safe_to_evict(safe_to_evict))
        .or_else(|| do_not_disrupt(annotation(DO_NOT_DISRUPT), started, now))
}

/// The annotation that protects a Node with this metadata from scale-down; `None` without one.
pub fn of_node(node: &ObjectMeta) -> Option<&'static str> {
    let protects = |(key, value): &(&'static str, &str)| annotation(node, key) == Some(value);
    OF_NODES.into_iter().find(protects).map(|(key, _)| key)
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_protected_by_its_annotations_until_it_is_deleted() {
        let (started, now) = ("2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z".parse().unwrap());
        let asked = |annotations: &[(&str, &str)], deleted: bool| {
            let annotations: serde_json::Map<_, _> =
                annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
            let pod: Pod = serde_json::from_value(json!({
                "metadata": { "annotations": annotations, "deletionTimestamp": deleted.then_some(started) },
                "status": { "startTime": started },
            }))
            .unwrap();
            of_pod(&pod, now)
        };
        for (annotations, expected) in [
            (&[][..], None),
            (&[(SAFE_TO_EVICT, "false")], Some(None)),
            (&[(SAFE_TO_EVICT, "on-completion")], Some(None)),
            (&[(DO_NOT_DISRUPT, "true")], Some(None)),
            (&[(DO_NOT_DISRUPT, "true"), (SAFE_TO_EVICT, "true")], None),
            (&[(DO_NOT_DISRUPT, "90m")], Some(Some("2026-01-01T12:30:00Z".parse().unwrap()))),
            (&[(DO_NOT_DISRUPT, "1h")], None),
            (&[(DO_NOT_DISRUPT, "soon")], None),
        ] {
            assert_eq!(asked(annotations, false).map(|it| it.until), expected, "{annotations:?}");
            assert_eq!(asked(annotations, true), None, "{annotations:?}");
        }
    }

    #[test]
    fn a_delay_is_a_duration_that_is_not_negative() {
        for (value, seconds) in [
            ("300s", Some(300)),
            ("5m", Some(300)),
            ("1h30m", Some(5400)),
            ("0", Some(0)),
            ("-5m", None),
            ("300", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(scale_up_delay(value), seconds.map(SignedDuration::from_secs), "{value}");
        }
    }

    #[test]
    fn a_node_is_protected_by_either_annotation_with_the_value_true() {
        let asked = |key: &str, value: &str| {
            let annotations = Some([(key.to_owned(), value.to_owned())].into());
            of_node(&ObjectMeta { annotations, ..ObjectMeta::default() })
        };
        for (key, _) in OF_NODES {
            assert_eq!((asked(key, "true"), asked(key, "false")), (Some(key), None));
        }
        assert_eq!(of_node(&ObjectMeta::default()), None);
    }
}

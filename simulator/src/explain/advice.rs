//! What the user can do about a node's reason, for a reader who sees it for the first time.

/// Name of a reason, and what can be done about it.
type Entry = (&'static str, &'static str);

/// Sorted by name. The names are Cluster Autoscaler's where it has one.
const ADVICE: &[Entry] = &[
    ("AboveMaxReplicas", "raise spec.maxReplicas to keep it"),
    (
        "BlockedByPod",
        "see the pod named; give it a controller, or annotate it cluster-autoscaler.kubernetes.io/safe-to-evict=true",
    ),
    ("DisruptionBudget", "wait, or change spec.disruption.budgets of the NodePool"),
    ("NoPlaceToMovePods", "see below which of them has none"),
    ("NodeGroupMaxDeletionCountReached", "raise scaleDown.maxNodes of the NodePoolAutoscaler"),
    ("NodeGroupMinSizeReached", "lower spec.minReplicas of the NodePool"),
    ("NotAutoscaled", "select its NodePool with a NodePoolAutoscaler"),
    ("NotUnderutilized", "raise scaleDown.utilizationThresholdPercent of the NodePoolAutoscaler"),
    ("NotUnneededLongEnough", "wait, or lower scaleDown.unneededSeconds of the NodePoolAutoscaler"),
    ("RolloutInProgress", "wait"),
    ("ScaleDownDelayAfterAdd", "wait, or lower scaleDown.delayAfterAddSeconds of the NodePoolAutoscaler"),
    (
        "ScaleDownDisabledAnnotation",
        "take cluster-autoscaler.kubernetes.io/scale-down-disabled or karpenter.sh/do-not-disrupt off the node",
    ),
    ("ScaleDownLimit", "wait, or allow more in behavior.scaleDown"),
    ("UnexpectedError", "see the warnings"),
];

/// What can be done about a node's reason; empty when there is nothing to do.
pub(super) fn advice(reason: &str) -> &'static str {
    ADVICE.iter().find(|entry| entry.0 == reason).map_or("", |entry| entry.1)
}

#[cfg(test)]
mod tests {
    use planner::NodeReason;

    use super::*;

    #[test]
    fn the_reasons_are_sorted_and_those_that_the_user_can_change_are_among_them() {
        assert!(ADVICE.is_sorted_by_key(|entry| entry.0));
        for reason in [
            NodeReason::AboveMaxReplicas,
            NodeReason::BlockedByPod,
            NodeReason::ScaleDownDisabledAnnotation,
            NodeReason::ScaleDownLimit,
            NodeReason::NoPlaceToMovePods,
            NodeReason::NodeGroupMinSizeReached,
            NodeReason::NodeGroupMaxDeletionCountReached,
        ] {
            assert!(!advice(reason.as_str()).is_empty(), "{reason:?}");
        }
    }
}

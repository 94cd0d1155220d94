//! Warnings about pods that are planned otherwise than the user may expect.

use std::collections::BTreeMap;

use planner::input::unplanned;
use planner::{Nominations, Observed};
use shared_crds::QualifiedName;

use crate::pod_state::PodState;
use crate::text::named;

/// One line for each constraint of pending pods that this version does not support, and one about pods without a node
/// that are not planned.
pub(super) fn about_pods(observed: &Observed) -> Vec<String> {
    let nominations = Nominations::of(observed);
    let mut by_constraint = BTreeMap::<&str, Vec<String>>::new();
    let mut unmarked = Vec::new();
    for pod in &observed.pods {
        let id = || QualifiedName::from(pod.key()).to_string();
        match PodState::of(pod, &nominations) {
            PodState::Pending => {
                for constraint in unplanned::constraints(pod.shape().pod()) {
                    by_constraint.entry(constraint).or_default().push(id());
                }
            }
            PodState::Unmarked => unmarked.push(id()),
            _ => {}
        }
    }
    let line = |(constraint, pods): (&str, Vec<String>)| {
        format!("this version does not plan with {constraint}; planned as if they had none: {}", named(&pods))
    };
    let mut lines: Vec<_> = by_constraint.into_iter().map(line).collect();
    if !unmarked.is_empty() {
        let (pods, them) = match unmarked.len() {
            1 => ("1 pod without a node is".to_owned(), "it"),
            many => (format!("{many} pods without a node are"), "them"),
        };
        lines.push(format!(
            "{pods} left out, because the scheduler has not marked {them} PodScheduled=False, Unschedulable: {}",
            named(&unmarked)
        ));
    }
    lines
}

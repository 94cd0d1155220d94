//! What is left of a plan when nodes did not go whose places others were to take. What fails for any other node keeps none from coming.

use std::collections::BTreeSet;

use node_lifecycle::outcome::Applied;
use node_lifecycle::{NodeAction, NodeStep, Plan};
use shared_crds::v1alpha1::DisruptionReason;

/// The plan with one node less that comes for each that did not go although it was to make room; `None` where each of them is among the
/// `removed` ones. Fewer machines are requested; drains are cancelled as long as there is a place.
pub(super) fn reduced(plan: &Plan, removed: &Applied) -> Option<Plan> {
    let gone: BTreeSet<&str> = removed.names(|_| true).collect();
    let has_stayed = |step: &&NodeStep| step.makes_room() && !gone.contains(step.member.name());
    let stayed = plan.nodes.iter().filter(has_stayed).count();
    if stayed == 0 {
        return None;
    }
    let requested = plan.request.len();
    let mut reduced = plan.clone();
    reduced.request.truncate(requested.saturating_sub(stayed));
    let mut rest = stayed.saturating_sub(requested);
    for step in &mut reduced.nodes {
        // One that has recovered comes back whatever the others do.
        let is_counted = step.member.cause.reason() != Some(DisruptionReason::Repair);
        if rest > 0 && is_counted && step.action == NodeAction::Uncordon {
            step.action = NodeAction::Wait;
            rest -= 1;
        }
    }
    Some(reduced)
}

#[cfg(test)]
mod tests {
    use node_lifecycle::outcome::AppliedAction;
    use node_lifecycle::testing::{annotate, draining, node, step};
    use shared_crds::names;

    use super::*;

    #[test]
    fn as_many_nodes_fewer_come_as_have_not_made_room() {
        let lost = |index| step(node(index), NodeAction::ReplaceLost);
        let mut recovered = draining(4, 5);
        annotate(&mut recovered, names::DISRUPTION_REASON_ANNOTATION, DisruptionReason::Repair.as_str());
        let wanted_again = step(draining(3, 5), NodeAction::Uncordon);
        let too_many = step(node(5), NodeAction::Cordon);
        let recovered = step(recovered, NodeAction::Uncordon);
        let plan = Plan {
            request: vec!["a".to_owned(), "b".to_owned()],
            nodes: vec![recovered, lost(0), lost(1), lost(2), wanted_again, too_many],
            ..Plan::default()
        };
        let left = |gone: &[&str]| -> Option<(usize, Vec<String>)> {
            let removed = Applied::done(AppliedAction::ReplaceLost, gone.iter().copied());
            let reduced = reduced(&plan, &removed)?;
            let uncordoned = reduced.nodes.iter().filter(|step| step.action == NodeAction::Uncordon);
            Some((reduced.request.len(), uncordoned.map(|step| step.member.name().to_owned()).collect()))
        };
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<String>>();
        for (gone, expected) in [
            (&["n-000", "n-001", "n-002"][..], None),
            (&["n-000", "n-001"][..], Some((1, names(&["n-004", "n-003"])))),
            (&["n-000"][..], Some((0, names(&["n-004", "n-003"])))),
            (&[][..], Some((0, names(&["n-004"])))),
        ] {
            assert_eq!(left(gone), expected, "{gone:?}");
        }
    }
}

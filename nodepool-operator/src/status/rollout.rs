//! What is said about nodes that are out of date.

use node_lifecycle::facts::{Facts, RolloutFacts};
use node_lifecycle::numbers::nodes;
use shared_crds::NodePool;
use shared_crds::conditions::{ConditionType, Reason, Statement};
use shared_crds::v1alpha1::{ReplacementState, ReplacementStatus};

/// `status.replacement`: what [`rolling_out`] says, for the Autoscaler. It removes no node meanwhile.
pub(super) fn replacement(pool: &NodePool, facts: &Facts) -> ReplacementStatus {
    let state = match rolling_out(pool, facts).status {
        Some(true) => ReplacementState::Active,
        Some(false) => ReplacementState::Inactive,
        None => ReplacementState::Unknown,
    };
    ReplacementStatus { state, observed_generation: pool.metadata.generation }
}

/// Whether nodes are being replaced because they are out of date.
pub(super) fn rolling_out(pool: &NodePool, facts: &Facts) -> Statement {
    let say = |status: bool, reason, message: String| {
        Statement::new(ConditionType::RollingOut, status, reason, message)
    };
    if facts.deleting {
        return say(false, Reason::Deleting, "the pool is being deleted".to_owned());
    }
    if let Some(how) = &facts.rolling {
        return say(true, Reason::RollingOut, format!("the provider replaces its machines: {how}"));
    }
    if facts.may_be_rolling() {
        let message = "it is not known whether the provider replaces machines: they cannot be listed";
        return Statement::new(ConditionType::RollingOut, None, Reason::ProviderUnreachable, message);
    }
    let Some(rollout) = &facts.rollout else {
        let message = left_to_provider(facts).unwrap_or_else(|| "no node is out of date".to_owned());
        return say(false, Reason::UpToDate, message);
    };
    let outdated = number_of(rollout);
    if pool.spec.paused {
        say(false, Reason::Paused, format!("{outdated}; spec.paused is set"))
    } else if !rollout.is_active {
        say(
            false,
            Reason::OnDelete,
            format!("{outdated} until a user removes them: spec.rollout.type is OnDelete"),
        )
    } else if let Some(waits) = &rollout.waits {
        say(false, waits.reason, format!("{outdated}; {}", waits.why))
    } else if let Some(why) = stuck(facts) {
        say(true, Reason::ProgressDeadlineExceeded, why)
    } else {
        say(true, Reason::RollingOut, outdated)
    }
}

/// What to say about nodes that a user wants replaced, and that only their provider replaces; `None` when there are none.
fn left_to_provider(facts: &Facts) -> Option<String> {
    let first = facts.left_to_provider.iter().min()?;
    let which = match facts.left_to_provider.len() {
        1 => format!("node {first} stays, although it is"),
        all => format!("node {first} and {} more stay, although they are", nodes(all - 1)),
    };
    let asked = "to be replaced by the annotation tandem.dev/replace or by spec.rollout";
    let instead = "with clusterApi only Cluster API replaces machines: delete the Machine";
    Some(format!("{which} {asked}; {instead}"))
}

/// How many nodes are out of date; `None` when none is.
pub(super) fn outdated(facts: &Facts) -> Option<String> {
    facts.rollout.as_ref().map(number_of)
}

/// The same where they stay until a user removes them.
pub(super) fn on_delete(facts: &Facts) -> Option<String> {
    facts.rollout.as_ref().filter(|rollout| !rollout.is_active).map(number_of)
}

/// What to say about a rollout that goes on; `None` when there is none.
pub(super) fn progress(facts: &Facts) -> Option<String> {
    let lack = |count: usize| {
        format!(
            "{} {} labels, annotations or taints of the template",
            nodes(count),
            if count == 1 { "lacks" } else { "lack" }
        )
    };
    let not_updated = Some(facts.not_updated).filter(|count| *count > 0).map(lack);
    let active = facts.rollout.as_ref().filter(|rollout| rollout.is_active);
    let waits = active.and_then(|rollout| rollout.waits.as_ref()).map(|waits| waits.why.clone());
    let active = facts.rolling.clone().or(active.map(number_of));
    let parts: Vec<String> = active.into_iter().chain(waits).chain(not_updated).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Why a rollout waits, where budgets, nodes that ask to be left alone or drains that do not get on let nothing go.
pub(super) fn waits(facts: &Facts) -> Option<Reason> {
    Some(facts.rollout.as_ref()?.waits.as_ref()?.reason)
}

/// Why a rollout is said to be stuck; `None` while it makes progress.
pub(super) fn stuck(facts: &Facts) -> Option<String> {
    let rollout = facts.rollout.as_ref().filter(|rollout| rollout.is_active && rollout.is_stuck)?;
    let since = rollout.record.as_ref().map(|record| record.progress_time.0)?;
    Some(format!(
        "{}, and there has been no progress since {since}: see what new nodes and drains wait for",
        number_of(rollout)
    ))
}

fn number_of(rollout: &RolloutFacts) -> String {
    let are = if rollout.outdated == 1 { "is" } else { "are" };
    let hard = match rollout.past_hard_age {
        0 => String::new(),
        1 => " (1 past hardMaxAgeSeconds: no wish to be left alone keeps it)".to_owned(),
        more => format!(" ({more} past hardMaxAgeSeconds: no wish to be left alone keeps them)"),
    };
    format!("{} {are} out of date{hard}", nodes(rollout.outdated))
}

#[cfg(test)]
mod tests {
    use ConditionType::{NodesReady, Ready, Reconciling, RollingOut, Stalled};
    use k8s_openapi::api::core::v1::Node;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use node_lifecycle::Observed;
    use node_lifecycle::outcome::Applied;
    use node_lifecycle::testing::{self, at, node, observed, pool, supply};
    use shared_crds::v1alpha1::{DisruptionReason, RolloutSpec, RolloutStatus, RolloutType};

    use super::*;
    use crate::status::statements;

    fn changed(replicas: i32) -> NodePool {
        let mut pool = pool(replicas);
        pool.spec.template.spec.capacity.insert("cpu".into(), Quantity("8".into()));
        pool
    }

    /// Status and reason of these conditions.
    fn said(pool: &NodePool, rolling: Option<&str>, nodes: Vec<Node>) -> [(Option<bool>, Reason); 5] {
        let supply = node_lifecycle::Supply { rolling: rolling.map(str::to_owned), ..supply() };
        let recent = testing::pods([("n-001", vec![testing::pod("a")])]);
        let facts = testing::facts(&Observed { supply, recent, ..observed(pool.clone(), nodes) });
        let all = statements(pool, &facts, &Applied::default());
        [RollingOut, Ready, NodesReady, Reconciling, Stalled].map(|type_| {
            let found = all.iter().find(|statement| statement.type_ == type_).unwrap();
            (found.status, found.reason)
        })
    }

    #[test]
    fn a_rollout_is_said_by_every_condition_that_people_wait_for() {
        let (yes, no) = (Some(true), Some(false));
        let settled = (no, Reason::Settled);
        let all_ready = (yes, Reason::AllNodesReady);
        let rolling = (yes, Reason::RollingOut);
        let not_ready = (no, Reason::RollingOut);
        let two = || vec![node(0), node(1)];
        assert_eq!(
            said(&pool(2), None, two()),
            [(no, Reason::UpToDate), all_ready, all_ready, settled, settled]
        );
        assert_eq!(said(&changed(2), None, two()), [rolling, not_ready, all_ready, rolling, settled]);
        assert_eq!(
            said(&pool(2), Some("machine 1 of 2"), two()),
            [rolling, not_ready, all_ready, rolling, settled],
            "the provider's own"
        );
        let mut paused = changed(2);
        paused.spec.paused = true;
        let is_paused = (no, Reason::Paused);
        assert_eq!(said(&paused, None, two()), [is_paused, is_paused, all_ready, is_paused, settled]);
        let mut on_delete = changed(2);
        on_delete.spec.rollout = Some(RolloutSpec { type_: RolloutType::OnDelete, ..RolloutSpec::default() });
        assert_eq!(
            said(&on_delete, None, two()),
            [(no, Reason::OnDelete), all_ready, all_ready, settled, settled]
        );
        let mut stuck = changed(2);
        stuck.status.get_or_insert_default().rollout = Some(RolloutStatus {
            template_hash: stuck.spec.template_hash().unwrap(),
            outdated_nodes: 2,
            may_go_nodes: None,
            available_nodes: 0,
            progress_time: Time(at(-1800)),
        });
        let late = (yes, Reason::ProgressDeadlineExceeded);
        let not_reconciling = (no, Reason::ProgressDeadlineExceeded);
        assert_eq!(said(&stuck, None, two()), [late, not_ready, all_ready, not_reconciling, late]);
        let all_ask = || two().into_iter().map(asks).collect();
        let (waits, reconciling) = ((no, Reason::WaitsForProtected), (yes, Reason::WaitsForProtected));
        for pool in [changed(2), stuck] {
            assert_eq!(said(&pool, None, all_ask()), [waits, waits, all_ready, reconciling, settled]);
        }
    }

    #[test]
    fn a_field_says_whether_nodes_are_replaced_and_of_which_generation() {
        use ReplacementState::{Active, Inactive, Unknown};
        let replaced = |pool: &NodePool, sees: fn(&mut Facts)| {
            let mut facts = testing::facts(&observed(pool.clone(), [node(0), node(1)]));
            sees(&mut facts);
            replacement(pool, &facts)
        };
        let mut seen = changed(2);
        seen.metadata.generation = Some(7);
        assert_eq!(replaced(&seen, |_| ()).observed_generation, Some(7));
        assert_eq!(replaced(&pool(2), |_| ()).state, Inactive);
        assert_eq!(replaced(&changed(2), |_| ()).state, Active);
        let of_provider = |facts: &mut Facts| facts.rolling = Some("machine 1 of 2".to_owned());
        assert_eq!(replaced(&pool(2), of_provider).state, Active);
        let without_list = |facts: &mut Facts| (facts.is_sized, facts.is_unknown) = (true, true);
        assert_eq!(replaced(&pool(2), without_list).state, Unknown);
    }

    #[test]
    fn a_wish_that_only_the_provider_can_meet_is_said() {
        let said = |names: &[&str]| {
            let mut facts = testing::facts(&observed(pool(2), [node(0), node(1)]));
            facts.left_to_provider = names.iter().map(|name| (*name).to_owned()).collect();
            let said = rolling_out(&pool(2), &facts);
            assert_eq!((said.status, said.reason), (Some(false), Reason::UpToDate));
            said.message
        };
        assert_eq!(said(&[]), "no node is out of date");
        let one = said(&["n-1"]);
        assert!(one.starts_with("node n-1 stays, although it is to be replaced by"), "{one}");
        assert!(one.ends_with("only Cluster API replaces machines: delete the Machine"), "{one}");
        let three = said(&["n-2", "n-1", "n-3"]);
        assert!(three.starts_with("node n-1 and 2 nodes more stay, although they are"), "{three}");
    }

    /// `node` with an annotation that protects it.
    fn asks(mut node: Node) -> Node {
        testing::annotate(&mut node, shared_crds::protection::DO_NOT_DISRUPT, "true");
        node
    }

    #[test]
    fn a_node_that_goes_whatever_it_asks_for_is_said_to() {
        let mut pool = pool(2);
        pool.spec.rollout = Some(RolloutSpec {
            max_age_seconds: Some(60),
            hard_max_age_seconds: Some(100),
            ..RolloutSpec::default()
        });
        let mut younger = node(1);
        younger.metadata.creation_timestamp = Some(Time(at(1)));
        let facts = testing::facts(&observed(pool.clone(), [asks(node(0)), asks(younger)]));
        let said = rolling_out(&pool, &facts);
        assert_eq!((said.status, said.reason), (Some(true), Reason::RollingOut));
        let expected =
            "2 nodes are out of date (1 past hardMaxAgeSeconds: no wish to be left alone keeps it)";
        assert_eq!(said.message, expected);
    }

    #[test]
    fn a_rollout_waits_while_its_only_drain_is_stuck_and_nothing_else_may_go() {
        let going = |since: i64| {
            let mut node = testing::draining(1, since);
            let reason = DisruptionReason::Rollout.as_str();
            testing::annotate(&mut node, shared_crds::names::DISRUPTION_REASON_ANNOTATION, reason);
            node
        };
        let new = || {
            let mut node = node(3);
            let hash = changed(2).spec.template_hash().unwrap();
            testing::annotate(&mut node, shared_crds::names::TEMPLATE_HASH_ANNOTATION, &hash);
            node
        };
        let mut limited = changed(2);
        limited.spec.disruption =
            serde_json::from_value(serde_json::json!({ "budgets": [{ "nodes": 1 }] })).unwrap();
        let (rolling, waits) = ((Some(true), Reason::RollingOut), |reason| (Some(false), reason));
        for (what, pool, nodes, expected) in [
            ("its drain is young", &limited, vec![node(0), going(41)], rolling),
            ("its drain is stuck", &limited, vec![node(0), going(40)], waits(Reason::WaitsForBudget)),
            ("no budget", &changed(2), vec![node(0), going(40)], rolling),
            ("asks", &changed(2), vec![asks(node(0)), going(40)], waits(Reason::WaitsForProtected)),
            (
                "it keeps the place of the other one",
                &changed(2),
                vec![node(0), new(), going(40)],
                waits(Reason::WaitsForDrain),
            ),
            ("the last drain is stuck", &changed(1), vec![new(), going(40)], waits(Reason::WaitsForDrain)),
            ("one does not ask", &limited, vec![asks(node(0)), node(2)], rolling),
        ] {
            assert_eq!(said(pool, None, nodes)[0], expected, "{what}");
        }
    }
}

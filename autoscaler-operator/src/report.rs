//! Says what was decided and what came of it: the Autoscaler's part of each pool's status, the status of each autoscaler,
//! and events. What to say is put together in the files below; this one writes.

pub mod autoscaler_status;
pub mod events;
pub mod pod_events;
pub mod pool_status;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use futures::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use shared_crds::{NodePool, NodePoolAutoscaler, v1alpha1::AutoscalingStatus};
use shared_runtime::{
    error::chain,
    write::{OwnedStatus, WriteError, Written},
};

pub use self::pod_events::Told;
use self::pool_status::{Scaled, Standing};
use crate::{
    apply::Outcome,
    context::Context,
    error::Error,
    write_backoff::{Refusal, Waiting, Write},
};
use planner::{Observed, Plan, PoolDecision, observed::key};

/// Statuses that are written at the same time.
const PARALLEL_WRITES: usize = 8;

/// Decisions that were written and that no status says yet, by the pool's UID: the write of the status met a conflict or
/// failed. The next pass decides nothing new, and without this it would have nothing to report.
#[derive(Debug, Default)]
pub struct Unreported(Mutex<HashMap<String, Scaled>>);

impl Unreported {
    fn remember(&self, decision: &PoolDecision, scaled: Scaled) -> Standing {
        self.with(|known| known.insert(uid(decision), scaled.clone()));
        Standing::Scaled(scaled)
    }

    fn recall(&self, decision: &PoolDecision) -> Option<Scaled> {
        self.with(|known| known.get(&uid(decision)).cloned())
    }

    fn forget(&self, decision: &PoolDecision) {
        self.with(|known| known.remove(&uid(decision)));
    }

    /// The write of a status that says `standing` ended. A status that says something else leaves what was written still to be said.
    fn told<T>(&self, decision: &PoolDecision, standing: &Standing, ended: &Result<Written<T>, WriteError>) {
        let said = matches!(standing, Standing::Scaled(_));
        match ended {
            Ok(Written::Changed(_) | Written::Unchanged) if said => self.forget(decision),
            Ok(Written::Gone) => self.forget(decision),
            Ok(Written::Changed(_) | Written::Unchanged | Written::Conflict | Written::Aborted) | Err(_) => {}
        }
    }

    /// What the status of `pools`, which are all that there are, does not say yet, by UID. Those of others need not say it any more.
    pub fn missing_in(&self, pools: &[Arc<NodePool>]) -> BTreeMap<String, AutoscalingStatus> {
        let exists = |uid: &String| pools.iter().any(|pool| pool.metadata.uid.as_ref() == Some(uid));
        self.with(|known| known.retain(|uid, _| exists(uid)));
        let status = |pool: &Arc<NodePool>| {
            let uid = pool.metadata.uid.clone()?;
            let before = pool.status.as_ref().and_then(|s| s.autoscaling.clone()).unwrap_or_default();
            let status = self.with(|known| known.get(&uid).map(|scaled| scaled.recorded_in(&before)))?;
            Some((uid, status))
        };
        pools.iter().filter_map(status).collect()
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<String, Scaled>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn uid(decision: &PoolDecision) -> String {
    decision.object.metadata.uid.clone().unwrap_or_default()
}

/// What came of reporting.
#[derive(Debug, Default)]
pub struct Reported {
    /// Somebody wrote first, and the strategy leaves it to the next pass.
    pub conflict: bool,
    /// This replica does not lead any more.
    pub error: Option<Error>,
}

/// Writes all statuses that differ from what they should be, and publishes events.
pub async fn report(
    ctx: &Context,
    observed: &Observed,
    plan: &Plan,
    waiting: &Waiting,
    outcomes: &[Outcome],
) -> Reported {
    let now = Time(observed.now);
    events::publish(&ctx.recorder, &ctx.told, observed, plan, outcomes);
    let mut reported = Reported::default();
    let waits = |object: &ObjectMeta| waiting.refusal(object, Write::Status).is_some();
    let standings = plan.pools.iter().zip(outcomes).filter_map(|(decision, outcome)| {
        let standing = standing(ctx, decision, outcome, &now)?;
        (!waits(&decision.object.metadata)).then_some((decision, standing))
    });
    let writes: Vec<_> = standings
        .map(async |(decision, standing)| {
            (&decision.object.metadata, pool(ctx, decision, &standing, &now).await)
        })
        .collect();
    let mut writes = stream::iter(writes).buffer_unordered(PARALLEL_WRITES);
    while let Some((object, result)) = writes.next().await {
        reported.absorb(ctx, object, result);
    }
    for object in observed.autoscalers.iter().filter(|object| !waits(&object.metadata)) {
        let result = autoscaler(ctx, object, plan, outcomes, &now).await;
        reported.absorb(ctx, &object.metadata, result);
    }
    reported
}

impl Reported {
    /// Takes in one write: whether it met a conflict, or failed.
    fn absorb(&mut self, ctx: &Context, object: &ObjectMeta, result: Result<bool, Error>) {
        match result {
            Ok(conflict) => {
                self.conflict |= conflict;
                ctx.backoff().over(object, Write::Status);
            }
            Err(error) if error.is_fenced() => {
                self.error.get_or_insert(error);
            }
            Err(error) => {
                let refusal =
                    Refusal { problem: chain(&error), is_final: error.is_refusal(), decision: None };
                ctx.refused(object, Write::Status, refusal, &error);
            }
        }
    }
}

/// How far the decision has come, if there is something to say about that; what was written is kept until a status says it.
fn standing(ctx: &Context, decision: &PoolDecision, outcome: &Outcome, now: &Time) -> Option<Standing> {
    Some(match outcome {
        Outcome::Scaled => ctx.unreported.remember(decision, Scaled::of(decision, now)),
        Outcome::Settled => ctx.unreported.recall(decision).map_or(Standing::Settled, Standing::Scaled),
        Outcome::Failed(error) => Standing::Failed(chain(error)),
        Outcome::Waiting(problem) => Standing::Failed(problem.clone()),
        // There will be another decision in a moment, or no pool to speak of.
        Outcome::Outdated => return None,
        Outcome::Gone => {
            ctx.unreported.forget(decision);
            return None;
        }
    })
}

async fn pool(
    ctx: &Context,
    decision: &PoolDecision,
    standing: &Standing,
    now: &Time,
) -> Result<bool, Error> {
    let decide = |fresh: &NodePool| pool_status::owned(fresh, decision, standing, now);
    let written = ctx.door.node_pool_status(&decision.object, decide).await;
    ctx.unreported.told(decision, standing, &written);
    let (namespace, name) = key(&decision.object.metadata);
    ended(written, "status", "NodePool", namespace, name)
}

async fn autoscaler(
    ctx: &Context,
    object: &NodePoolAutoscaler,
    plan: &Plan,
    outcomes: &[Outcome],
    now: &Time,
) -> Result<bool, Error> {
    let decide = |fresh: &NodePoolAutoscaler| {
        let mut status = autoscaler_status::status(fresh, plan, outcomes, now);
        let conditions = std::mem::take(&mut status.conditions);
        // A status of plain fields is always JSON; an empty part would be corrected by the next pass.
        OwnedStatus::new(&status, conditions).unwrap_or_default()
    };
    let written = ctx.door.autoscaler_status(object, decide).await;
    let (namespace, name) = key(&object.metadata);
    ended(written, "status", "NodePoolAutoscaler", namespace, name)
}

/// Whether the write met a conflict that the next pass has to resolve.
fn ended<T>(
    written: Result<Written<T>, WriteError>,
    what: &'static str,
    kind: &'static str,
    namespace: &str,
    name: &str,
) -> Result<bool, Error> {
    match written {
        Ok(Written::Conflict) => Ok(true),
        Ok(Written::Changed(_) | Written::Unchanged | Written::Gone | Written::Aborted) => Ok(false),
        Err(source) => Err(Error::Write { what, kind, name: format!("{namespace}/{name}"), source }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use planner::{
        fixtures::{NOW, Read as _, World},
        plan_for_cluster,
    };

    #[test]
    fn a_decision_that_no_status_says_yet_counts_in_the_next_pass() {
        let identified = |uid: &str| json!({ "metadata": { "uid": uid } });
        let world =
            World::new().autoscaler("x", json!({})).pool("a", identified("1")).pool("b", identified("2"));
        let mut world = world.pending("p", 1, "4", &json!({}));
        let plan = plan_for_cluster(&world.observed);
        let (grown, other) =
            if plan.desired("a") == 1 { (plan.pool("a"), "b") } else { (plan.pool("b"), "a") };
        let now = Time(NOW.parse().unwrap());

        let unreported = Unreported::default();
        assert!(unreported.missing_in(&world.observed.pools).is_empty());
        unreported.remember(grown, Scaled::of(grown, &now));
        let missing = unreported.missing_in(&world.observed.pools);
        assert_eq!(missing.keys().collect::<Vec<_>>(), [&uid(grown)], "not {other}");
        assert_eq!(missing[&uid(grown)].last_scale_up_time, Some(now.clone()));

        world.observed.unreported = missing;
        let pool = world.observed.pools.iter().find(|pool| pool.metadata.uid.as_deref() == Some(&uid(grown)));
        let remembered = world.observed.remembered(pool.unwrap()).unwrap();
        assert_eq!(remembered.last_scale_up_time, Some(now));

        unreported.forget(grown);
        assert!(unreported.missing_in(&world.observed.pools).is_empty());
    }

    #[test]
    fn a_written_decision_is_remembered_until_a_status_has_said_it_or_its_pool_is_gone() {
        let identified = |uid: &str| json!({ "metadata": { "uid": uid } });
        let world = World::eager().pool("a", identified("1")).pending("p", 1, "4", &json!({}));
        let plan = plan_for_cluster(&world.observed);
        let grown = plan.pool("a");
        let scaled = Scaled::of(grown, &Time(NOW.parse().unwrap()));
        let pools = &world.observed.pools;
        let (saying, other) = (Standing::Scaled(scaled.clone()), Standing::Failed("no".into()));
        for (what, standing, ended, kept) in [
            ("it was said", &saying, Written::Changed(()), false),
            ("it was said already", &saying, Written::Unchanged, false),
            ("the status was not written", &saying, Written::Conflict, true),
            ("something else was said", &other, Written::Changed(()), true),
            ("the pool is gone", &other, Written::Gone, false),
        ] {
            let unreported = Unreported::default();
            unreported.remember(grown, scaled.clone());
            unreported.told(grown, standing, &Ok(ended));
            assert_eq!(unreported.recall(grown).is_some(), kept, "{what}");
        }
        let unreported = Unreported::default();
        unreported.remember(grown, scaled);
        assert_eq!(unreported.missing_in(pools).len(), 1);
        unreported.missing_in(&[]);
        assert!(unreported.recall(grown).is_none(), "its pool was deleted");
    }
}

//! Says what was decided and what came of it: the Autoscaler's part of each pool's status, the status of each autoscaler,
//! and events. What to say is put together in the files below; this one writes.

pub mod autoscaler_status;
pub mod events;
pub mod pool_status;

use futures::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use shared_crds::NodePoolAutoscaler;
use shared_runtime::{
    error::chain,
    write::{OwnedStatus, WriteError, Written},
};

pub use self::events::Told;
use self::pool_status::Standing;
use crate::{
    apply::Outcome,
    context::Context,
    error::Error,
    plan::{Observed, Plan, PoolDecision, observed::key},
};

/// Statuses that are written at the same time.
const PARALLEL_WRITES: usize = 8;

/// What came of reporting.
#[derive(Debug, Default)]
pub struct Reported {
    /// Somebody wrote first, and the strategy leaves it to the next pass.
    pub conflict: bool,
    /// The first failure; the other statuses were written all the same.
    pub error: Option<Error>,
}

/// Writes all statuses that differ from what they should be, and publishes events.
pub async fn report(ctx: &Context, observed: &Observed, plan: &Plan, outcomes: &[Outcome]) -> Reported {
    let now = Time(observed.now);
    events::publish(&ctx.recorder, &ctx.told, observed, plan, outcomes);
    let mut reported = Reported::default();
    let pools: Vec<_> = plan.pools.iter().zip(outcomes).map(|(d, o)| pool(ctx, d, o, &now)).collect();
    let mut writes = stream::iter(pools).buffer_unordered(PARALLEL_WRITES);
    while let Some(result) = writes.next().await {
        reported.absorb(result);
    }
    for object in &observed.autoscalers {
        reported.absorb(autoscaler(ctx, object, plan, outcomes, &now).await);
    }
    reported
}

impl Reported {
    /// Takes in one write: whether it met a conflict, or failed.
    fn absorb(&mut self, result: Result<bool, Error>) {
        match result {
            Ok(conflict) => self.conflict |= conflict,
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
    }
}

async fn pool(ctx: &Context, decision: &PoolDecision, outcome: &Outcome, now: &Time) -> Result<bool, Error> {
    let standing = match outcome {
        Outcome::Settled => Standing::Settled,
        Outcome::Scaled { .. } => Standing::Scaled,
        Outcome::Failed(error) => Standing::Failed(chain(error)),
        // There will be another decision in a moment, or no pool to speak of.
        Outcome::Outdated | Outcome::Gone => return Ok(false),
    };
    let decide = |fresh: &shared_crds::NodePool| pool_status::owned(fresh, decision, &standing, now);
    let written = ctx.door.node_pool_status(&decision.object, decide).await;
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

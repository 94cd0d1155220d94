//! Errors other than conflicts: how `RetryOnConflict` handles them, and the right reaction.

use anyhow::{Context as _, Result};
use conflict_retry::policy::RetryPolicy;
use conflict_retry::{
    Outcome, RetryError, UpdateDecision, WriteError, WriteOptions, retry_on_conflict, update,
};
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};

use super::contest::owner_without_uid;
use super::unreachable::{BreakableConnection, without_rights};
use crate::context::{Actor, ScenarioContext};
use crate::event::Table;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "transient",
    title: "RetryOnConflict retries conflicts and nothing else",
    rows: &[],
    refutes: &["retry-handles-transient"],
    lesson: "Any error other than a conflict ends RetryOnConflict at once, even one that would be gone a moment later.\nThe meaning of an error decides what to do: give up, start over, or wait and try again. Only the last is a retry.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// A kind of failure that is not a conflict.
struct Trouble<'a> {
    what: &'static str,
    pools: Api<Pool>,
    /// The actors that send.
    actors: Vec<Actor>,
    pool: &'static str,
    /// Whether the change is one that every server rejects.
    spoils: bool,
    /// The connection to break for the next request, if any.
    connection: Option<&'a BreakableConnection>,
    /// Number of requests of each half, and the result of `update`.
    wanted: (usize, usize, &'static str),
}

impl Trouble<'_> {
    fn sent(&self) -> usize {
        self.actors.iter().map(|actor| actor.requests().len()).sum()
    }

    fn begin(&self) {
        if let Some(connection) = self.connection {
            connection.breaks_for(1);
        }
    }
}

async fn run(ctx: &ScenarioContext) -> Result<()> {
    ctx.set(&pool("workers", 3)).await?;
    let connection = BreakableConnection::new(ctx).await?;
    let (alice, mallory) = (ctx.actor("alice").await?, without_rights(ctx, "mallory").await?);
    let of = |actor: &Actor, what, pool, wanted| Trouble {
        what,
        pools: actor.api(),
        actors: vec![actor.clone()],
        pool,
        spoils: false,
        connection: None,
        wanted,
    };
    let workers = "workers";
    let troubles = [
        of(&alice, "There is no such pool", "deleted", (1, 1, "the outcome Gone")),
        Trouble {
            spoils: true,
            ..of(&alice, "The change is not valid", workers, (2, 2, "rejected: invalid"))
        },
        of(&mallory, "The writer may not do it", workers, (1, 1, "rejected: forbidden")),
        Trouble {
            what: "No connection, for one request",
            pools: connection.pools(),
            actors: connection.actors(),
            connection: Some(&connection),
            ..of(&alice, "", workers, (1, 3, "written"))
        },
    ];
    ctx.say("Four tasks that fail, none of them because of a conflict: read, change, PUT. First under `retry_on_conflict`, conflict-retry's port of client-go's RetryOnConflict, with DefaultRetry; then `update`.");
    let mut table =
        Table::new(&["", "requests by retry_on_conflict", "requests by update", "update answers"]);
    for trouble in troubles {
        shown(ctx, &trouble, &mut table).await?;
    }
    ctx.table(table);
    Ok(())
}

async fn shown(ctx: &ScenarioContext, trouble: &Trouble<'_>, table: &mut Table) -> Result<()> {
    ctx.say(&format!("{}.", trouble.what));
    let before = trouble.sent();
    trouble.begin();
    let is_unretried = by_retry(trouble).await?;
    let middle = trouble.sent();
    trouble.begin();
    let answer = by_update(trouble).await;
    let found = (middle - before, trouble.sent() - middle);
    table.row(&[&trouble.what, &found.0, &found.1, &answer]);
    let (first, second, wanted) = trouble.wanted;
    ctx.check(
        &format!("retry_on_conflict returns the error of its first attempt, after {}", requests(first)),
        is_unretried && found.0 == first,
    );
    ctx.check_eq(
        &format!("update answers after {}: {wanted}", requests(second)),
        &(found.1, answer.as_str()),
        &(second, wanted),
    );
    Ok(())
}

fn requests(count: usize) -> String {
    match count {
        1 => "one request".to_owned(),
        2 => "two requests".to_owned(),
        3 => "three requests".to_owned(),
        more => format!("{more} requests"),
    }
}

fn change(pool: &mut Pool, spoils: bool) {
    pool.spec.replicas = Some(5);
    if spoils {
        pool.owner_references_mut().push(owner_without_uid());
    }
}

/// Whether the retry ended with an error of its operation, instead of retrying it.
async fn by_retry(trouble: &Trouble<'_>) -> Result<bool> {
    let policy = RetryPolicy::client_go_default_retry();
    let answer = retry_on_conflict(&policy, || attempt(trouble)).await;
    Ok(matches!(answer.err().context("the write was granted")?, RetryError::Op(_)))
}

#[expect(clippy::disallowed_methods, reason = "the function inside RetryOnConflict")]
async fn attempt(trouble: &Trouble<'_>) -> Result<Pool, kube::Error> {
    let mut pool = trouble.pools.get(trouble.pool).await?;
    change(&mut pool, trouble.spoils);
    trouble.pools.replace(trouble.pool, &PostParams::default(), &pool).await
}

async fn by_update(trouble: &Trouble<'_>) -> String {
    let options = WriteOptions::new("alice");
    let answer = update(&trouble.pools, trouble.pool, |pool| {
        change(pool, trouble.spoils);
        UpdateDecision::Write
    })
    .put()
    .with(&options)
    .outcome()
    .await;
    match answer {
        Ok(Outcome::Gone) => "the outcome Gone".to_owned(),
        Ok(outcome) => outcome.label().to_owned(),
        Err(WriteError::Rejected { class, .. }) => format!("rejected: {}", class.label()),
        Err(error) => error.to_string(),
    }
}

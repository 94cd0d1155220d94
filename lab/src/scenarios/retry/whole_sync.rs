//! A retry around a whole sync, and what it repeats.

use anyhow::{Context as _, Result};
use conflict_retry::policy::RetryPolicy;
use conflict_retry::{
    MaybeConflict, RetryError, UpdateDecision, WriteError, WriteOptions, is_conflict, once,
    retry_on_conflict, update, update_status,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};

use super::contest::{Contest, GOAL};
use crate::context::ScenarioContext;
use crate::event::Table;
use crate::pool::{Pool, PoolStatus, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "whole-sync",
    title: "A retry around the whole sync repeats everything in it",
    rows: &["3f"],
    refutes: &["wrap-the-reconcile"],
    lesson: "Retry one write, with the decision inside; make each side effect once, under a name of its own.\nIf the whole sync must be decided again, return the error to the work queue instead.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

async fn run(ctx: &ScenarioContext) -> Result<()> {
    ctx.set(&pool("workers", 3)).await?;
    let contest = Contest::new(ctx, "builders").await?;
    let wrapped = wrapped(ctx, &contest).await?;
    let nested = nested(ctx, &contest).await?;
    let single = single(ctx).await?;
    let mut table = Table::new(&["", "Bob was faster", "requests", "notices"]);
    table.row(&[&"a retry around the sync", &"2 times", &wrapped.requests, &wrapped.notices]);
    table.row(&[&"a retry in a retry", &"each time", &nested.requests, &nested.notices]);
    table.row(&[&"a retry for each write", &"2 times", &single.requests, &single.notices]);
    ctx.table(table);
    Ok(())
}

/// The costs of a sync.
struct Cost {
    requests: usize,
    notices: usize,
}

/// Creates a notice for users, sets the status of one pool, and the spec of another.
#[expect(clippy::disallowed_methods, reason = "the sync as it is wrapped in tutorials")]
async fn sync(contest: &Contest) -> Result<(), kube::Error> {
    notices(contest).create(&PostParams::default(), &notice(None)).await?;
    let pools = contest.pools();
    let mut workers = pools.get("workers").await?;
    workers.status.get_or_insert_default().ready = Some(3);
    pools.replace_status("workers", &PostParams::default(), &workers).await?;
    contest.attempt().await.map(drop)
}

fn notices(contest: &Contest) -> Api<ConfigMap> {
    contest.alice.api()
}

/// A notice that the pool is being resized, with this name or a generated one.
fn notice(name: Option<&str>) -> ConfigMap {
    let metadata = ObjectMeta {
        name: name.map(str::to_owned),
        generate_name: name.is_none().then(|| "notice-".to_owned()),
        ..ObjectMeta::default()
    };
    let data = [("text".to_owned(), format!("builders is resized to {GOAL}"))].into();
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

/// Number of notices.
async fn notices_so_far(ctx: &ScenarioContext) -> Result<usize> {
    let maps = Api::<ConfigMap>::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
    let all = maps.list(&ListParams::default()).await.context("cannot list the notices")?;
    Ok(all.iter().filter(|map| map.name_any().starts_with("notice")).count())
}

async fn wrapped(ctx: &ScenarioContext, contest: &Contest) -> Result<Cost> {
    ctx.say("A sync sends a notice (a ConfigMap stands for it), sets the status of the pool `workers`, and gives the pool `builders` 5 replicas. All of it is wrapped in one `retry_on_conflict`, conflict-retry's port of RetryOnConflict. Bob writes `builders` first, twice.");
    contest.interfere(2);
    let policy = RetryPolicy::client_go_default_retry();
    let answer = retry_on_conflict(&policy, || sync(contest)).await;
    ctx.check("it succeeds, at the third run", answer.is_ok() && contest.is_written(ctx).await?);
    let cost = Cost { requests: contest.alice.requests().len(), notices: notices_so_far(ctx).await? };
    ctx.check_eq("three notices were sent", &cost.notices, &3);
    let repeated =
        contest.alice.requests().iter().filter(|request| request.target == "pools/workers/status").count();
    ctx.check_eq(
        "the status of `workers` was written three times, though no other writer touched that pool",
        &repeated,
        &3,
    );
    Ok(cost)
}

/// A sync whose last write has a retry of its own.
#[expect(clippy::disallowed_methods, reason = "the sync as it is wrapped in tutorials")]
async fn sync_with_retry(contest: &Contest) -> Result<(), Ended> {
    notices(contest).create(&PostParams::default(), &notice(None)).await.map_err(RetryError::Op)?;
    let policy = RetryPolicy::client_go_default_retry();
    retry_on_conflict(&policy, || contest.attempt()).await?;
    Ok(())
}

/// The result of the inner retry. As in client-go, where the result is the last conflict, it counts as a conflict.
#[derive(Debug, thiserror::Error)]
#[error("the write failed")]
struct Ended(#[from] RetryError<kube::Error>);

impl MaybeConflict for Ended {
    fn is_conflict(&self) -> bool {
        matches!(&self.0, RetryError::Exhausted { last, .. } if is_conflict(last))
    }
}

async fn nested(ctx: &ScenarioContext, contest: &Contest) -> Result<Cost> {
    let (requests, notices) = (contest.alice.requests().len(), notices_so_far(ctx).await?);
    let conflicts = contest.alice.counts().conflicts;
    contest.interfere(u32::MAX);
    let policy = RetryPolicy::client_go_default_retry();
    let intro = "Inside the sync, the write of `builders` is a helper that retries by itself. Five attempts in five attempts, against a Bob who is always faster.";
    let answer = ctx.racing(intro, retry_on_conflict(&policy, || sync_with_retry(contest))).await;
    contest.interfere(0);
    ctx.check("it ends with a conflict", answer.is_err());
    let conflicts = contest.alice.counts().conflicts - conflicts;
    ctx.check_eq("25 PUTs were refused, where the policy says five", &conflicts, &25);
    let cost = Cost {
        requests: contest.alice.requests().len() - requests,
        notices: notices_so_far(ctx).await? - notices,
    };
    ctx.check_eq("and five more notices sent", &cost.notices, &5);
    Ok(cost)
}

async fn single(ctx: &ScenarioContext) -> Result<Cost> {
    let contest = Contest::new(ctx, "painters").await?;
    let before = notices_so_far(ctx).await?;
    contest.interfere(2);
    ctx.say("Each write by itself: `update_status` and `update` retry their own write and nothing else, and decide inside. The notice is sent only when it is true, under a name of its own, so that a second sync finds it. Bob is faster twice, at `painters`.");
    let options = WriteOptions::new("alice");
    sync_by_writes(&contest, &options).await?;
    let cost =
        Cost { requests: contest.alice.requests().len(), notices: notices_so_far(ctx).await? - before };
    ctx.check("the pool has its replicas", contest.is_written(ctx).await?);
    ctx.check_eq("one notice was sent", &cost.notices, &1);
    let writes = |target: &str| {
        let all = contest.alice.requests();
        all.iter().filter(|request| request.is_write() && request.target == target).count()
    };
    ctx.check_eq(
        "the status of `workers` was written once, `painters` at the third attempt",
        &(writes("pools/workers/status"), writes("pools/painters")),
        &(1, 3),
    );
    ctx.say("The same sync again: everything is as it should be.");
    let (before, written) = (notices_so_far(ctx).await?, contest.alice.counts().written);
    sync_by_writes(&contest, &options).await?;
    ctx.check_eq(
        "it writes nothing, and sends no second notice",
        &(contest.alice.counts().written, notices_so_far(ctx).await?),
        &(written, before),
    );
    Ok(cost)
}

async fn sync_by_writes(contest: &Contest, options: &WriteOptions) -> Result<()> {
    let pools: Api<Pool> = contest.pools();
    let _status = update_status(&pools, "workers", |pool| {
        pool.status.get_or_insert_with(PoolStatus::default).ready = Some(4);
        UpdateDecision::Write
    })
    .put()
    .with(options)
    .outcome()
    .await?;
    let _spec = update(&pools, contest.name, |pool| {
        pool.spec.replicas = Some(GOAL);
        UpdateDecision::Write
    })
    .put()
    .with(options)
    .outcome()
    .await?;
    match once::create(&notices(contest), options, &notice(Some("notice-painters"))).await {
        Err(error) if !WriteError::is_already_exists(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

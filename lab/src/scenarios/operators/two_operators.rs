//! Two operators and a user that all write one object, and the owners of its fields.

use anyhow::{Context as _, Result};
use conflict_retry::{Outcome, UpdateDecision, WriteOptions, update};
use kube::api::PostParams;
use shared_crds::NodePool;
use shared_crds::names::{AUTOSCALER_OPERATOR, NODEPOOL_OPERATOR, POOL_FINALIZER};
use shared_crds::ownership;
use shared_crds::ownership::{Endpoint, Owner};
use testbed::audit::Event;
use testbed::lost_update_check::LostUpdateCheck;
use testbed::objects;
use testbed::request_costs::RequestCosts;
use testbed::write_effects::WriteEffects;

use super::account;
use super::account::Managed;
use super::tandem::{Tandem, passed};
use crate::context::{Actor, ScenarioContext};
use crate::event::Table;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "two-operators",
    title: "Two operators write one object, and neither loses a write",
    rows: &["2b", "2c", "2e"],
    refutes: &[],
    lesson: "Two writers of one object need a contract: each field has one owner, one endpoint, and one protection.\nThe server keeps records: managedFields names the writer of each field, and generation changes with the spec alone.",
    needs: Needs::Operators,
    run: |ctx| Box::pin(run(ctx)),
};

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let tandem = Tandem::begin(ctx, "guarded").await?;
    let played = play(&tandem).await;
    tandem.end(played).await
}

async fn play(tandem: &Tandem<'_>) -> Result<()> {
    let ctx = tandem.ctx;
    let alice = ctx.actor("alice").await?;
    let copy = nodes_come(tandem, &alice).await?;
    person_writes(tandem, &alice, copy).await?;
    let pool = tandem.settles("workers", 3).await?;
    whose_fields(ctx, &pool)?;
    what_happened(tandem, &pool).await
}

/// Creates the pool, the autoscaler and a load; returns the pool as Alice created it.
#[expect(clippy::disallowed_methods, reason = "a user creates an object, and is its only creator")]
async fn nodes_come(tandem: &Tandem<'_>, alice: &Actor) -> Result<NodePool> {
    let ctx = tandem.ctx;
    ctx.say("Two operators run: one makes the nodes of a NodePool, the other, the Autoscaler, decides how many. Alice makes a pool of machines with 4 cpus, at least 1 and at most 10, and begins with 1.");
    let params = PostParams { field_manager: Some("alice".to_owned()), ..PostParams::default() };
    let mut pool = objects::pool("workers", 1, 10);
    pool.spec.replicas = Some(1);
    let copy = alice.api::<NodePool>().create(&params, &pool).await?;

    ctx.say("A NodePoolAutoscaler selects it, and a Deployment asks for 6 pods of 2 cpus: two to a node. The Autoscaler writes spec.replicas and its part of the status; the NodePool operator makes the nodes and writes its own part. No other writer changes the pool.");
    ctx.set(&objects::autoscaler("all", 600)).await?;
    ctx.set(&objects::deployment("web", "workers", 6, "2")).await?;
    tandem.pods_run(6).await?;
    let pool = tandem.settles("workers", 3).await?;
    ctx.check_eq(
        "6 pods run on 3 ready nodes, as many as spec.replicas says",
        &(pool.spec.replicas, pool.status.and_then(|status| status.ready_replicas)),
        &(Some(3), Some(3)),
    );
    Ok(copy)
}

/// A user's write from an old copy, and the same from the current version.
#[expect(clippy::disallowed_methods, reason = "a user's bare PUT is the naive half")]
async fn person_writes(tandem: &Tandem<'_>, alice: &Actor, mut copy: NodePool) -> Result<()> {
    let ctx = tandem.ctx;
    ctx.say("Alice still has the pool as she made it. She lowers its upper bound to 8 in that copy and sends it back.");
    copy.spec.max_replicas = 8;
    let params = PostParams { field_manager: Some("alice".to_owned()), ..PostParams::default() };
    let answer = alice.api::<NodePool>().replace("workers", &params, &copy).await;
    let code = match answer {
        Err(kube::Error::Api(status)) => status.code,
        Ok(_) => 200,
        Err(error) => return Err(error.into()),
    };
    ctx.check_eq("409: what the operators have written since counts, though none of it is hers", &code, &409);

    let options = WriteOptions::new("alice");
    let pools = alice.api::<NodePool>();
    let change = update(&pools, "workers", |pool| {
        pool.spec.max_replicas = 8;
        UpdateDecision::Write
    })
    .put()
    .with(&options)
    .outcome();
    let what = "She changes the bound in what is there now, by conflict-retry's update: a read, a PUT, and again from a new read if an operator comes between.";
    let Outcome::Written(pool) = ctx.racing(what, change).await? else {
        anyhow::bail!("the bound was not written")
    };
    let held = pool.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == POOL_FINALIZER);
    ctx.check(
        "her bound is there, and so are the Autoscaler's replicas and the NodePool operator's finalizer and status",
        pool.spec.max_replicas == 8
            && pool.spec.replicas == Some(3)
            && held
            && pool.status.is_some_and(|status| status.replicas == Some(3)),
    );
    Ok(())
}

/// Compares `managedFields` with the ownership contract.
fn whose_fields(ctx: &ScenarioContext, pool: &NodePool) -> Result<()> {
    ctx.say("The API server records in managedFields who wrote which field:");
    let mut table = Table::new(&["field manager", "through", "by", "fields"]);
    let book = account::managed(pool)?;
    for Managed { manager, subresource, operation, fields } in &book {
        let through =
            if subresource.is_empty() { "nodepools".into() } else { format!("nodepools/{subresource}") };
        for (number, line) in lines(fields).into_iter().enumerate() {
            if number == 0 {
                table.row(&[manager, &through, operation, &line]);
            } else {
                table.row(&[&"", &"", &"", &line]);
            }
        }
    }
    ctx.table(table);
    let strays: Vec<_> = book.iter().flat_map(strays).collect();
    ctx.check_eq(
        "each field of spec and status is managed by the one that the contract names",
        &strays,
        &Vec::new(),
    );
    let has = |name: &str| book.iter().any(|entry| entry.manager == name && !entry.fields.is_empty());
    ctx.check(
        "both operators manage fields of this one object",
        has(NODEPOOL_OPERATOR) && has(AUTOSCALER_OPERATOR),
    );
    Ok(())
}

/// The fields of `entry` that it must not own.
fn strays(entry: &Managed) -> Vec<String> {
    let owner = match entry.manager.as_str() {
        NODEPOOL_OPERATOR => Owner::NodepoolOperator,
        AUTOSCALER_OPERATOR => Owner::AutoscalerOperator,
        _ => Owner::User,
    };
    let is_own = |field: &&String| {
        if let Some(type_) = field.strip_prefix("condition ") {
            return ownership::conditions(owner).any(|own| own.as_str() == type_);
        }
        if field.starts_with("metadata.") {
            return true;
        }
        ownership::rule_for(field).is_some_and(|rule| match rule.owner {
            Owner::Scaler => owner == Owner::AutoscalerOperator && rule.endpoint == Endpoint::Scale,
            expected => expected == owner,
        })
    };
    entry
        .fields
        .iter()
        .filter(|field| !is_own(field))
        .map(|field| format!("{}: {field}", entry.manager))
        .collect()
}

/// Fields as text, several per line.
fn lines(fields: &[String]) -> Vec<String> {
    fields.chunks(3).map(|some| some.join(", ")).collect()
}

/// The history of the object from the audit log, and checks of it.
async fn what_happened(tandem: &Tandem<'_>, pool: &NodePool) -> Result<()> {
    let ctx = tandem.ctx;
    let key = tandem.key("workers");
    let events = tandem.events("workers").await?;
    ctx.say("And the audit log holds every write, in its order. In a terminal the timeline is shown; it differs from run to run. What is the same in every run:");
    ctx.live_table(account::timeline(&events, &key));
    let ours: Vec<&Event> =
        events.iter().filter(|event| event.object.as_ref() == Some(&key) && event.is_write()).collect();
    let wrote =
        |name: &str| ours.iter().any(|event| account::operator(event) == Some(name) && event.succeeded());
    ctx.check("both operators wrote it", wrote(NODEPOOL_OPERATOR) && wrote(AUTOSCALER_OPERATOR));
    let effects = WriteEffects::of(&events, &key);
    ctx.check("no version changes a field that is not its writer's", passed(ctx, &effects.check_owned()));
    let check = LostUpdateCheck::of(&events, &key);
    ctx.check(
        "every granted write that names a resourceVersion named the newest one: it replaced nothing that its writer had not read",
        passed(ctx, &check.check_unbroken()) && check.checked > 0,
    );
    let bill = account::bill(&events, &key);
    ctx.check_eq(
        "no write of the operators was refused, neither with 409 nor with 422",
        &(bill.conflicts, bill.invalid),
        &(0, 0),
    );
    let costs = RequestCosts::of(&events, |object| *object == key);
    let moved = |target: &str| {
        let rows = costs.rows.iter().filter(|row| target.is_empty() || row.target == target);
        rows.map(|row| row.generation_moved).sum::<u64>()
    };
    ctx.check_eq("no write of a status moved the generation", &moved("nodepools/status"), &0);
    let generation = pool.metadata.generation.context("no generation")?;
    ctx.check_eq(
        "the generation is as high as the number of writes that changed the spec",
        &u64::try_from(generation)?,
        &moved(""),
    );
    ctx.say(&format!("Why do the operators meet no 409? {}", account::WHY_NO_409));
    ctx.check(
        "so it was: each of their writes is a forced apply without a version, or a JSON Patch that tests what it was decided from",
        account::cannot_conflict(ctx, ours),
    );
    Ok(())
}

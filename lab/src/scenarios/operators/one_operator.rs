//! One operator with two controllers, each for a kind of its own: Pools, and the Foos that belong to them. Both report in the
//! status of the Pool, and both read the operator's one cache.

use anyhow::{Context as _, Result};
use conflict_retry::{WriteOptions, apply_status, is_conflict};
use kube::api::PostParams;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use crate::cache::Cache;
use crate::context::{Actor, ScenarioContext};
use crate::event::Table;
use crate::pool::{Foo, FooSpec, Pool, PoolStatus, pool};

/// Field manager of the controller of Pools.
const OF_POOLS: &str = "operator-pools";
/// Field manager of the controller of Foos.
const OF_FOOS: &str = "operator-foos";
/// Number of Foos of each Pool.
const FOOS: i32 = 2;

/// Shows the operator, first with a PUT of the whole status by each controller, then with an apply of its own field.
pub(super) async fn show(ctx: &ScenarioContext) -> Result<()> {
    ctx.say("One operator may have several controllers. The lab's own small operator has two, in one program, with one account and one cache. The controller of Pools makes the Foos of each Pool, and reports their number as `status.replicas`. The controller of Foos sets their greeting, and reports in the Pool how many have one, as `status.ready`.");
    let actor = ctx.actor("operator").await?;
    let pools = Cache::<Pool>::start(&actor, Box::new(|_| {})).await?;
    let operator = Operator { ctx, actor, pools };
    let mut table = Table::new(&["each controller sends", "status writes", "409s", "replicas", "ready"]);
    operator.by_put(&mut table).await?;
    operator.by_apply(&mut table).await?;
    ctx.table(table);
    Ok(())
}

struct Operator<'a> {
    ctx: &'a ScenarioContext,
    actor: Actor,
    pools: Cache<Pool>,
}

impl Operator<'_> {
    async fn by_put(&self, table: &mut Table) -> Result<()> {
        let name = "by-put";
        let made = self.begin(name).await?;
        self.ctx.say("First, each controller takes the Pool from the cache, sets its field, and sends the whole status as a PUT. The events of the watch are held back for a moment. So the cache does not have the first report when the second is made.");
        let gate = self.pools.close_gate();
        let foos = self.make_foos(&made).await?;
        let first = self.put_report(name, |status| status.replicas = Some(FOOS)).await;
        self.greet(foos).await?;
        let second = self.put_report(name, |status| status.ready = Some(FOOS)).await;
        self.ctx.check("the report of the controller of Pools is granted", first.is_ok());
        self.ctx.check(
            "that of the controller of Foos is answered 409: the operator is in conflict with itself. The server compares versions; who writes makes no difference",
            second.is_err_and(|error| is_conflict(&error)),
        );
        self.ctx.say("The watch catches up, and the controller of Foos reports again.");
        drop(gate);
        self.catch_up(name).await?;
        let again = self.put_report(name, |status| status.ready = Some(FOOS)).await;
        self.ctx.check("now it is granted", again.is_ok());
        self.add_row(table, "the whole status, in a PUT", name, (3, 1)).await
    }

    async fn by_apply(&self, table: &mut Table) -> Result<()> {
        let name = "by-apply";
        let made = self.begin(name).await?;
        self.ctx.say("Now each controller applies its own field and no other, under a field manager of its own. The events are held back until both have reported.");
        let gate = self.pools.close_gate();
        let foos = self.make_foos(&made).await?;
        self.apply_report(name, OF_POOLS, json!({"replicas": FOOS})).await?;
        self.greet(foos).await?;
        self.apply_report(name, OF_FOOS, json!({"ready": FOOS})).await?;
        drop(gate);
        let stored = self.ctx.stored::<Pool>(name).await?;
        self.ctx.check_eq(
            "each controller owns the field that it reports, and no other field of the status",
            &(reported_by(&stored, OF_POOLS), reported_by(&stored, OF_FOOS)),
            &(vec!["f:replicas".to_owned()], vec!["f:ready".to_owned()]),
        );
        self.add_row(table, "its own field, in an apply", name, (2, 0)).await
    }

    /// A new Pool, once the cache has it.
    async fn begin(&self, name: &str) -> Result<Pool> {
        let made = self.ctx.set(&pool(name, FOOS)).await?;
        self.catch_up(name).await?;
        Ok(made)
    }

    async fn catch_up(&self, name: &str) -> Result<()> {
        let stored = self.ctx.stored::<Pool>(name).await?;
        self.pools.holds(name, &stored.resource_version().context("no version")?).await
    }

    /// The controller of Pools: makes the Foos of a Pool, which owns them.
    #[expect(clippy::disallowed_methods, reason = "the operator is their only creator")]
    async fn make_foos(&self, pool: &Pool) -> Result<Vec<Foo>> {
        let owner = pool.controller_owner_ref(&()).context("the pool has no UID")?;
        let mut foos = Vec::new();
        for number in 0..FOOS {
            let mut child = Foo::new(&format!("{}-{number}", pool.name_any()), FooSpec::default());
            child.metadata.owner_references = Some(vec![owner.clone()]);
            foos.push(self.actor.api::<Foo>().create(&PostParams::default(), &child).await?);
        }
        Ok(foos)
    }

    /// The controller of Foos: sets the greeting in each.
    #[expect(clippy::disallowed_methods, reason = "nobody else writes the Foos, so a PUT is enough")]
    async fn greet(&self, foos: Vec<Foo>) -> Result<()> {
        for mut child in foos {
            child.spec.greeting = Some("Hello".to_owned());
            self.actor.api::<Foo>().replace(&child.name_any(), &PostParams::default(), &child).await?;
        }
        Ok(())
    }

    /// A PUT of the status, made from the cached copy.
    #[expect(clippy::disallowed_methods, reason = "the naive half")]
    async fn put_report(&self, name: &str, report: impl Fn(&mut PoolStatus)) -> Result<Pool, kube::Error> {
        let mut copy = self.pools.copy(name).map_err(|error| kube::Error::Service(error.into()))?;
        report(copy.status.get_or_insert_default());
        self.actor.api::<Pool>().replace_status(name, &PostParams::default(), &copy).await
    }

    async fn apply_report(&self, name: &str, manager: &str, status: Value) -> Result<()> {
        let body = json!({
            "apiVersion": "lab.tandem.dev/v1", "kind": "Pool", "metadata": {"name": name}, "status": status,
        });
        let (pools, options) = (self.actor.api::<Pool>(), WriteOptions::new(manager));
        let outcome = apply_status(&pools, name, &body).with(&options).outcome().await?;
        outcome.met().map(drop).context("the report was not written")
    }

    /// Adds a row, and checks the number of writes to the status with that of conflicts, and the status.
    async fn add_row(&self, table: &mut Table, what: &str, name: &str, wanted: (usize, usize)) -> Result<()> {
        let target = format!("pools/{name}/status");
        let requests = self.actor.requests();
        let sent = requests.iter().filter(|request| request.target == target);
        let writes = sent.clone().count();
        let conflicts = sent.filter(|request| request.code == 409).count();
        self.ctx.check_eq(
            &format!("{} writes of the status, of which {} met a conflict", wanted.0, wanted.1),
            &(writes, conflicts),
            &wanted,
        );
        let status = self.ctx.stored::<Pool>(name).await?.status.unwrap_or_default();
        self.ctx.check_eq(
            "the status has what both controllers reported",
            &(status.replicas, status.ready),
            &(Some(FOOS), Some(FOOS)),
        );
        let shown = |count: Option<i32>| count.map_or_else(|| "none".to_owned(), |count| count.to_string());
        table.row(&[&what, &writes, &conflicts, &shown(status.replicas), &shown(status.ready)]);
        Ok(())
    }
}

/// The fields of the status that `manager` owns, as `managedFields` names them.
fn reported_by(pool: &Pool, manager: &str) -> Vec<String> {
    let entries = pool.metadata.managed_fields.iter().flatten();
    let own = entries.filter(|entry| entry.manager.as_deref() == Some(manager));
    let fields = own.filter_map(|entry| entry.fields_v1.as_ref()?.0.get("f:status")?.as_object());
    fields.flat_map(|fields| fields.keys().cloned()).collect()
}

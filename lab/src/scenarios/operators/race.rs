//! One race of two operators, step by step, twice: with a requeue, and with a retry. The order is forced, so that the
//! timeline and the costs are the same in every run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Result, bail};
use conflict_retry::{
    Outcome, ScaleDecision, ScaleGuard, ScaleView, Source, Subresource, UpdateDecision, WriteOptions, once,
    scale, update_status,
};
use kube::client::Body;
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::service_fn;

use super::pauses;
use super::pauses::Pauses;
use crate::cache::Cache;
use crate::context::{Actor, ScenarioContext};
use crate::event::{RecordedRequest, Table};
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "race",
    title: "Two operators race: requeue the reconcile, or retry the write",
    rows: &["2e", "2f", "2g"],
    refutes: &[],
    lesson: "Lazy discards a reconcile for each 409; the retry keeps the reconcile, and costs a pause and a read.\nBoth are correct, because both decide again from the stored object: neither sends its old decision a second time.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The pool's initial number of nodes.
const FIRST: i32 = 2;
/// Number of ready nodes, and number of nodes that the load needs, for each race.
const RACES: [(i32, i32); 3] = [(2, 3), (3, 4), (4, 5)];

/// The write strategies. Both decide from the cache at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    /// The copy in the cache, once; after a conflict the pass is requeued.
    Lazy,
    /// The copy in the cache; after a conflict a pause, a live read and the decision again, until a PUT is granted.
    Retry,
}

impl Strategy {
    const fn name(self) -> &'static str {
        match self {
            Self::Lazy => "lazy",
            Self::Retry => "retry",
        }
    }
}

/// The costs of a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bill {
    passes: usize,
    thrown: usize,
    requests: usize,
    granted: usize,
    conflicts: usize,
}

async fn run(ctx: &ScenarioContext) -> Result<()> {
    ctx.say("Two operators write one pool. The Autoscaler sets spec.replicas through /scale, as many as the load needs. The NodePool operator reports in the status how many are wanted and how many are ready. Three times a node has become ready and the load has risen, so both begin a pass, and the Autoscaler's write is first.");
    ctx.say("The lazy way: a pass decides from the operator's cache, which costs no request, and PUTs that copy with the change. At a 409 it ends, and the work queue starts it from the beginning when the cache has the other write.");
    let lazy = races(ctx, Strategy::Lazy).await?;
    ctx.say("The same races with a retry, from the same caches. At a 409 the pass does not end: conflict-retry's update_status and scale wait 20 ms, and up to half of that again by chance, read live, and decide again from that.");
    let retry = races(ctx, Strategy::Retry).await?;
    ctx.say("The costs, without the caches' own list and watch. A pass costs no request here except its write; what passes of real operators cost is in the scenario strategies.");
    ctx.table(table(&[(Strategy::Lazy, lazy), (Strategy::Retry, retry)]));
    let races = RACES.len();
    ctx.check_eq("lazy: each race threw one pass of three away", &(lazy.passes, lazy.thrown), &(9, races));
    ctx.check_eq("retry: none was thrown away", &(retry.passes, retry.thrown), &(6, 0));
    ctx.check_eq("both met the same 409s", &(lazy.conflicts, retry.conflicts), &(races, races));
    ctx.check_eq(
        "both had the same writes granted, and the retry sent one request more for each 409, its read",
        &(lazy.granted, retry.granted, retry.requests),
        &(6, 6, lazy.requests + races),
    );
    Ok(())
}

fn table(bills: &[(Strategy, Bill)]) -> Table {
    let mut table = Table::new(&[
        "",
        "passes",
        "thrown away",
        "requests",
        "granted writes",
        "requests per granted write",
    ]);
    for (strategy, bill) in bills {
        let hundredths = bill.requests * 100 / bill.granted.max(1);
        let per_write = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        table.row(&[&strategy.name(), &bill.passes, &bill.thrown, &bill.requests, &bill.granted, &per_write]);
    }
    table
}

/// All races under one strategy.
async fn races(ctx: &ScenarioContext, strategy: Strategy) -> Result<Bill> {
    let name = strategy.name();
    ctx.set(&pool(name, FIRST)).await?;
    let what = format!(
        "The pool `{name}` is made with {FIRST} replicas. Each operator lists and watches pools for its cache."
    );
    let (scaler, reporter) = ctx
        .racing(&what, async {
            let scaler = Operator::new(ctx, "autoscaler", strategy).await?;
            let reporter = Operator::new(ctx, "nodepool", strategy).await?;
            synced(ctx, &scaler, &reporter).await?;
            anyhow::Ok((scaler, reporter))
        })
        .await?;
    let before = (scaler.actor.counts(), reporter.actor.counts());
    for (ready, load) in RACES {
        ctx.say(&format!("{ready} nodes are ready, and the load needs {load}."));
        race(&scaler, &reporter, ready, load).await?;
        let stored = ctx.stored::<Pool>(name).await?;
        let status = stored.status.unwrap_or_default();
        ctx.check_eq(
            &format!("{load} are set, and the report says {load} wanted, {ready} ready"),
            &(stored.spec.replicas, status.replicas, status.ready),
            &(Some(load), Some(load), Some(ready)),
        );
        synced(ctx, &scaler, &reporter).await?;
    }
    let ahead: Vec<_> = granted(&scaler).map(|put| put.from).collect();
    let refused = reporter.actor.requests().into_iter().filter(|request| request.code == 409);
    ctx.check_eq(
        "each 409 is a PUT from the very version that the Autoscaler's write had replaced",
        &refused.map(|put| put.from).collect(),
        &ahead,
    );
    if strategy == Strategy::Retry {
        reporter.pauses.check(ctx, RACES.len());
    }
    let mut bill = Bill { passes: 0, thrown: 0, requests: 0, granted: 0, conflicts: 0 };
    for (operator, before) in [(&scaler, before.0), (&reporter, before.1)] {
        let after = operator.actor.counts();
        bill.passes += operator.passes.load(Ordering::SeqCst);
        bill.thrown += operator.thrown.load(Ordering::SeqCst);
        bill.requests += after.requests - before.requests;
        bill.granted += after.written - before.written;
        bill.conflicts += after.conflicts - before.conflicts;
    }
    Ok(bill)
}

/// The granted writes of an operator.
fn granted(operator: &Operator<'_>) -> impl Iterator<Item = RecordedRequest> {
    operator.actor.requests().into_iter().filter(|request| request.is_write() && request.succeeded())
}

/// Waits until both caches are up to date.
async fn synced(ctx: &ScenarioContext, scaler: &Operator<'_>, reporter: &Operator<'_>) -> Result<()> {
    let name = scaler.strategy.name();
    let version = ctx.stored::<Pool>(name).await?.resource_version().unwrap_or_default();
    scaler.cache.holds(name, &version).await?;
    reporter.cache.holds(name, &version).await
}

/// Both run a pass; the reporter's first PUT is delayed until the scaler's pass is over.
async fn race(scaler: &Operator<'_>, reporter: &Operator<'_>, ready: i32, load: i32) -> Result<()> {
    reporter.gate.is_closed.store(true, Ordering::SeqCst);
    let reports = async {
        let done = reporter.report(ready).await;
        if reporter.gate.is_closed.swap(false, Ordering::SeqCst) {
            // It did not reach a PUT, and the other one must not wait for it.
            reporter.gate.reached.notify_one();
        }
        done
    };
    let ahead = async {
        reporter.gate.reached.notified().await;
        let done = scaler.scale(load).await;
        reporter.gate.open.notify_one();
        done
    };
    futures::future::try_join(reports, ahead).await.map(drop)
}

/// Delays one PUT.
#[derive(Default)]
struct Gate {
    is_closed: AtomicBool,
    reached: Notify,
    open: Notify,
}

/// `client`, whose next PUT waits while the gate is closed, and whose pauses are measured.
fn behind(gate: &Arc<Gate>, pauses: &Arc<Pauses>, client: Client, namespace: &str) -> Client {
    let (gate, pauses) = (Arc::clone(gate), Arc::clone(pauses));
    let service = service_fn(move |request: http::Request<Body>| {
        let (client, gate, pauses) = (client.clone(), Arc::clone(&gate), Arc::clone(&pauses));
        async move {
            pauses.sends(Instant::now());
            if request.method() == http::Method::PUT && gate.is_closed.swap(false, Ordering::SeqCst) {
                gate.reached.notify_one();
                gate.open.notified().await;
            }
            let answer = client.send(request).await?;
            if answer.status() == http::StatusCode::CONFLICT {
                pauses.refused(Instant::now());
            }
            Ok::<_, kube::Error>(answer)
        }
    });
    Client::new(service, namespace)
}

/// One operator with its task.
struct Operator<'a> {
    ctx: &'a ScenarioContext,
    actor: Actor,
    strategy: Strategy,
    cache: Cache<Pool>,
    gate: Arc<Gate>,
    pauses: Arc<Pauses>,
    pools: Api<Pool>,
    options: WriteOptions,
    passes: AtomicUsize,
    thrown: AtomicUsize,
}

impl<'a> Operator<'a> {
    async fn new(ctx: &'a ScenarioContext, name: &str, strategy: Strategy) -> Result<Self> {
        let actor = ctx.actor(name).await?;
        let cache = Cache::start(&actor, Box::new(|_| {})).await?;
        let (gate, pauses) = (Arc::<Gate>::default(), Arc::<Pauses>::default());
        let client = behind(&gate, &pauses, actor.client(), ctx.namespace());
        let pools = Api::namespaced(client, ctx.namespace());
        let options =
            WriteOptions::new(name).with_policy(pauses::policy()?).with_observer(Arc::clone(&pauses) as _);
        let (begun, thrown) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Self { ctx, actor, strategy, cache, gate, pauses, pools, options, passes: begun, thrown })
    }

    /// Passes of the Autoscaler, until one succeeds.
    async fn scale(&self, load: i32) -> Result<()> {
        loop {
            let name = self.begins();
            let decided = |view: &ScaleView| {
                self.act(&format!("decides: {} are set, {load} are needed", count_text(view.replicas)));
            };
            let copy = self.cache.copy(name)?;
            let view = ScaleView::of(&copy, copy.spec.replicas, None);
            let outcome = match self.strategy {
                Strategy::Lazy => {
                    decided(&view);
                    once::put_scale(&self.pools, name, &self.options, &view, load).await?
                }
                Strategy::Retry => {
                    scale(&self.pools, name, |view| {
                        decided(view);
                        ScaleDecision::Set(load)
                    })
                    .guarded_by(ScaleGuard::VersionByPut)
                    .with(&self.options)
                    .from(Source::Copy(view))
                    .outcome()
                    .await?
                }
            };
            if self.is_through(outcome).await? {
                return Ok(());
            }
        }
    }

    /// Passes of the `NodePool` operator, until one succeeds.
    async fn report(&self, ready: i32) -> Result<()> {
        loop {
            let name = self.begins();
            let decide = |pool: &mut Pool| {
                let wanted = pool.spec.replicas;
                self.act(&format!("decides: the report is {} wanted, {ready} ready", count_text(wanted)));
                let status = pool.status.get_or_insert_default();
                (status.replicas, status.ready) = (wanted, Some(ready));
            };
            let mut copy = self.cache.copy(name)?;
            let outcome = match self.strategy {
                Strategy::Lazy => {
                    decide(&mut copy);
                    once::put(&self.pools, name, Subresource::Status, &self.options, &copy).await?
                }
                Strategy::Retry => {
                    update_status(&self.pools, name, |pool| {
                        decide(pool);
                        UpdateDecision::Write
                    })
                    .put()
                    .with(&self.options)
                    .from(Source::Copy(copy))
                    .outcome()
                    .await?
                }
            };
            if self.is_through(outcome).await? {
                return Ok(());
            }
        }
    }

    /// Counts and records a pass; returns the pool's name.
    fn begins(&self) -> &'static str {
        let number = self.passes.fetch_add(1, Ordering::SeqCst) + 1;
        self.act(&format!("pass {number} begins"));
        self.strategy.name()
    }

    /// Whether the pass wrote. Otherwise waits until the cache is up to date, for the next pass.
    async fn is_through<T>(&self, outcome: Outcome<T>) -> Result<bool> {
        let number = self.passes.load(Ordering::SeqCst);
        match outcome {
            Outcome::Written(_) => {
                self.act(&format!("pass {number} is done"));
                Ok(true)
            }
            Outcome::Conflict(_) => {
                self.thrown.fetch_add(1, Ordering::SeqCst);
                self.act(&format!("pass {number} is thrown away, and queued again"));
                let name = self.strategy.name();
                let version = self.ctx.stored::<Pool>(name).await?.resource_version().unwrap_or_default();
                self.cache.holds(name, &version).await?;
                Ok(false)
            }
            other => bail!("the write ended as {}", other.label()),
        }
    }

    fn act(&self, text: &str) {
        self.ctx.act(self.actor.name(), text);
    }
}

fn count_text(replicas: Option<i32>) -> String {
    replicas.map_or_else(|| "none".to_owned(), |replicas| replicas.to_string())
}

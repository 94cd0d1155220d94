//! A third controller on `NodePool`, small and complete: it says on each pool whether the pool costs more than it may. It owns one
//! condition, and writes nothing else. The guide `docs/guides/third-controller.md` goes through it; its code is copied from here.
//!
//! `cost_operator NAMESPACE` follows the pools of that namespace. `cost_operator NAMESPACE --policy` prints the admission policy that
//! holds its account to what it owns.

mod contract;
mod report;

use std::error::Error;
use std::sync::Arc;

use conflict_retry::controller::{ObjectBackoff, fresh_only};
use conflict_retry::freshness::{ChangeKind, Expectations};
use conflict_retry::{WriteError, WriteOptions, apply_status};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Config, Resource as _, ResourceExt as _};
use serde_json::json;
use shared_crds::NodePool;

/// What a reconcile needs.
struct Context {
    pools: Api<NodePool>,
    options: WriteOptions,
    /// The own writes that the watch has not brought yet.
    writes: Expectations,
}

// guide: reconcile
async fn reconcile(pool: Arc<NodePool>, context: Arc<Context>) -> Result<Action, WriteError> {
    let wanted = report::within_budget(&pool, &now());
    // Nothing has changed of what is reported: nothing is sent, and no controller is woken.
    if report::present(&pool) == Some(&wanted) {
        return Ok(Action::await_change());
    }
    // Own fields only, and all of them: what is left out of an apply is given up.
    let body = json!({
        "apiVersion": NodePool::api_version(&()),
        "kind": NodePool::kind(&()),
        "status": {"conditions": [wanted]},
    });
    let name = pool.name_any();
    let outcome = apply_status(&context.pools, &name, &body).with(&context.options).outcome().await?;
    let action = outcome.action();
    if let Some(stored) = outcome.met() {
        println!("{name}: {} is {}, {}", wanted.type_, wanted.status, wanted.message);
        context.writes.wrote(&stored, ChangeKind::Updated);
    }
    Ok(action)
}
// end

#[expect(clippy::disallowed_methods, reason = "the one clock of this program")]
fn now() -> Time {
    Time(Timestamp::now())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let namespace = arguments.next().ok_or("name the namespace of the pools")?;
    if arguments.any(|argument| argument == "--policy") {
        println!("{:#}", contract::policy(&namespace));
        return Ok(());
    }
    // guide: run
    let mut config = Config::infer().await?;
    // One layer of retries is enough.
    config.default_retry = false;
    let pools: Api<NodePool> = Api::namespaced(Client::try_from(config)?, &namespace);
    let context = Arc::new(Context {
        pools: pools.clone(),
        // The field manager.
        options: WriteOptions::new(contract::COST_OPERATOR),
        writes: Expectations::new("nodepools"),
    });
    // A failing pool waits longer each time. A copy that is older than an own write is not decided from.
    let backoff = ObjectBackoff::default();
    let reconciler = fresh_only(&context.writes, backoff.reconciler(reconcile));
    let mut results = Controller::new(pools, watcher::Config::default())
        .run(reconciler, backoff.error_policy(), context)
        .boxed();
    // end
    while let Some(result) = results.next().await {
        if let Err(error) = result {
            eprintln!("{error}");
        }
    }
    Err("the watch has ended".into())
}

//! The meaning of a resourceVersion, read from etcd itself.

use anyhow::{Context as _, Result, ensure};
use conflict_retry::freshness::Version;
use k8s_openapi::ByteString;
use kube::api::{Patch, PatchParams};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::context::{Actor, ScenarioContext};
use crate::event::{Table, version};
use crate::pool::{GROUP, Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "etcd-revision",
    title: "A resourceVersion is the etcd revision of the object's last write",
    rows: &["0c"],
    refutes: &["revision-per-item"],
    lesson: "etcd numbers every write with one counter; an object's resourceVersion is that number at its last write.\nSince Kubernetes 1.35 the larger of two versions is the newer one. Writes to other objects leave gaps between them, so never compute the next one.",
    needs: Needs::Embedded,
    run: |ctx| Box::pin(run(ctx)),
};

/// etcd's metadata of a key.
struct Key {
    /// The revision of the store at which the key was created.
    created: u64,
    /// The revision of the store at which the key was last written.
    modified: u64,
    /// Number of writes of the key since it was created.
    writes: u64,
    /// The current revision of the store.
    store: u64,
}

/// Access to etcd through its JSON gateway.
struct Etcd {
    client: Client,
    namespace: String,
}

impl Etcd {
    async fn key(&self, name: &str) -> Result<Key> {
        let path = format!("/registry/{GROUP}/pools/{}/{name}", self.namespace);
        let key = ByteString(path.into_bytes());
        let body = serde_json::to_vec(&json!({"key": key}))?;
        let request = http::Request::post("/v3/kv/range").body(body)?;
        let answer: Value = self.client.request(request).await.context("etcd does not answer")?;
        let number = |pointer: &str| {
            let text = answer.pointer(pointer).and_then(Value::as_str);
            text.and_then(|text| text.parse().ok()).with_context(|| format!("etcd says no {pointer}"))
        };
        Ok(Key {
            created: number("/kvs/0/create_revision")?,
            modified: number("/kvs/0/mod_revision")?,
            writes: number("/kvs/0/version")?,
            store: number("/header/revision")?,
        })
    }
}

/// Writes `machine`, and returns the version.
#[expect(clippy::disallowed_methods, reason = "any write will do")]
async fn write(who: &Actor, name: &str, machine: &str) -> Result<String> {
    let patch = Patch::Merge(json!({"spec": {"machine": machine}}));
    let written = who.api::<Pool>().patch(name, &PatchParams::default(), &patch).await?;
    written.metadata.resource_version.context("no version")
}

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let address = ctx.cluster.etcd().context("etcd cannot be reached here")?;
    let client = Client::try_from(Config::new(address.parse()?))?;
    let etcd = Etcd { client, namespace: ctx.namespace().to_owned() };
    let (alice, bob) = (ctx.actor("alice").await?, ctx.actor("bob").await?);
    for name in ["first", "second"] {
        ctx.set(&pool(name, 3)).await?;
    }
    let made = ctx.stored::<Pool>("first").await?.metadata.resource_version.context("no version")?;
    ctx.say("There are two pools, first and second. After each write of the first, etcd is asked for its key: /registry/lab.tandem.dev/pools/NAMESPACE/first.");
    let mut table =
        Table::new(&["write", "resourceVersion", "create_revision", "mod_revision", "version of the key"]);
    let mut row = |what: &str, found: &str, key: &Key| {
        let created = version(&key.created.to_string());
        let modified = version(&key.modified.to_string());
        table.row(&[&what, &version(found), &created, &modified, &key.writes]);
    };
    let key = etcd.key("first").await?;
    check(ctx, "made", &made, &key, 1);
    row("the first is made", &made, &key);

    let second = write(&alice, "first", "medium").await?;
    let key = etcd.key("first").await?;
    check(ctx, "written once", &second, &key, 2);
    row("the first is written", &second, &key);

    ctx.say("Bob writes the second pool twice. Then Alice writes the first again.");
    let mut foreign = String::new();
    for machine in ["medium", "large"] {
        foreign = write(&bob, "second", machine).await?;
    }
    let third = write(&alice, "first", "large").await?;
    let after = etcd.key("first").await?;
    check(ctx, "written twice", &third, &after, 3);
    row("the first is written, after the second", &third, &after);
    ctx.table(table);

    gap(ctx, &second, &foreign, &third)?;
    compared(ctx, &[&made, &second, &foreign, &third]).await?;
    let other = etcd.key("second").await?;
    ctx.check_eq(
        "both keys were written three times, the making included",
        &(after.writes, other.writes),
        &(3, 3),
    );
    ctx.check(
        "yet their revisions differ, because one counter numbers the writes of both",
        after.modified != other.modified,
    );
    ctx.check(
        "the revision of the store is not below any of them",
        other.store >= after.modified.max(other.modified),
    );
    Ok(())
}

fn check(ctx: &ScenarioContext, when: &str, found: &str, key: &Key, writes: u64) {
    ctx.check_eq(
        &format!("{when}: resourceVersion and mod_revision are the same number"),
        &found,
        &key.modified.to_string().as_str(),
    );
    ctx.check_eq(&format!("{when}: the key itself counts {writes}"), &key.writes, &writes);
}

/// Versions of one resource, in the order of their creation.
async fn compared(ctx: &ScenarioContext, made: &[&str]) -> Result<()> {
    let server =
        ctx.unrecorded_client().await?.apiserver_version().await.context("the server has no version")?;
    let of_server = (server.major.parse::<u32>()?, server.minor.parse::<u32>()?);
    ctx.say("May two versions be compared? Up to Kubernetes 1.34 for equality only. Since 1.35 they are decimal numbers that clients may put in order, within one resource type (KEP-5504).");
    ctx.check("this server is of 1.35 or newer", of_server >= (1, 35));
    let numbers: Option<Vec<Version>> = made.iter().map(|text| Version::parse(text)).collect();
    ctx.check(
        "the versions of both pools, as numbers, grow in the order of the writes",
        numbers.is_some_and(|numbers| numbers.windows(2).all(|pair| pair[0] < pair[1])),
    );
    Ok(())
}

/// The first pool's versions, with those of the second in between.
fn gap(ctx: &ScenarioContext, before: &str, foreign: &str, after: &str) -> Result<()> {
    let number = |text: &str| text.parse::<u64>().with_context(|| format!("{text} is no number"));
    let (low, between, high) = (number(before)?, number(foreign)?, number(after)?);
    ensure!(high > low, "versions fall");
    let mut table = Table::new(&["version before", "version after", "gap"]);
    table.row(&[&low, &high, &(high - low)]);
    ctx.live_table(table);
    ctx.check(
        "between two versions of the first pool lies a gap of at least 3, one for each write since",
        high - low >= 3,
    );
    ctx.check("the second pool's version lies inside the gap", low < between && between < high);
    Ok(())
}

//! The conflict itself: its cause, and the server's answer.

use anyhow::{Context as _, Result, bail};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::context::ScenarioContext;
use crate::event::version;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "conflict",
    title: "409 Conflict: the object has been modified, because the write was made from an old copy",
    rows: &["0a", "0b", "0d", "4b"],
    refutes: &[],
    lesson: "A PUT carries the resourceVersion that it was made from, and the server accepts it only while that version is the newest.\nA 409 is not a failure of the server: another write came first, and yours was not written.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The API server's message, with the names of the resource and of the object.
const TEXT: &str = "Operation cannot be fulfilled on pools.lab.tandem.dev \"workers\": the object has been modified; please apply your changes to the latest version and try again";

#[expect(
    clippy::disallowed_methods,
    reason = "shows the bare requests that the write functions are built on"
)]
async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    let bob = ctx.actor("bob").await?;
    ctx.set(&pool("workers", 3)).await?;

    ctx.say("Alice reads the pool. She sends the version from the answer back with her change. A PUT from the newest version is accepted, and changes the version.");
    let pools = alice.api::<Pool>();
    let mut copy = pools.get("workers").await?;
    let before = copy.metadata.resource_version.clone().context("no version")?;
    copy.spec.replicas = Some(4);
    let written = pools.replace("workers", &PostParams::default(), &copy).await?;
    let after = written.metadata.resource_version.clone().context("no version")?;
    ctx.check(
        &format!("the version moved from {} to {}", version(&before), version(&after)),
        before != after,
    );

    ctx.say("Now Bob changes the spec while Alice still holds what she read before.");
    let merge = Patch::Merge(json!({"spec": {"machine": "large"}}));
    bob.api::<Pool>().patch("workers", &PatchParams::default(), &merge).await?;
    let mut old = written;
    old.spec.replicas = Some(5);
    let Err(kube::Error::Api(status)) = pools.replace("workers", &PostParams::default(), &old).await else {
        bail!("the PUT of an old copy was accepted");
    };
    ctx.check_eq(
        "the answer is 409 with reason Conflict",
        &(status.code, status.reason.as_str()),
        &(409, "Conflict"),
    );
    ctx.check_eq("and says, word for word, what stands above", &status.message.as_str(), &TEXT);
    let stored = ctx.stored::<Pool>("workers").await?;
    ctx.check(
        "nothing of Alice's second change was written, and Bob's is there",
        stored.spec.replicas == Some(4) && stored.spec.machine.as_deref() == Some("large"),
    );

    ctx.say("She reads again, decides again, and sends it from the newest version.");
    let mut fresh = pools.get("workers").await?;
    fresh.spec.replicas = Some(5);
    let written = pools.replace("workers", &PostParams::default(), &fresh).await?;
    ctx.check(
        "both changes are in the object",
        written.spec.replicas == Some(5) && written.spec.machine.as_deref() == Some("large"),
    );
    Ok(())
}

//! What a Role can prevent a third controller from doing, and what it cannot.

use anyhow::{Context as _, Result};
use conflict_retry::{Source, WriteError, WriteOptions, add_finalizer, merge_patch};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use testbed::wait::eventually;

use super::owners::apply_status;
use super::third::{POOL, priced, provisioned, report};
use crate::context::{Actor, PATIENCE, ScenarioContext};
use crate::event::Table;
use crate::pool::{GROUP, Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "third-controller-rights",
    title: "A Role for pools/status only protects the spec and the finalizers, but no field of the status",
    rows: &[],
    refutes: &[],
    lesson: "Grant a status reporter only pools/status: then no bug in it can write the spec or the finalizers.\nRBAC knows subresources, not fields: within the status, only server-side apply with separate field managers keeps the owners apart.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

const FINALIZER: &str = "lab.tandem.dev/budget";
/// The requests that each of the two tries.
const TRIED: [&str; 3] = ["its condition, to /status", "the count in the spec", "a finalizer"];

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let provisioner = ctx.actor("provisioner").await?;
    for name in [POOL, "open"] {
        ctx.set(&pool(name, 3)).await?;
    }
    ctx.say("Two service accounts. The Role of careless allows every verb for pools and pools/status. That of budget allows get for pools, and patch for pools/status.");
    let all = json!([{"apiGroups": [GROUP], "resources": ["pools", "pools/status"], "verbs": ["*"]}]);
    let few = json!([
        {"apiGroups": [GROUP], "resources": ["pools"], "verbs": ["get"]},
        {"apiGroups": [GROUP], "resources": ["pools/status"], "verbs": ["patch"]},
    ]);
    let careless = account(ctx, "careless", &all).await?;
    let budget = account(ctx, "budget", &few).await?;
    ctx.say("Careless reports its condition, sets the count and adds a finalizer, all three of which its code might do by mistake.");
    let open = tries(ctx, &careless, "open").await?;
    ctx.say("Budget does the same to another pool.");
    let kept = tries(ctx, &budget, POOL).await?;
    ctx.say("The answers, side by side:");
    let mut table = Table::new(&["what is written", "Role of everything", "Role for pools/status"]);
    for ((what, open), kept) in TRIED.iter().zip(&open).zip(&kept) {
        table.row(&[what, open, kept]);
    }
    ctx.table(table);
    ctx.check_eq("with the Role of everything, everything is granted", &open, &[200, 200, 200]);
    ctx.check_eq(
        "with the Role for the status the report is granted, and the rest is refused: 403",
        &kept,
        &[200, 403, 403],
    );
    let (open, kept) = (ctx.stored::<Pool>("open").await?, ctx.stored::<Pool>(POOL).await?);
    ctx.check_eq(
        "careless has scaled its pool to 9 and holds its deletion; budget's is as it was made",
        &(held(&open), held(&kept)),
        &((Some(9), 1), (Some(3), 0)),
    );
    around(ctx, &budget).await?;
    within(ctx, &provisioner, &budget).await
}

/// The codes of the answers, in the order of [`TRIED`].
async fn tries(ctx: &ScenarioContext, actor: &Actor, name: &str) -> Result<[u16; 3]> {
    let (pools, options) = (actor.api::<Pool>(), WriteOptions::new("budget"));
    let reported = code(&apply_status(actor, name, &priced(1)?, false).await, actor)?;
    let newest = Source::Copy(ctx.stored::<Pool>(name).await?);
    let nine = |_: &Pool| Some(json!({"spec": {"replicas": 9}}));
    let scaled = code(&merge_patch(&pools, name, nine).with(&options).from(newest).outcome().await, actor)?;
    let newest = Source::Copy(ctx.stored::<Pool>(name).await?);
    let held =
        code(&add_finalizer(&pools, name, FINALIZER).with(&options).from(newest).outcome().await, actor)?;
    Ok([reported, scaled, held])
}

/// The code of the answer that ended a write.
fn code<T>(ended: &Result<T, WriteError>, actor: &Actor) -> Result<u16> {
    let last = actor.requests().last().map(|request| request.code).context("nothing was sent")?;
    anyhow::ensure!(ended.is_ok() == (last == 200), "a write that ended otherwise than its last request");
    Ok(last)
}

#[expect(clippy::disallowed_methods, reason = "the naive half: a bare patch of what is out of reach")]
async fn around(ctx: &ScenarioContext, budget: &Actor) -> Result<()> {
    ctx.say("There is no way around through /status: budget sends the count and the finalizer there.");
    let body = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}, "spec": {"replicas": 9}}));
    let params = PatchParams { field_manager: Some("budget".to_owned()), ..PatchParams::default() };
    budget.api::<Pool>().patch_status(POOL, &params, &body).await?;
    ctx.check_eq(
        "granted, and neither is written: this endpoint writes the status",
        &held(&ctx.stored::<Pool>(POOL).await?),
        &(Some(3), 0),
    );
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the naive half: a bare patch of another controller's field")]
async fn within(ctx: &ScenarioContext, provisioner: &Actor, budget: &Actor) -> Result<()> {
    ctx.say("Within the status the Role says nothing. The provisioner reports 3 ready; budget applies that there are none, under its own name and without force.");
    report(provisioner, &provisioned(3)?).await?;
    let mut wrong = priced(1)?;
    wrong["ready"] = json!(0);
    let refused = apply_status(budget, POOL, &wrong, false).await;
    ctx.check(
        "an apply is refused, and not by RBAC: the field is the provisioner's",
        matches!(&refused, Err(WriteError::FieldManager { conflicts, .. }) if conflicts.iter().any(|c| c.manager == "provisioner")),
    );
    ctx.say("The same as a merge patch:");
    let body = Patch::Merge(json!({"status": {"ready": 0}}));
    let params = PatchParams { field_manager: Some("budget".to_owned()), ..PatchParams::default() };
    budget.api::<Pool>().patch_status(POOL, &params, &body).await?;
    let ready = ctx.stored::<Pool>(POOL).await?.status.and_then(|status| status.ready);
    ctx.check_eq("granted: the Role is for all of the status", &ready, &Some(0));
    Ok(())
}

/// The count, and how many finalizers.
fn held(pool: &Pool) -> (Option<i32>, usize) {
    (pool.spec.replicas, pool.metadata.finalizers.as_ref().map_or(0, Vec::len))
}

/// A service account with a Role of these rules, once the API server applies them.
async fn account(ctx: &ScenarioContext, name: &str, rules: &serde_json::Value) -> Result<Actor> {
    let metadata = json!({"name": name});
    ctx.set(&serde_json::from_value::<ServiceAccount>(json!({"metadata": metadata}))?).await?;
    ctx.set(&serde_json::from_value::<Role>(json!({"metadata": metadata, "rules": rules}))?).await?;
    let binding = json!({
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": ctx.namespace()}],
    });
    ctx.set(&serde_json::from_value::<RoleBinding>(binding)?).await?;
    let file = ctx.cluster.kubeconfig_for_service_account(ctx.namespace(), name).await?;
    let read = Kubeconfig::read_from(file)?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    let client = Client::try_from(config.clone())?;
    eventually(PATIENCE, &format!("the Role of {name} is in force"), async || {
        Ok(may_report(&client, ctx.namespace()).await?.then_some(()))
    })
    .await?;
    ctx.actor_with(name, config)
}

/// Asks the API server as the account itself. A Role becomes effective as a whole.
#[expect(clippy::disallowed_methods, reason = "a review is created to ask for rights, and stores nothing")]
async fn may_report(client: &Client, namespace: &str) -> Result<bool> {
    let attributes = ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        verb: Some("patch".to_owned()),
        group: Some(GROUP.to_owned()),
        resource: Some("pools".to_owned()),
        subresource: Some("status".to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

//! Answers that depend on the client's identity.

use anyhow::Result;
use conflict_retry::{Source, merge_patch};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::core::ObjectMeta;
use serde_json::json;

use super::{ErrorCase, Expected, NAME, label};
use crate::context::ScenarioContext;
use crate::event::Table;
use crate::pool::Pool;

/// Name of the service account without rights.
pub(super) const NO_RIGHTS: &str = "visitor";

pub(super) async fn all(ctx: &ScenarioContext, table: &mut Table) -> Result<()> {
    let mut unknown = ctx.cluster.client_config().await?;
    unknown.auth_info =
        AuthInfo { token: Some("no-server-issued-this".to_owned().into()), ..AuthInfo::default() };
    unknown.default_retry = false;
    let expected = Expected {
        what: "who asks is not known",
        code: 401,
        class: "unauthorized",
        ends: "unauthorized",
        requests: 1,
        deserves: "renew the credentials; no retry",
    };
    refused(ctx, table, "stranger", unknown, &expected).await?;

    let metadata = ObjectMeta { name: Some(NO_RIGHTS.to_owned()), ..ObjectMeta::default() };
    ctx.set(&ServiceAccount { metadata, ..ServiceAccount::default() }).await?;
    let file = ctx.cluster.kubeconfig_for_service_account(ctx.namespace(), NO_RIGHTS).await?;
    let read = Kubeconfig::read_from(file)?;
    let mut visitor = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    visitor.default_retry = false;
    let expected = Expected {
        what: "who asks may not",
        code: 403,
        class: "forbidden",
        ends: "forbidden",
        requests: 1,
        deserves: "grant the verb, or look for a policy; no retry",
    };
    refused(ctx, table, NO_RIGHTS, visitor, &expected).await
}

async fn refused(
    ctx: &ScenarioContext,
    table: &mut Table,
    name: &str,
    config: Config,
    expected: &Expected,
) -> Result<()> {
    let case = ErrorCase::new(ctx.actor_with(name, config)?);
    let newest = Source::Copy(ctx.stored::<Pool>(NAME).await?);
    let five = |_: &Pool| Some(json!({"spec": {"replicas": 5}}));
    let ended = merge_patch(&case.pools(), NAME, five).with(&case.options).from(newest).outcome().await;
    case.end(ctx, table, expected, label(&ended));
    Ok(())
}

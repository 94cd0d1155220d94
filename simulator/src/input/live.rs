//! The objects of a live cluster, listed once, page by page. Nothing is watched and nothing is written.

use std::collections::BTreeMap;
use std::fmt::Debug;

use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use planner::input::pods::UNFINISHED_SELECTOR;
use planner::input::transform;
use serde::de::DeserializeOwned;
use shared_crds::names;
use shared_runtime::cli::ClientArgs;
use shared_runtime::client::{self, ClientError};
use shared_runtime::clock::Clock;
use shared_runtime::error::{chain, client_category};
use shared_runtime::metrics::{Metrics, MetricsError};

use super::{Objects, Set, put};

/// Objects per page, client-go's default.
const PAGE: u32 = 500;

/// A cluster that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The client cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The request metrics cannot be registered.
    #[error("cannot set up the connection")]
    Metrics(#[from] MetricsError),
    /// The API server does not answer.
    #[error("cannot reach the cluster's API server; check --kubeconfig and --context: {0}")]
    Unreachable(String),
    /// The credentials are not accepted.
    #[error(
        "the cluster does not accept the kubeconfig's credentials; log in again, or choose others with --context"
    )]
    Unauthorized,
    /// Permissions are missing; all of them are named.
    #[error("not allowed to list {0}; ask for the verbs get and list on them")]
    Forbidden(String),
    /// The custom resource definitions are not installed.
    #[error(
        "the cluster does not know {0}; install the definitions with: autoscaler-operator crd | kubectl apply -f -"
    )]
    NoDefinitions(String),
    /// Any other error.
    #[error("cannot list {resource}: {problem}")]
    Failed {
        /// The resource that was listed.
        resource: String,
        /// The API server's message.
        problem: String,
    },
}

/// A kind that could not be listed.
struct Refused {
    /// Its plural, with the group.
    resource: String,
    /// Whether planning is impossible without it.
    needed: bool,
    error: kube::Error,
}

/// Reads the cluster that the flags, or the environment, name.
pub(crate) async fn read(args: &ClientArgs) -> Result<Objects, LiveError> {
    let (name, version) = (names::AUTOSCALER_OPERATOR, env!("CARGO_PKG_VERSION"));
    let client =
        client::connect(&args.connection, name, version, Clock::system(), Metrics::new(name, version)?)
            .await?;
    list(client, &args.watch_namespace).await
}

/// Lists the input of a plan. Pools and autoscalers are those of `namespace`, where it is not empty.
async fn list(client: Client, namespace: &str) -> Result<Objects, LiveError> {
    let all = ListParams::default;
    let whole = || client.clone();
    let (pools, autoscalers, nodes, pods) = futures::join!(
        listed(of_tandem(whole(), namespace), all(), |_| {}, true),
        listed(of_tandem(whole(), namespace), all(), |_| {}, true),
        listed(Api::all(whole()), all(), small(transform::node), true),
        listed(Api::all(whole()), all().fields(UNFINISHED_SELECTOR), small(transform::pod), true),
    );
    let (daemon_sets, budgets, volumes, claims, storage_classes, namespaces, priority_classes) = futures::join!(
        listed(Api::all(whole()), all(), small(transform::daemon_set), false),
        listed(Api::all(whole()), all(), small(transform::budget), false),
        listed(Api::all(whole()), all(), small(|_| {}), false),
        listed(Api::all(whole()), all(), small(|_| {}), false),
        listed(Api::all(whole()), all(), small(transform::storage_class), false),
        listed(Api::all(whole()), all(), small(transform::namespace), false),
        listed(Api::all(whole()), all(), |_| {}, false),
    );
    let mut objects = Objects::default();
    let mut refused = Vec::new();
    take(&mut objects.pools, pools, &mut refused);
    take(&mut objects.autoscalers, autoscalers, &mut refused);
    take(&mut objects.nodes, nodes, &mut refused);
    take(&mut objects.pods, pods, &mut refused);
    take(&mut objects.daemon_sets, daemon_sets, &mut refused);
    take(&mut objects.budgets, budgets, &mut refused);
    take(&mut objects.volumes, volumes, &mut refused);
    take(&mut objects.claims, claims, &mut refused);
    take(&mut objects.storage_classes, storage_classes, &mut refused);
    take(&mut objects.namespaces, namespaces, &mut refused);
    take(&mut objects.priority_classes, priority_classes, &mut refused);
    objects.warnings = judge(refused)?;
    Ok(objects)
}

fn of_tandem<K>(client: Client, namespace: &str) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    if namespace.is_empty() { Api::all(client) } else { Api::namespaced(client, namespace) }
}

/// Prunes an object as the operator's cache does. Tandem's own kinds keep `managedFields`, which name the writers.
fn small<K: Resource>(prune: fn(&mut K)) -> impl Fn(&mut K) {
    move |object| {
        object.managed_fields_mut().clear();
        prune(object);
    }
}

/// All objects of a kind, `prune` applied to each.
async fn listed<K>(
    api: Api<K>,
    params: ListParams,
    prune: impl Fn(&mut K),
    needed: bool,
) -> Result<Vec<K>, Refused>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let mut objects = Vec::new();
    let mut page = params.clone().limit(PAGE);
    loop {
        let mut answer = match api.list(&page).await {
            Ok(answer) => answer,
            // The continue token has expired, so the pages so far are outdated: list again, in one answer.
            Err(kube::Error::Api(status)) if status.code == 410 && page.continue_token.is_some() => {
                objects.clear();
                page = params.clone();
                continue;
            }
            Err(error) => {
                let (plural, group) = (K::plural(&()), K::group(&()));
                let resource =
                    if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") };
                return Err(Refused { resource, needed, error });
            }
        };
        for mut object in answer.items.drain(..) {
            prune(&mut object);
            objects.push(object);
        }
        match answer.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(objects),
        }
    }
}

fn take<K: Resource>(into: &mut Set<K>, listed: Result<Vec<K>, Refused>, refused: &mut Vec<Refused>) {
    match listed {
        Ok(objects) => put(into, objects),
        Err(refusal) => refused.push(refusal),
    }
}

/// The most specific error; without one, a warning for each optional kind.
fn judge(refused: Vec<Refused>) -> Result<Vec<String>, LiveError> {
    let mut by_category = BTreeMap::<&str, Vec<Refused>>::new();
    for refusal in refused {
        by_category.entry(client_category(&refusal.error)).or_default().push(refusal);
    }
    let mut first = |category| by_category.remove(category).and_then(|r| r.into_iter().next());
    if let Some(Refused { error, .. }) = first("connection") {
        return Err(LiveError::Unreachable(chain(&error)));
    }
    if first("unauthorized").is_some() {
        return Err(LiveError::Unauthorized);
    }
    let mut warnings = Vec::new();
    for (category, refused) in by_category {
        let names = |needed: bool| -> Vec<_> {
            refused.iter().filter(|r| r.needed || !needed).map(|r| r.resource.clone()).collect()
        };
        let is_needed = refused.iter().any(|refusal| refusal.needed);
        match category {
            // All missing permissions are named, so that the user can request them at once.
            "forbidden" if is_needed => return Err(LiveError::Forbidden(names(false).join(", "))),
            "not_found" if is_needed => return Err(LiveError::NoDefinitions(names(true).join(", "))),
            "forbidden" => warnings.push(format!(
                "not allowed to list {}; planned as if there were none (ask for the verbs get and list on them)",
                names(false).join(", ")
            )),
            "not_found" => warnings
                .push(format!("the cluster does not know {}; planned without", names(false).join(", "))),
            _ => {
                if let Some(Refused { resource, error, .. }) = refused.into_iter().next() {
                    return Err(LiveError::Failed { resource, problem: chain(&error) });
                }
            }
        }
    }
    Ok(warnings)
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;

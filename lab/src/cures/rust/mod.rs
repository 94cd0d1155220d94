//! The cures in Rust. Each file has one task twice: with kube alone as people write it, and as it is right.
//!
//! No program knows its rival: a driver runs them through a proxy, which makes the rival's write at the moment that matters.
//! The regions `naive: <id>` and `right: <id>` are what a reader copies.

mod back_off;
mod change_a_field;
mod circuit_breaker;
mod condition;
mod create_or_update;
mod delete_this_one;
mod error_type;
mod field_manager;
mod finalizer;
mod one_write;
mod rate_limiter;
mod replica_count;
mod requeue;
mod status;
mod watch;
mod write_only_your_field;

use std::time::Duration;

use anyhow::bail;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};

use super::Form;

/// How long a controller runs at most: its caller ends it when it has seen enough.
const A_WHILE: Duration = Duration::from_secs(300);

/// How often `rate-limiter` writes, so that a limiter has something to pace.
const PACED: usize = 3;

/// Runs one program to its end. The result is what it prints; an error means that it believes not to have written.
///
/// `from` is the resourceVersion that `watch` begins with.
///
/// # Errors
/// When the program fails, or there is none of this name.
pub async fn run(
    id: &str,
    form: Form,
    client: Client,
    namespace: &str,
    from: &str,
) -> anyhow::Result<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let deployments: Api<Deployment> = Api::namespaced(client, namespace);
    match (id, form) {
        ("change-a-field", Form::Naive) => change_a_field::naive::set_colour(&maps).await?,
        ("change-a-field", Form::Right) => change_a_field::right::set_colour(&maps).await?,
        ("write-only-your-field", Form::Naive) => write_only_your_field::naive::set_colour(&maps).await?,
        ("write-only-your-field", Form::Right) => write_only_your_field::right::set_colour(&maps).await?,
        ("status", Form::Naive) => status::naive::set_count(&deployments).await?,
        ("status", Form::Right) => status::right::set_count(&deployments).await?,
        ("condition", Form::Naive) => condition::naive::report_seen(&deployments).await?,
        ("condition", Form::Right) => condition::right::report_seen(&deployments).await?,
        ("field-manager", Form::Naive) => field_manager::naive::apply_settings(&maps).await?,
        ("field-manager", Form::Right) => field_manager::right::apply_settings(&maps).await?,
        ("replica-count", Form::Naive) => replica_count::naive::add_two(&deployments).await?,
        ("replica-count", Form::Right) => replica_count::right::add_two(&deployments).await?,
        ("finalizer", Form::Naive) => finalizer::naive::hold(&maps).await?,
        ("finalizer", Form::Right) => finalizer::right::hold(&maps).await?,
        ("create-or-update", Form::Naive) => create_or_update::naive::ensure(&maps).await?,
        ("create-or-update", Form::Right) => create_or_update::right::ensure(&maps).await?,
        ("delete-this-one", Form::Naive) => delete_this_one::naive::delete_settings(&maps).await?,
        ("delete-this-one", Form::Right) => delete_this_one::right::delete_settings(&maps).await?,
        ("watch", Form::Naive) => {
            return Ok(watch::naive::first_three(&maps, from).await?.join("\n"));
        }
        ("watch", Form::Right) => return Ok(watch::right::first_three(&maps).await?.join("\n")),
        ("error-type", Form::Naive) => return Ok(error_type::naive::what_happened(&maps).await.to_owned()),
        ("error-type", Form::Right) => return Ok(error_type::right::what_happened(&maps).await.to_owned()),
        ("back-off", Form::Naive) => back_off::naive::set_colour(&maps).await?,
        ("back-off", Form::Right) => back_off::right::set_colour(&maps).await?,
        ("rate-limiter", Form::Naive) => {
            let mut pace = rate_limiter::naive::two_a_second();
            for _ in 0..PACED {
                rate_limiter::naive::set_colour(&maps, &mut pace).await?;
            }
        }
        ("rate-limiter", Form::Right) => {
            let options = rate_limiter::right::two_a_second()?;
            for _ in 0..PACED {
                rate_limiter::right::set_colour(&maps, &options).await?;
            }
        }
        ("circuit-breaker", Form::Naive) => circuit_breaker::naive::set_colours(&maps).await?,
        ("circuit-breaker", Form::Right) => circuit_breaker::right::set_colours(&maps).await?,
        ("one-write", Form::Naive) => one_write::for_a_while(maps, one_write::naive::reconcile).await,
        ("one-write", Form::Right) => one_write::for_a_while(maps, one_write::right::reconcile).await,
        ("requeue", Form::Naive) => requeue::for_a_while(maps, requeue::naive::reconcile).await,
        ("requeue", Form::Right) => requeue::for_a_while(maps, requeue::right::reconcile).await,
        _ => bail!("there is no cure called {id}"),
    }
    Ok(String::new())
}

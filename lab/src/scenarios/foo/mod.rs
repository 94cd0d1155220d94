//! The Foo article: one small controller, and the effect of its writes on its own loop.

mod controller;
mod no_op;
mod one_update;
mod queue;
mod requeue;
mod stale_cache;
mod two_updates;
mod ways;

use anyhow::{Context as _, Result};
use conflict_retry::{UpdateDecision, WriteOptions, update};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use self::controller::Controller;
use crate::context::Actor;
use crate::pool::{Foo, FooSpec};
use crate::scenario::Scenario;

/// The scenarios, in the order of the article.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        no_op::SCENARIO,
        one_update::SCENARIO,
        two_updates::SCENARIO,
        stale_cache::SCENARIO,
        requeue::SCENARIO,
    ]
}

/// The version of a copy.
fn version_of(object: &Foo) -> Result<String> {
    object.resource_version().context("the copy has no version")
}

/// The greeting in a copy.
fn greeting_of(object: &Foo) -> &str {
    object.spec.greeting.as_deref().unwrap_or_default()
}

/// A copy with another greeting.
fn saying(object: &Foo, greeting: &str) -> Foo {
    let mut changed = object.clone();
    changed.spec.greeting = Some(greeting.to_owned());
    changed
}

/// Creates a Foo without a greeting.
#[expect(clippy::disallowed_methods, reason = "a user creates it, and is its only creator")]
async fn create(actor: &Actor, name: &str) -> Result<Foo> {
    let object = Foo::new(name, FooSpec::default());
    Ok(actor.api::<Foo>().create(&PostParams::default(), &object).await?)
}

/// Sets a label, at any version.
#[expect(clippy::disallowed_methods, reason = "a user's patch without a version")]
async fn label(actor: &Actor, name: &str, value: Value) -> Result<Foo> {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"name": value}}}));
    Ok(actor.api::<Foo>().patch(name, &PatchParams::default(), &patch).await?)
}

/// The bare PUT of a whole copy, as many controllers send it.
#[expect(clippy::disallowed_methods, reason = "shows what the write functions are built on")]
async fn put(actor: &Actor, object: &Foo) -> Result<Foo, kube::Error> {
    actor.api::<Foo>().replace(&object.name_any(), &PostParams::default(), object).await
}

/// Writes one goal if it is not met, starting from the cached copy. Returns the outcome's label.
async fn say_hello(controller: &Controller<'_>) -> Result<&'static str> {
    let (name, foos) = (controller.name(), controller.actor.api::<Foo>());
    let (cached, options) = (controller.cache.object(&name), WriteOptions::new("controller"));
    let outcome = update(&foos, &name, |object| {
        object.spec.greeting = Some("Hello".to_owned());
        UpdateDecision::Write
    })
    .put()
    .with(&options)
    .from(cached.source())
    .outcome();
    Ok(outcome.await?.label())
}

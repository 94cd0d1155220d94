//! The ways in which a reconcile writes a Foo that shall say “Hello” and then “World”.

use anyhow::Result;
use conflict_retry::{RetryError, RetryPolicy, is_conflict, retry_on_conflict};

use super::controller::Controller;
use super::{put, say_hello, saying};
use crate::cache::ClosedGate;
use crate::context::Actor;
use crate::pool::Foo;

/// What the Foo is to say in every reconcile, one after the other.
const GOALS: [&str; 2] = ["Hello", "World"];

/// The ways of a reconcile to write.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// The article's code: both updates of one object, which `Update` refreshes.
    InPlace,
    /// Both updates from the copy that the reconcile began with.
    FromOneCopy,
    /// The article's `UpdateFoo`. The events of the watch are held back until its first conflict.
    CachedRetry,
    /// The same with a live read after a conflict. The events are held back until the reconcile is over.
    LiveRetry,
    /// One goal, one write.
    OneGoal,
}

impl Way {
    /// The inner result is that of the reconcile: a conflict is one of its expected results.
    pub(super) async fn reconcile(
        self,
        controller: &Controller<'_>,
        copy: &Foo,
    ) -> Result<Result<(), kube::Error>> {
        let actor = &controller.actor;
        Ok(match self {
            Self::InPlace => in_place(actor, copy).await,
            Self::FromOneCopy => from_one_copy(actor, copy).await,
            Self::CachedRetry => {
                let gate = controller.cache.close_gate();
                for greeting in GOALS {
                    update_foo(controller, greeting, Some(&gate)).await?;
                }
                Ok(())
            }
            Self::LiveRetry => {
                let _gate = controller.cache.close_gate();
                for greeting in GOALS {
                    update_foo_live(controller, greeting).await?;
                }
                Ok(())
            }
            Self::OneGoal => {
                say_hello(controller).await?;
                Ok(())
            }
        })
    }
}

/// The article's two updates.
async fn in_place(actor: &Actor, copy: &Foo) -> Result<(), kube::Error> {
    let mut object = copy.clone();
    for greeting in GOALS {
        object.spec.greeting = Some(greeting.to_owned());
        update_in_place(actor, &mut object).await?;
    }
    Ok(())
}

/// The `Update` of controller-runtime's client: it stores the answer, with its version, in the object that was passed.
async fn update_in_place(actor: &Actor, object: &mut Foo) -> Result<(), kube::Error> {
    let answer = put(actor, object).await?;
    *object = answer;
    Ok(())
}

async fn from_one_copy(actor: &Actor, copy: &Foo) -> Result<(), kube::Error> {
    for greeting in GOALS {
        put(actor, &saying(copy, greeting)).await?;
    }
    Ok(())
}

/// The article's `UpdateFoo`: in each attempt a Get, which reads the cache, and an Update. With a `gate` that holds the
/// event of the write that won, a conflict lets it through, and the cache has it before the next attempt.
pub(super) async fn update_foo(
    controller: &Controller<'_>,
    greeting: &str,
    gate: Option<&ClosedGate>,
) -> Result<Foo, RetryError<kube::Error>> {
    let name = controller.name();
    retry_on_conflict(&RetryPolicy::client_go_default_backoff(), async || {
        let cached = controller.cache.copy(&name).map_err(|error| kube::Error::Service(error.into()))?;
        let answer = put(&controller.actor, &saying(&cached, greeting)).await;
        let lost = answer.as_ref().is_err_and(is_conflict);
        if let Some(gate) = gate
            && lost
        {
            gate.let_through(1);
            controller.catch_up().await.map_err(|error| kube::Error::Service(error.into()))?;
        }
        answer
    })
    .await
}

/// The first attempt from the cache, and after a conflict from a live read.
async fn update_foo_live(controller: &Controller<'_>, greeting: &str) -> Result<Foo> {
    let (actor, name) = (&controller.actor, controller.name());
    let mut cached = Some(controller.cache.copy(&name)?);
    let attempt = || {
        let (cached, name) = (cached.take(), name.clone());
        async move {
            let copy = match cached {
                Some(copy) => copy,
                None => actor.api::<Foo>().get(&name).await?,
            };
            put(actor, &saying(&copy, greeting)).await
        }
    };
    Ok(retry_on_conflict(&RetryPolicy::client_go_default_backoff(), attempt).await?)
}

//! Plays one scenario from beginning to end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use tokio::time::Instant;

use crate::cluster_pool::ClusterPool;
use crate::context::{EventSink, ScenarioContext};
use crate::event::{TranscriptEvent, What};
use crate::scenario::{Needs, Scenario};

/// How long a scenario may take: far longer than any does, so that one that hangs is told of.
const LIMIT: Duration = Duration::from_secs(300);
/// The same for one that runs the operators, several times over.
const OPERATORS_LIMIT: Duration = Duration::from_secs(600);

/// How a scenario went.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Played {
    /// Which.
    pub name: &'static str,
    /// Rows of the checklist that it shows.
    pub rows: &'static [&'static str],
    /// Claims that it refutes.
    pub refutes: &'static [&'static str],
    /// Why it was not played, if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_played: Option<&'static str>,
    /// What was wrong; empty when all was as claimed.
    pub failures: Vec<String>,
    /// Seconds it took.
    pub seconds: f64,
    /// The namespace that it was played in.
    pub namespace: String,
    /// Everything that happened.
    pub events: Vec<TranscriptEvent>,
}

impl Played {
    /// One that has not been played, and why.
    pub fn not_played(scenario: &Scenario, why: Option<&'static str>) -> Self {
        Self {
            name: scenario.name,
            rows: scenario.rows,
            refutes: scenario.refutes,
            not_played: why,
            failures: Vec::new(),
            seconds: 0.0,
            namespace: String::new(),
            events: Vec::new(),
        }
    }

    /// Whether all was as claimed.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }

    /// Fails with everything that was wrong.
    ///
    /// # Errors
    /// When something was.
    pub fn verdict(&self) -> Result<()> {
        if self.passed() { Ok(()) } else { bail!("{}: {}", self.name, self.failures.join("\n")) }
    }
}

/// Plays `scenario` before `audience`. What goes wrong is in the result.
///
/// # Errors
/// When it could not be begun: no cluster, no namespace.
pub async fn play(clusters: &ClusterPool, scenario: &Scenario, audience: EventSink) -> Result<Played> {
    let cluster = clusters.cluster(scenario.needs).await?;
    let namespace = clusters.namespace(&cluster, scenario.name).await?;
    let ctx = ScenarioContext::new(Arc::clone(&cluster), namespace.name().to_owned(), audience);
    let began = Instant::now();
    let limit = if scenario.needs == Needs::Operators { OPERATORS_LIMIT } else { LIMIT };
    let result = tokio::time::timeout(limit, (scenario.run)(&ctx)).await;
    let took = began.elapsed();
    let events = ctx.events();
    let mut failures: Vec<String> = events
        .iter()
        .filter_map(|event| match &event.what {
            What::Check { claim, holds: false } => Some(format!("it is not so: {claim}")),
            _ => None,
        })
        .collect();
    match result {
        Ok(Ok(())) => {}
        Ok(Err(error)) => failures.push(format!("{error:#}")),
        Err(_elapsed) => failures.push(format!("it did not end within {limit:?}")),
    }
    if !events.iter().any(|event| matches!(event.what, What::Check { .. })) {
        failures.push("it checks nothing".to_owned());
    }
    let name = ctx.namespace().to_owned();
    drop(ctx);
    if let Err(error) = clusters.clear(&cluster, namespace).await {
        failures.push(format!("what it made could not be taken away: {error:#}"));
    }
    let seconds = (took.as_secs_f64() * 100.0).round() / 100.0;
    Ok(Played { failures, seconds, namespace: name, events, ..Played::not_played(scenario, None) })
}

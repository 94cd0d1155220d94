//! Plays one scenario from beginning to end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use tokio::time::Instant;

use crate::event::{Event, What};
use crate::scenario::Scenario;
use crate::stage::{Audience, Stage};
use crate::theatre::Theatre;

/// How long a scenario may take: far longer than any does, so that one that hangs is told of.
const LIMIT: Duration = Duration::from_secs(300);

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
    /// What was wrong; empty when all was as claimed.
    pub failures: Vec<String>,
    /// Seconds it took.
    pub seconds: f64,
    /// The namespace that it was played in.
    pub namespace: String,
    /// Everything that happened.
    pub events: Vec<Event>,
}

impl Played {
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
pub async fn play(theatre: &Theatre, scenario: &Scenario, audience: Audience) -> Result<Played> {
    let cluster = theatre.cluster(scenario.needs).await?;
    let namespace = theatre.namespace(&cluster, scenario.name).await?;
    let stage = Stage::new(Arc::clone(&cluster), namespace.name().to_owned(), audience);
    let began = Instant::now();
    let result = tokio::time::timeout(LIMIT, (scenario.run)(&stage)).await;
    let took = began.elapsed();
    let events = stage.events();
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
        Err(_elapsed) => failures.push(format!("it did not end within {LIMIT:?}")),
    }
    if !events.iter().any(|event| matches!(event.what, What::Check { .. })) {
        failures.push("it checks nothing".to_owned());
    }
    let played = Played {
        name: scenario.name,
        rows: scenario.rows,
        refutes: scenario.refutes,
        failures,
        seconds: (took.as_secs_f64() * 100.0).round() / 100.0,
        namespace: stage.namespace().to_owned(),
        events,
    };
    drop(stage);
    theatre.clear(&cluster, namespace).await?;
    Ok(played)
}

//! Runs one scenario from beginning to end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use testbed::audit::{Event, Follower};
use testbed::cluster::Cluster;
use tokio::time::Instant;

use crate::cluster_pool::ClusterPool;
use crate::context::{EventSink, ScenarioContext};
use crate::event::{TranscriptEvent, What};
use crate::scenario::Scenario;

/// Time limit of a scenario: far longer than any takes, so that one that hangs is reported.
const LIMIT: Duration = Duration::from_secs(300);
/// Time limit of a scenario that runs the operators, several times.
const OPERATORS_LIMIT: Duration = Duration::from_secs(600);

/// The result of a scenario.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Played {
    /// The scenario's name.
    pub name: &'static str,
    /// The rows of the checklist that it shows.
    pub rows: &'static [&'static str],
    /// The claims that it refutes.
    pub refutes: &'static [&'static str],
    /// Why it was not run; `None` if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_played: Option<&'static str>,
    /// Claims that do not hold, and errors; empty when it passed.
    pub failures: Vec<String>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Number of requests: those of the actors, or, where the operators run, those about objects in the namespace, from
    /// the API server's audit log.
    pub requests: usize,
    /// Those of them that were answered 409.
    pub conflicts: usize,
    /// The namespace that it ran in.
    pub namespace: String,
    /// All events.
    pub events: Vec<TranscriptEvent>,
}

impl Played {
    /// The result of a scenario that was not run, and why.
    pub fn not_played(scenario: &Scenario, why: Option<&'static str>) -> Self {
        Self {
            name: scenario.name,
            rows: scenario.rows,
            refutes: scenario.refutes,
            not_played: why,
            failures: Vec::new(),
            seconds: 0.0,
            requests: 0,
            conflicts: 0,
            namespace: String::new(),
            events: Vec::new(),
        }
    }

    /// Whether every claim holds and no error occurred.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }

    /// Checks that it passed.
    ///
    /// # Errors
    /// With all failures, if it did not.
    pub fn check_passed(&self) -> Result<()> {
        if self.passed() { Ok(()) } else { bail!("{}: {}", self.name, self.failures.join("\n")) }
    }
}

/// Runs `scenario`, and passes its events to `sink`. Its failures are in the result.
///
/// # Errors
/// When it could not be started: no cluster, no namespace.
pub async fn play(clusters: &ClusterPool, scenario: &Scenario, sink: EventSink) -> Result<Played> {
    let cluster = clusters.cluster(scenario.needs).await?;
    let namespace = clusters.namespace(&cluster, scenario.name).await?;
    let ctx = ScenarioContext::new(Arc::clone(&cluster), namespace.name().to_owned(), sink);
    let audit = if scenario.needs.has_operators() { log_from_here(&cluster)? } else { None };
    let began = Instant::now();
    let limit = if scenario.needs.has_operators() { OPERATORS_LIMIT } else { LIMIT };
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
    let codes = audit.map_or_else(|| Ok(recorded(&events)), |mut log| logged(&mut log, &name));
    let codes = codes.unwrap_or_else(|error| {
        failures.push(format!("{error:#}"));
        Vec::new()
    });
    let conflicts = codes.iter().filter(|code| **code == 409).count();
    if let Err(error) = clusters.clear(&cluster, namespace).await {
        failures.push(format!("what it made could not be taken away: {error:#}"));
    }
    let seconds = (took.as_secs_f64() * 100.0).round() / 100.0;
    Ok(Played {
        failures,
        seconds,
        requests: codes.len(),
        conflicts,
        namespace: name,
        events,
        ..Played::not_played(scenario, None)
    })
}

/// The cluster's audit log from now on; `None` where it cannot be read.
fn log_from_here(cluster: &Cluster) -> Result<Option<Follower>> {
    let Some(log) = cluster.audit_log() else { return Ok(None) };
    Ok(Some(log.follow_from(log.end()?)))
}

/// The answers to the actors' requests.
fn recorded(events: &[TranscriptEvent]) -> Vec<u16> {
    let code = |event: &TranscriptEvent| match &event.what {
        What::Request(request) => Some(request.code),
        _ => None,
    };
    events.iter().filter_map(code).collect()
}

/// The answers to all requests about objects in `namespace`.
fn logged(log: &mut Follower, namespace: &str) -> Result<Vec<u16>> {
    let is_here = |event: &Event| event.object.as_ref().is_some_and(|object| object.namespace == namespace);
    Ok(log.read_new()?.into_iter().filter(is_here).map(|event| event.code).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::RecordedRequest;

    #[test]
    fn only_requests_are_counted() {
        let event = |what| TranscriptEvent { at: Duration::ZERO, live: false, what };
        let request =
            |code| event(What::Request(Box::new(RecordedRequest { code, ..RecordedRequest::default() })));
        let said = event(What::Say { text: "409".to_owned() });
        assert_eq!(recorded(&[request(200), said, request(409)]), [200, 409]);
    }
}

//! The events of a scenario, in order. The terminal's output, the page and the JSON are made from them.

use std::time::Duration;

use serde::Serialize;

use crate::cost::StrategyCost;

/// One event of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TranscriptEvent {
    /// Seconds since the scenario began.
    #[serde(serialize_with = "seconds")]
    pub at: Duration,
    /// Whether it may differ from run to run, so that the page leaves it out.
    pub live: bool,
    /// The event itself.
    #[serde(flatten)]
    pub what: What,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "camelCase")]
pub enum What {
    /// Narration of what happens next.
    Say {
        /// A sentence or two.
        text: String,
    },
    /// A request of an actor, with its answer.
    Request(Box<RecordedRequest>),
    /// An action of an actor that is not a request.
    Act {
        /// The actor's name.
        actor: String,
        /// The action.
        text: String,
    },
    /// A measurement.
    Table(Table),
    /// What each write strategy cost. Always live.
    Costs {
        /// One for each strategy, in the order of the run.
        strategies: Vec<StrategyCost>,
    },
    /// The output of a program.
    Quote {
        /// Its lines.
        text: String,
    },
    /// A claim, and whether it holds.
    Check {
        /// The text of the claim.
        claim: String,
        /// Whether it holds.
        holds: bool,
    },
}

/// One request and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRequest {
    /// The sender's name.
    pub actor: String,
    /// `GET`, `LIST`, `WATCH`, `CREATE`, `PUT`, `MERGE`, `JSON`, `APPLY`, `STRATEGIC`, `DELETE`.
    pub verb: &'static str,
    /// Resource, name and subresource, as in `pools/workers/status`.
    pub target: String,
    /// The base of the write: the version in the body, or the guard of a JSON Patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The HTTP code; 0 when no answer came.
    pub code: u16,
    /// `Conflict`, `Invalid`, …; empty when it was granted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The server's message; empty when it was granted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The version of the object in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// How many items a list has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<usize>,
    /// How long it took, in milliseconds.
    pub millis: u64,
}

impl RecordedRequest {
    /// Whether it was granted.
    pub const fn succeeded(&self) -> bool {
        self.code >= 200 && self.code < 300
    }

    /// Whether it is a write.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb, "GET" | "LIST" | "WATCH")
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    /// The columns' names.
    pub head: Vec<String>,
    /// The cells.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: &[&dyn std::fmt::Display]) -> &mut Self {
        self.rows.push(cells.iter().map(ToString::to_string).collect());
        self
    }
}

/// Marks a resource version in a text, so that the terminal shows it as it is and the page as `v1`, `v2`, …
pub fn version(version: &str) -> String {
    format!("\u{2039}{version}\u{203a}")
}

fn seconds<S: serde::Serializer>(at: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((at.as_secs_f64() * 1000.0).round() / 1000.0)
}

//! The page's data: writers, objects, requests in order, and the cost of each 409.

use jiff::Timestamp;
use serde::Serialize;

/// All data of the page. Times are milliseconds since the first request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Model {
    pub(crate) start: Timestamp,
    pub(crate) end: f64,
    /// Pause that ends a span, in milliseconds.
    pub(crate) gap: i64,
    pub(crate) writers: Vec<Writer>,
    pub(crate) objects: Vec<Object>,
    pub(crate) requests: Vec<Shown>,
    /// First aid for the refused requests.
    pub(crate) aids: Vec<Aid>,
    pub(crate) spans: Vec<Drawn>,
    pub(crate) phases: Vec<DrawnPhase>,
    pub(crate) nodes: Vec<(f64, usize)>,
    pub(crate) pods: Vec<(f64, usize)>,
    /// Granted writes whose version is not in the log.
    pub(crate) unknown: usize,
    pub(crate) notes: Vec<String>,
}

/// A sender of requests, and what conflicts cost it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Writer {
    pub(crate) name: String,
    pub(crate) user: String,
    pub(crate) agent: String,
    /// Its requests prepare a scenario.
    pub(crate) setup: bool,
    pub(crate) requests: usize,
    pub(crate) reads: usize,
    pub(crate) granted: usize,
    pub(crate) conflicts: usize,
    pub(crate) refused: usize,
    /// Requests that 409s caused.
    pub(crate) extra: usize,
    /// Milliseconds between refusals and the writes that were granted after them.
    pub(crate) waited: f64,
    /// 409s after which no write of the object was granted.
    pub(crate) unsettled: usize,
}

/// An object that requests were about.
#[derive(Debug, Serialize)]
pub(crate) struct Object {
    /// `resource/name`.
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) requests: usize,
    pub(crate) conflicts: usize,
}

/// A request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate field of the page's JSON")]
pub(crate) struct Shown {
    pub(crate) writer: usize,
    pub(crate) object: usize,
    pub(crate) outcome: RequestOutcome,
    pub(crate) received: f64,
    pub(crate) completed: f64,
    pub(crate) verb: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) how: Option<&'static str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) subresource: String,
    pub(crate) code: u16,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    /// The version that it was based on; absent for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<String>,
    /// The version after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<String>,
    /// The log does not contain the version that it was based on.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) base_unknown: bool,
    /// The log does not contain the version after it.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) left_unknown: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field_manager: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) dry_run: bool,
    /// It was granted and did not change the version.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) no_op: bool,
    /// The write that made its copy stale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) beaten_by: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<Cost>,
    /// Its first aid, if it was refused and is one of the known cases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aid: Option<usize>,
    pub(crate) level: &'static str,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RequestOutcome {
    /// A write that was granted.
    Granted,
    /// A request that was answered 409.
    Conflict,
    /// Any other answer that is not a success.
    Refused,
    /// A read that was answered.
    Read,
}

/// What a 409 cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cost {
    /// Requests that the conflict cost: the refused one, and the writer's reads of the object and further refusals until
    /// the write that was granted, which is not counted.
    pub(crate) requests: usize,
    /// From the arrival of the refused request to the answer to the granted one; `None` when none was granted.
    pub(crate) millis: Option<f64>,
    /// The granted write.
    pub(crate) settled_by: Option<usize>,
    /// Whether it is the first of the refusals that this granted write ended. Sums take these alone.
    pub(crate) is_first: bool,
}

/// The case of a refused request, in the words of the documentation's first aid.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Aid {
    pub(crate) title: &'static str,
    pub(crate) cause: &'static str,
    pub(crate) fix: &'static str,
}

/// A span of one writer.
#[derive(Debug, Serialize)]
pub(crate) struct Drawn {
    pub(crate) writer: usize,
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) requests: usize,
}

/// A named stretch of time.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct DrawnPhase {
    pub(crate) name: String,
    pub(crate) start: f64,
    pub(crate) end: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

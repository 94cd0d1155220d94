//! What the page shows: writers, objects, requests in order, and what each 409 cost.

use jiff::Timestamp;
use serde::Serialize;

/// Everything that is drawn. Times are milliseconds since the first request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Model {
    pub(super) start: Timestamp,
    pub(super) end: f64,
    /// Pause that ends a span, in milliseconds.
    pub(super) gap: i64,
    pub(super) writers: Vec<Writer>,
    pub(super) objects: Vec<Object>,
    pub(super) requests: Vec<Shown>,
    pub(super) spans: Vec<Drawn>,
    pub(super) nodes: Vec<(f64, usize)>,
    pub(super) pods: Vec<(f64, usize)>,
    /// Granted writes whose version is not in the log.
    pub(super) unknown: usize,
    pub(super) notes: Vec<String>,
}

/// Somebody who sent requests, and what conflicts cost it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Writer {
    pub(super) name: String,
    pub(super) user: String,
    pub(super) agent: String,
    /// It set the scene of a scenario.
    pub(super) backstage: bool,
    pub(super) requests: usize,
    pub(super) reads: usize,
    pub(super) granted: usize,
    pub(super) conflicts: usize,
    pub(super) refused: usize,
    /// Requests that would not have been sent without a 409.
    pub(super) extra: usize,
    /// Milliseconds between refusals and the writes that were granted after them.
    pub(super) waited: f64,
    /// 409s after which no write of the object was granted.
    pub(super) unsettled: usize,
}

/// An object that requests were about.
#[derive(Debug, Serialize)]
pub(super) struct Object {
    /// `resource/name`.
    pub(super) name: String,
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) requests: usize,
    pub(super) conflicts: usize,
}

/// A request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing of its own that the page tells")]
pub(super) struct Shown {
    pub(super) writer: usize,
    pub(super) object: usize,
    pub(super) outcome: RequestOutcome,
    pub(super) received: f64,
    pub(super) completed: f64,
    pub(super) verb: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) how: Option<&'static str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
    pub(super) code: u16,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    /// The version that it was made from; absent for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) base: Option<String>,
    /// The version that it left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left: Option<String>,
    /// The log does not say what it was made from.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) base_unknown: bool,
    /// The log does not say what it left.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) left_unknown: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) field_manager: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) dry_run: bool,
    /// It was granted and moved no version.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) no_op: bool,
    /// The write that made its copy old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) beaten_by: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<Cost>,
    pub(super) level: &'static str,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RequestOutcome {
    /// A write that was granted.
    Granted,
    /// A request that was answered 409.
    Conflict,
    /// Any other answer that is no success.
    Refused,
    /// A read that was answered.
    Read,
}

/// What a 409 cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cost {
    /// Requests that the conflict cost: the refused one, and the writer's reads of the object and further refusals until
    /// the write that was granted, which is not counted.
    pub(super) requests: usize,
    /// From the arrival of the refused request to the answer to the granted one; `None` when none was granted.
    pub(super) millis: Option<f64>,
    /// The granted write.
    pub(super) settled_by: Option<usize>,
    /// Whether it is the first of the refusals that this granted write ended. Sums take these alone.
    pub(super) is_first: bool,
}

/// A span of one writer.
#[derive(Debug, Serialize)]
pub(super) struct Drawn {
    pub(super) writer: usize,
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) requests: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

//! Reads the API server's audit log: which requests arrived there, from which user, and with which result.
//!
//! It only reads; [`crate::request_costs`] counts and [`crate::lost_update_check`] judges.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::wait::eventually;

/// An answered request.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The user name, as in RBAC.
    pub user: String,
    /// The client's user agent.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, …
    pub verb: String,
    /// The object; `None` when the request was not about a single object.
    pub object: Option<ObjectKey>,
    /// `status`, `scale`, …; empty for the object itself.
    pub subresource: String,
    /// The field manager that the request named; `None` when it named none.
    pub field_manager: Option<String>,
    /// Whether the request takes fields over from other managers (`force` of a server-side apply).
    pub forced: bool,
    /// The HTTP code of the answer.
    pub code: u16,
    /// `Conflict`, `Invalid`, …; empty when the request succeeded.
    pub reason: String,
    /// The API server's message; empty when the request succeeded.
    pub message: String,
    /// The body of the request; `None` where the audit policy does not keep it. A patch, not an object, for verb
    /// `patch`.
    pub request: Option<Value>,
    /// The body of the answer; `None` where the audit policy does not keep it.
    pub response: Option<Value>,
    /// When the request arrived.
    pub received: Timestamp,
    /// When the answer was complete.
    pub completed: Timestamp,
}

/// Identifies an object in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, as in `nodepools`.
    pub resource: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl ObjectKey {
    /// The key of a `NodePool`.
    pub fn node_pool(namespace: &str, name: &str) -> Self {
        Self {
            group: "tandem.dev".into(),
            resource: "nodepools".into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl Event {
    /// Whether the request was a write.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Whether the request was granted.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// The version that the write was based on: that of a PUT, or the one required by a patch (in a merge patch, or as
    /// a `test` in a JSON Patch). `None` for an unconditional write.
    pub fn base_version(&self) -> Option<&str> {
        let request = self.request.as_ref()?;
        let version = match request.as_array() {
            Some(operations) => operations
                .iter()
                .find(|operation| {
                    operation["op"] == "test" && operation["path"] == "/metadata/resourceVersion"
                })
                .map(|operation| &operation["value"]),
            None => request.pointer("/metadata/resourceVersion"),
        };
        version?.as_str().filter(|version| !version.is_empty())
    }

    /// The object's version after a write that succeeded; `None` otherwise.
    pub fn version(&self) -> Option<u64> {
        // Versions of one resource are decimal numbers that can be compared (KEP-5504).
        self.response.as_ref()?.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
    }

    /// A short name of the requesting user: a service account as `namespace:name`, any other user by its name.
    pub fn writer(&self) -> &str {
        self.user.strip_prefix("system:serviceaccount:").unwrap_or(&self.user)
    }
}

/// An audit log that the API server appends to.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
}

impl AuditLog {
    /// The log in this file, which may not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all events so far.
    ///
    /// # Errors
    /// When the file cannot be read or a line is not an audit event.
    pub fn read_all(&self) -> Result<Vec<Event>> {
        self.follow_from(0).read_new()
    }

    /// The end of the last complete line in bytes, for [`AuditLog::follow_from`]. The API server may be writing the next one.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn end(&self) -> Result<u64> {
        match std::fs::File::open(&self.path) {
            Ok(file) => end_of_lines(&file).with_context(|| format!("cannot read {}", self.path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", self.path.display())),
        }
    }

    /// Reads from an offset in bytes.
    pub fn follow_from(&self, offset: u64) -> Follower {
        Follower { path: self.path.clone(), offset }
    }

    /// Waits until `find` finds something in the events since `offset`. An event can be written shortly after its
    /// client has the answer, so a test that reads the log only once may read it too early.
    ///
    /// # Errors
    /// When it is not found within `patience`.
    pub async fn wait_for<T>(
        &self,
        offset: u64,
        patience: Duration,
        what: &str,
        find: impl Fn(&[Event]) -> Option<T>,
    ) -> Result<T> {
        eventually(patience, what, || async {
            let events = self.follow_from(offset).read_new()?;
            match find(&events) {
                Some(found) => Ok(Some(found)),
                None => bail!("not among {} events", events.len()),
            }
        })
        .await
    }
}

/// Reads a log incrementally.
#[derive(Clone, Debug)]
pub struct Follower {
    path: PathBuf,
    offset: u64,
}

impl Follower {
    /// The events added since the last call.
    ///
    /// # Errors
    /// When the file cannot be read or a line is not an audit event.
    pub fn read_new(&mut self) -> Result<Vec<Event>> {
        let mut file = match std::fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", self.path.display())),
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // The last line may be incomplete, also within a character; it is left for the next call.
        bytes.truncate(bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1));
        let complete =
            String::from_utf8(bytes).with_context(|| format!("{} is not text", self.path.display()))?;
        self.offset += complete.len() as u64;
        complete.lines().filter_map(|line| parse(line).transpose()).collect()
    }
}

/// Where the last complete line of a file ends.
fn end_of_lines(mut file: &std::fs::File) -> std::io::Result<u64> {
    const CHUNK: u64 = 64 * 1024;
    let mut end = file.metadata()?.len();
    while end > 0 {
        let start = end.saturating_sub(CHUNK);
        file.seek(SeekFrom::Start(start))?;
        let mut chunk = Vec::new();
        file.take(end - start).read_to_end(&mut chunk)?;
        if let Some(newline) = chunk.iter().rposition(|&byte| byte == b'\n') {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Parses one line; `None` for stages other than `ResponseComplete`.
///
/// # Errors
/// When the line is not an audit event.
pub fn parse(line: &str) -> Result<Option<Event>> {
    let raw: Line = serde_json::from_str(line).with_context(|| {
        let start: String = line.chars().take(200).collect();
        format!("not an audit event: {start}")
    })?;
    if raw.stage != "ResponseComplete" {
        return Ok(None);
    }
    let status = raw.response_status.unwrap_or_default();
    let subresource = raw.object_ref.as_ref().map(|object| object.subresource.clone()).unwrap_or_default();
    // A create with `generateName` gets its name from the answer.
    let given = |body: &Option<Value>| body.as_ref()?.pointer("/metadata/name")?.as_str().map(String::from);
    let object = raw.object_ref.and_then(|object| {
        let name =
            Some(object.name).filter(|name| !name.is_empty()).or_else(|| given(&raw.response_object))?;
        Some(ObjectKey {
            group: object.api_group,
            resource: object.resource,
            namespace: object.namespace,
            name,
        })
    });
    Ok(Some(Event {
        user: raw.impersonated_user.unwrap_or(raw.user).username,
        user_agent: raw.user_agent,
        field_manager: parameter(&raw.request_uri, "fieldManager").map(String::from),
        forced: parameter(&raw.request_uri, "force") == Some("true"),
        verb: raw.verb,
        object,
        subresource,
        code: status.code,
        reason: status.reason,
        message: status.message,
        request: raw.request_object,
        response: raw.response_object,
        received: raw.request_received_timestamp,
        completed: raw.stage_timestamp,
    }))
}

/// A query parameter of a request, without decoding. Field managers of this project need no decoding.
fn parameter<'a>(uri: &'a str, name: &str) -> Option<&'a str> {
    let (_, query) = uri.split_once('?')?;
    query
        .split('&')
        .find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name))
        .map(|(_, value)| value)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    impersonated_user: Option<User>,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    request_object: Option<Value>,
    response_object: Option<Value>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
    reason: String,
    message: String,
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write as _;

    use super::*;

    /// A successful write, as the API server would log it.
    pub(crate) struct Wrote<'a> {
        pub(crate) user: &'a str,
        pub(crate) verb: &'a str,
        pub(crate) subresource: &'a str,
        pub(crate) request: Value,
        pub(crate) code: u16,
        pub(crate) response: Value,
        /// Milliseconds since the start of the test's timeline.
        pub(crate) at: i64,
    }

    impl Wrote<'_> {
        pub(crate) fn event(self) -> Event {
            let completed = Timestamp::from_millisecond(1_700_000_000_000 + self.at).unwrap();
            Event {
                user: self.user.into(),
                user_agent: "test".into(),
                verb: self.verb.into(),
                object: Some(ObjectKey::node_pool("default", "pool")),
                subresource: self.subresource.into(),
                field_manager: None,
                forced: false,
                code: self.code,
                reason: String::new(),
                message: String::new(),
                request: Some(self.request),
                response: Some(self.response),
                received: completed,
                completed,
            }
        }
    }

    const CONFLICT: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"1",
        "stage":"ResponseComplete","requestURI":"/apis/tandem.dev/v1alpha1/namespaces/a/nodepools/p/status?x=y&fieldManager=nodepool-operator",
        "verb":"update","user":{"username":"system:serviceaccount:tandem:nodepool-operator","groups":["g"]},
        "sourceIPs":["127.0.0.1"],"userAgent":"tandem/0.1","objectRef":{"resource":"nodepools","namespace":"a","name":"p",
        "apiGroup":"tandem.dev","apiVersion":"v1alpha1","subresource":"status","resourceVersion":"7"},
        "responseStatus":{"metadata":{},"status":"Failure","message":"the object has been modified","reason":"Conflict","code":409},
        "requestObject":{"metadata":{"resourceVersion":"7"}},
        "responseObject":{"kind":"Status","code":409},
        "requestReceivedTimestamp":"2026-11-21T03:00:00.000001Z","stageTimestamp":"2026-11-21T03:00:00.002000Z"}"#;

    fn one_line(json: &str) -> String {
        json.replace('\n', "")
    }

    #[test]
    fn a_conflict_is_read_with_its_writer_its_base_and_its_reason() {
        let event = parse(&one_line(CONFLICT)).unwrap().unwrap();
        assert_eq!(event.object, Some(ObjectKey::node_pool("a", "p")));
        assert_eq!(
            (event.code, event.reason.as_str(), event.subresource.as_str()),
            (409, "Conflict", "status")
        );
        assert_eq!(event.field_manager.as_deref(), Some("nodepool-operator"));
        assert!(
            !event.forced && parse(&one_line(CONFLICT).replace("x=y", "force=true")).unwrap().unwrap().forced
        );
        assert_eq!(event.writer(), "tandem:nodepool-operator");
        assert_eq!(event.base_version(), Some("7"));
        assert!(event.is_write() && !event.succeeded());
        assert_eq!(event.version(), None);
    }

    #[test]
    fn other_stages_are_left_out_and_damaged_lines_are_named() {
        let started = one_line(CONFLICT).replace("ResponseComplete", "RequestReceived");
        assert_eq!(parse(&started).unwrap(), None);
        assert!(parse("{\"kind\":").unwrap_err().to_string().contains("not an audit event: {\"kind\":"));
    }

    #[test]
    fn a_json_patch_carries_its_base_in_a_test() {
        let request = serde_json::json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": "9"},
            {"op": "replace", "path": "/spec/replicas", "value": 3},
        ]);
        let response = Value::Null;
        let event =
            Wrote { user: "u", verb: "patch", subresource: "", request, code: 200, response, at: 0 }.event();
        assert_eq!(event.base_version(), Some("9"));
    }

    #[test]
    fn a_line_that_is_half_written_is_read_when_it_is_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let line = one_line(CONFLICT);
        let (half, rest) = line.split_at(100);
        let log = AuditLog::new(file.path().to_owned());
        let mut follower = log.follow_from(0);
        write!(file, "{line}\n{half}").unwrap();
        assert_eq!(follower.read_new().unwrap().len(), 1);
        assert_eq!(log.end().unwrap(), line.len() as u64 + 1, "before the half");
        writeln!(file, "{rest}").unwrap();
        assert_eq!(follower.read_new().unwrap().len(), 1);
        assert_eq!(follower.read_new().unwrap().len(), 0);
        assert_eq!(log.read_all().unwrap().len(), 2);
        assert_eq!(log.end().unwrap(), file.as_file().metadata().unwrap().len());
    }
}

//! One line of an audit log: a request, as far as the audit policy logged it.

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::AUDIT_PREFIX;

/// Subresources that are streams to a container, not requests about the object.
const STREAMS: [&str; 5] = ["log", "exec", "attach", "portforward", "proxy"];

/// The fields of every line, whatever the policy is: enough to decide whether it is selected.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(crate) struct Head {
    kind: String,
    api_version: String,
    #[serde(rename = "auditID")]
    audit_id: String,
    level: Level,
    stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    impersonated_user: Option<User>,
    user_agent: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<Status>,
    request_received_timestamp: Option<Timestamp>,
    stage_timestamp: Option<Timestamp>,
}

/// How much of a request the audit policy logs.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub(crate) enum Level {
    None,
    #[default]
    Metadata,
    Request,
    RequestResponse,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
}

/// The object of a request.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectRef {
    pub(crate) api_group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) resource_version: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
    reason: String,
    message: String,
}

/// The bodies, parsed only for selected requests.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Bodies {
    request_object: Option<Value>,
    response_object: Option<Value>,
}

/// The version that a write was based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// This version.
    Version(String),
    /// The write is valid for any version.
    Any,
    /// The log does not contain it.
    Unknown,
}

/// The version after a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// This version.
    Version(String),
    /// The answer has none: an eviction, a delete.
    Nothing,
    /// The log does not contain it.
    Unknown,
}

/// A request about a selected object.
#[derive(Clone, Debug)]
pub(crate) struct LoggedRequest {
    /// The sender's name from an audit id with [`AUDIT_PREFIX`].
    pub(crate) actor: Option<String>,
    pub(crate) user: String,
    pub(crate) agent: String,
    pub(crate) verb: String,
    pub(crate) object: ObjectRef,
    pub(crate) level: Level,
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) received: Timestamp,
    pub(crate) completed: Timestamp,
    pub(crate) base: Base,
    pub(crate) left: Left,
    pub(crate) generation: Option<i64>,
    /// `apply` or `JSON patch`, if known: an audit event has no content type.
    pub(crate) how: Option<&'static str>,
    pub(crate) field_manager: Option<String>,
    pub(crate) dry_run: bool,
}

impl LoggedRequest {
    pub(crate) fn is_read(&self) -> bool {
        self.verb == "get"
    }

    pub(crate) fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Whether it is a granted write that is not a dry run.
    pub(crate) fn is_granted_write(&self) -> bool {
        !self.is_read() && self.succeeded() && !self.dry_run
    }
}

impl Head {
    /// Reads a line.
    ///
    /// # Errors
    /// When it is not an audit event.
    pub(crate) fn parse(line: &[u8]) -> Result<Self> {
        let head: Self = serde_json::from_slice(line).context("it is not JSON of an audit event")?;
        if head.kind == "EventList" {
            bail!("it is a list of audit events; make lines of them: jq -c '.items[]' FILE");
        }
        if head.kind != "Event" || !head.api_version.starts_with("audit.k8s.io/") {
            bail!("it is JSON, but not an Event of audit.k8s.io/v1");
        }
        Ok(head)
    }

    /// Whether the request was answered.
    pub(crate) fn is_complete(&self) -> bool {
        self.stage == "ResponseComplete"
    }

    pub(crate) fn verb(&self) -> &str {
        &self.verb
    }

    pub(crate) fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |status| status.code)
    }

    pub(crate) fn object(&self) -> Option<&ObjectRef> {
        self.object_ref.as_ref()
    }

    /// Whether it is a request about objects, and not a watch or a stream.
    pub(crate) fn is_request(&self) -> bool {
        let Some(object) = &self.object_ref else { return false };
        self.verb != "watch" && !STREAMS.contains(&object.subresource.as_str())
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        parameter(&self.request_uri, "dryRun").is_some()
    }

    /// The sender: the name in the audit id or the user, and the program.
    pub(crate) fn writer(&self) -> (String, String) {
        let who = self.actor().map_or_else(|| self.user().to_owned(), |actor| format!("\n{actor}"));
        (who, program(&self.user_agent).to_owned())
    }

    /// The times of arrival and answer; `None` if they are missing.
    pub(crate) fn times(&self) -> Option<(Timestamp, Timestamp)> {
        Some((self.request_received_timestamp?, self.stage_timestamp?))
    }

    fn user(&self) -> &str {
        &self.impersonated_user.as_ref().unwrap_or(&self.user).username
    }

    fn actor(&self) -> Option<&str> {
        self.audit_id.strip_prefix(AUDIT_PREFIX)?.split_once('/').map(|(_random, actor)| actor)
    }

    /// The whole request, with the bodies from `line`. `None` when it has no times.
    pub(crate) fn request(self, line: &[u8]) -> Option<LoggedRequest> {
        let (received, completed) = self.times()?;
        // A body that cannot be parsed counts as missing.
        let bodies: Bodies = serde_json::from_slice(line).unwrap_or_default();
        let actor = self.actor().map(str::to_owned);
        let user = self.user().to_owned();
        let status = self.response_status.unwrap_or_default();
        let field_manager = parameter(&self.request_uri, "fieldManager");
        let mut object = self.object_ref?;
        if object.name.is_empty() {
            object.name = text(bodies.response_object.as_ref(), "/metadata/name").unwrap_or_default();
        }
        let sent = bodies.request_object.as_ref();
        let answer = bodies.response_object.as_ref().filter(|answer| answer["kind"] != "Status");
        let has_answer = bodies.response_object.is_some();
        Some(LoggedRequest {
            base: base(&self.verb, self.level, sent, &object),
            left: match text(answer, "/metadata/resourceVersion") {
                Some(version) => Left::Version(version),
                None if has_answer => Left::Nothing,
                None => Left::Unknown,
            },
            generation: answer.and_then(|body| body.pointer("/metadata/generation")).and_then(Value::as_i64),
            how: how(&self.verb, &self.request_uri, sent, answer, field_manager.as_deref()),
            dry_run: parameter(&self.request_uri, "dryRun").is_some(),
            actor,
            user,
            agent: program(&self.user_agent).to_owned(),
            verb: self.verb,
            object,
            level: self.level,
            code: status.code,
            reason: status.reason,
            message: status.message,
            received,
            completed,
            field_manager,
        })
    }
}

fn text(body: Option<&Value>, pointer: &str) -> Option<String> {
    body?.pointer(pointer)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The version that a write was based on: that of a PUT, or the one that a patch or a delete requires. The API server
/// copies a PUT's version to `objectRef`, so it is known at any level; that of a patch is only in the body.
fn base(verb: &str, level: Level, sent: Option<&Value>, object: &ObjectRef) -> Base {
    if verb == "create" {
        return Base::Any;
    }
    let Some(sent) = sent else {
        let version = &object.resource_version;
        return match (version.is_empty(), level) {
            (false, _) => Base::Version(version.clone()),
            // A delete without a body requires no version.
            (true, Level::Request | Level::RequestResponse) if verb == "delete" => Base::Any,
            (true, _) => Base::Unknown,
        };
    };
    let version = match sent.as_array() {
        Some(operations) => operations
            .iter()
            .find(|operation| operation["op"] == "test" && operation["path"] == "/metadata/resourceVersion")
            .and_then(|operation| text(Some(operation), "/value")),
        None if verb == "delete" => text(Some(sent), "/preconditions/resourceVersion"),
        None => text(Some(sent), "/metadata/resourceVersion"),
    };
    version.map_or(Base::Any, Base::Version)
}

/// The kind of a patch. A JSON Patch is recognised by its body, an apply by `force` or by the managers in the answer.
fn how(
    verb: &str,
    uri: &str,
    sent: Option<&Value>,
    answer: Option<&Value>,
    field_manager: Option<&str>,
) -> Option<&'static str> {
    if verb != "patch" {
        return None;
    }
    if sent.is_some_and(Value::is_array) {
        return Some("JSON patch");
    }
    let managers = answer.and_then(|body| body.pointer("/metadata/managedFields")).and_then(Value::as_array);
    let applied = managers.is_some_and(|all| {
        all.iter().any(|of| of["operation"] == "Apply" && of["manager"].as_str() == field_manager)
    });
    (applied || parameter(uri, "force").is_some()).then_some("apply")
}

/// A parameter of a request's URI.
fn parameter(uri: &str, name: &str) -> Option<String> {
    let (_, query) = uri.split_once('?')?;
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.replace("%2F", "/").replace("%3A", ":").replace('+', " "))
}

/// The program in a user agent: the part before the platform.
fn program(agent: &str) -> &str {
    agent.split(' ').next().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A line as the API server writes it, at level `RequestResponse`, merged with `with`.
    pub(crate) fn line(at: i64, user: &str, verb: &str, code: u16, with: Value) -> Value {
        let start = 1_700_000_000_000;
        let moment = |at: i64| Timestamp::from_millisecond(start + at).unwrap().to_string();
        let mut line = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "1",
            "stage": "ResponseComplete", "verb": verb, "user": {"username": user},
            "requestURI": "/apis/tandem.dev/v1/namespaces/a/nodepools/x",
            "objectRef": {"apiGroup": "tandem.dev", "resource": "nodepools", "namespace": "a", "name": "x"},
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": moment(at), "stageTimestamp": moment(at + 5),
        });
        json_patch(&mut line, with);
        line
    }

    /// Merge patch, as far as these tests need it.
    fn json_patch(under: &mut Value, over: Value) {
        match over {
            Value::Object(over) if under.is_object() => {
                for (key, value) in over {
                    json_patch(&mut under[key], value);
                }
            }
            over => *under = over,
        }
    }

    pub(crate) fn request(line: &Value) -> LoggedRequest {
        let text = line.to_string();
        Head::parse(text.as_bytes()).unwrap().request(text.as_bytes()).unwrap()
    }

    #[test]
    fn versions_are_read_from_both_bodies() {
        let put = request(&line(
            0,
            "u",
            "update",
            200,
            json!({
                "requestObject": {"metadata": {"resourceVersion": "7"}},
                "responseObject": {"metadata": {"resourceVersion": "8", "generation": 2}},
            }),
        ));
        assert_eq!(
            (put.base, put.left, put.generation),
            (Base::Version("7".into()), Left::Version("8".into()), Some(2))
        );
        let patch = request(&line(
            0,
            "u",
            "patch",
            200,
            json!({
                "requestObject": [{"op": "test", "path": "/metadata/resourceVersion", "value": "9"}],
                "responseObject": {"metadata": {"resourceVersion": "10"}},
            }),
        ));
        assert_eq!((patch.base, patch.how), (Base::Version("9".into()), Some("JSON patch")));
        let refused = request(&line(0, "u", "update", 409, json!({"responseObject": {"kind": "Status"}})));
        assert_eq!(refused.left, Left::Nothing);
    }

    #[test]
    fn a_patch_without_a_version_differs_from_one_whose_body_is_not_logged() {
        let body = json!({"requestObject": {"spec": {}}});
        assert_eq!(request(&line(0, "u", "patch", 200, body)).base, Base::Any);
        let metadata = request(&line(0, "u", "patch", 200, json!({"level": "Metadata"})));
        assert_eq!((metadata.base, metadata.left), (Base::Unknown, Left::Unknown));
    }

    #[test]
    fn at_level_metadata_the_version_of_a_put_is_in_the_reference() {
        let with = json!({"level": "Metadata", "objectRef": {"resourceVersion": "7"}});
        assert_eq!(request(&line(0, "u", "update", 200, with)).base, Base::Version("7".into()));
    }

    #[test]
    fn the_base_of_a_delete_is_in_its_preconditions() {
        let with = json!({"requestObject": {"preconditions": {"resourceVersion": "7"}}});
        assert_eq!(request(&line(0, "u", "delete", 200, with)).base, Base::Version("7".into()));
        assert_eq!(request(&line(0, "u", "delete", 200, json!({}))).base, Base::Any);
    }

    #[test]
    fn an_apply_is_recognised_by_its_managers_or_by_force() {
        let with = json!({
            "requestURI": "/x?fieldManager=me%2Fand", "requestObject": {"spec": {}},
            "responseObject": {"metadata": {"managedFields": [{"manager": "me/and", "operation": "Apply"}]}},
        });
        assert_eq!(request(&line(0, "u", "patch", 200, with)).how, Some("apply"));
        let with = json!({"requestURI": "/x?force=true&fieldManager=me", "level": "Metadata"});
        assert_eq!(request(&line(0, "u", "patch", 200, with)).how, Some("apply"));
    }

    #[test]
    fn an_actor_is_read_from_the_audit_id() {
        let with = json!({"auditID": format!("{AUDIT_PREFIX}00ff/a controller")});
        assert_eq!(request(&line(0, "admin", "get", 200, with)).actor.as_deref(), Some("a controller"));
    }

    #[test]
    fn other_json_is_no_audit_event() {
        for (text, said) in [
            ("{}", "not an Event of audit.k8s.io"),
            (r#"{"kind":"Event","apiVersion":"v1"}"#, "not an Event of audit.k8s.io"),
            (r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1"}"#, "jq -c '.items[]'"),
            ("I0101 nothing", "not JSON"),
        ] {
            assert!(Head::parse(text.as_bytes()).unwrap_err().to_string().contains(said), "{text}");
        }
    }
}

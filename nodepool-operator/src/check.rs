//! `nodepool-operator check`: whether the operators of a release work, and why not. `helm test` runs it in a Pod of its own.
//!
//! It reads the release's Deployments and Pods, and asks each Pod that is not ready what it waits for: that stands on its
//! `/readyz`, and the API server does not know it.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::Args;
use http::{Request, StatusCode};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, Client, Config, ResourceExt as _};
use shared_runtime::cli::ConnectionArgs;
use shared_runtime::client;
use shared_runtime::clock::Clock;
use shared_runtime::error::chain;
use shared_runtime::metrics::Metrics;
use tokio::time::{Instant, sleep};

use crate::SPEC;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a Pod may take to answer: a network that drops packets must not hold up the others.
const ANSWERS: Duration = Duration::from_secs(2);
/// Which of the release's Deployments are looked at: what other charts add to a release is not Tandem's.
const PART: &str = "app.kubernetes.io/part-of=tandem";
/// What a kernel says of a program for another machine, and a container runtime of an image that has none for this one.
const OF_ANOTHER_ARCHITECTURE: [&str; 2] = ["exec format error", "no match for platform"];
/// How a kubelet calls an image that it does not get.
const NOT_PULLED: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];
/// What registries, and what asks them, say of one who has no password, or another's.
const NO_PASSWORD: [&str; 4] =
    ["nauthorized", "authorization failed", "no basic auth credentials", "pull access denied"];

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    client: ConnectionArgs,

    /// The namespace of the release
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    namespace: String,

    /// The name of the release, as in `helm list`
    #[arg(long, value_name = "NAME", default_value = "tandem")]
    release: String,

    /// How long to wait until all replicas are ready
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=3600))]
    timeout_seconds: u32,
}

/// Why a release is not called healthy.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// There is no connection to the cluster.
    #[error("cannot connect to the cluster")]
    Connect(#[from] client::ClientError),
    /// Something of the release cannot be read.
    #[error("cannot read the {what} of namespace {namespace}; who runs this needs `list` on them")]
    Read {
        /// Which resource, as in RBAC.
        what: &'static str,
        /// Where.
        namespace: String,
        /// What the API server says.
        source: kube::Error,
    },
    /// A replica is missing or not ready. What is known was printed.
    #[error("the release {release} is not ready after {seconds} s")]
    NotReady {
        /// Its name.
        release: String,
        /// How long it was waited for.
        seconds: u32,
    },
    /// Two metrics have one name.
    #[error("cannot count requests")]
    Metrics(#[from] shared_runtime::metrics::MetricsError),
    /// Standard output is closed or full.
    #[error("cannot write to standard output")]
    Output(#[from] std::io::Error),
}

/// What is known of one operator.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    ready: bool,
    /// What to print, in lines.
    text: String,
}

/// Waits until every operator of the release is ready, and prints each one's state.
///
/// # Errors
/// When one is not in time, or cannot be read.
pub(crate) async fn check(args: CheckArgs) -> Result<(), CheckError> {
    let CheckArgs { client, namespace, release, timeout_seconds } = args;
    let metrics = Metrics::new(SPEC.name, SPEC.version)?;
    let client = client::connect(&client, SPEC.name, SPEC.version, Clock::system(), metrics).await?;
    let until = Instant::now() + Duration::from_secs(timeout_seconds.into());
    loop {
        let findings = look(&client, &namespace, &release).await?;
        let ready = !findings.is_empty() && findings.iter().all(|finding| finding.ready);
        if ready || Instant::now() >= until {
            let mut out = std::io::stdout().lock();
            for finding in &findings {
                write!(out, "{}", finding.text)?;
            }
            if findings.is_empty() {
                writeln!(
                    out,
                    "no Deployment of release {release} in namespace {namespace}: `helm list -A` has both names"
                )?;
            }
            return if ready {
                Ok(())
            } else {
                Err(CheckError::NotReady { release, seconds: timeout_seconds })
            };
        }
        sleep(PAUSE).await;
    }
}

async fn look(client: &Client, namespace: &str, release: &str) -> Result<Vec<Finding>, CheckError> {
    let of_release = format!("{PART},app.kubernetes.io/instance={release}");
    let unreadable = |what| move |source| CheckError::Read { what, namespace: namespace.to_owned(), source };
    let params = ListParams::default().labels(&of_release);
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let deployments = deployments.list(&params).await.map_err(unreadable("deployments"))?;
    let pods =
        Api::<Pod>::namespaced(client.clone(), namespace).list(&params).await.map_err(unreadable("pods"))?;
    let mut findings = Vec::new();
    for deployment in deployments {
        let mut seen = Vec::new();
        for pod in pods.iter().filter(|pod| belongs(pod, &deployment)) {
            let answer = if is_ready(pod) { None } else { waits_for(pod).await };
            seen.push((pod, answer));
        }
        findings.push(judge(&deployment, &seen));
    }
    Ok(findings)
}

/// Whether the Deployment's selector has this Pod, one on its way out left aside.
fn belongs(pod: &Pod, deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.selector.match_labels.as_ref());
    let leaving = pod.metadata.deletion_timestamp.is_some();
    !leaving
        && wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| pod.labels().get(key) == Some(value)))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// What the Pod itself says on `/readyz`.
async fn waits_for(pod: &Pod) -> Option<String> {
    let address: IpAddr = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
    let ports = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .flat_map(|container| container.ports.iter().flatten());
    let port = ports.into_iter().find(|port| port.name.as_deref() == Some("admin"))?.container_port;
    let address = SocketAddr::new(address, u16::try_from(port).ok()?);
    let answer = tokio::time::timeout(ANSWERS, ask(address)).await;
    Some(answer.unwrap_or_else(|_| format!("http://{address}/readyz does not answer")))
}

async fn ask(address: SocketAddr) -> String {
    let answer = readyz(address).await;
    answer.unwrap_or_else(|why| format!("http://{address}/readyz cannot be asked: {}", chain(&*why)))
}

async fn readyz(address: SocketAddr) -> Result<String, Box<dyn std::error::Error>> {
    let mut config = Config::new(format!("http://{address}").parse()?);
    // What is not ready answers 503, which kube would repeat for minutes.
    config.default_retry = false;
    let request = Request::get("/readyz").body(Body::empty())?;
    let response = Client::try_from(config)?.send(request).await?;
    if response.status() == StatusCode::OK {
        return Ok("it is ready by now".to_owned());
    }
    let bytes = response.into_body().collect_bytes().await?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// One operator: its replicas, and of those that are not ready what is known.
fn judge(deployment: &Deployment, pods: &[(&Pod, Option<String>)]) -> Finding {
    let name = deployment.name_any();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.as_ref();
    let observed = status.and_then(|status| status.observed_generation) >= deployment.metadata.generation;
    let updated = status.and_then(|status| status.updated_replicas).unwrap_or(0);
    let ready_pods = pods.iter().filter(|(pod, _)| is_ready(pod)).count();
    let ready = observed && updated >= wanted && i32::try_from(ready_pods).is_ok_and(|ready| ready >= wanted);
    let mut text = format!("{name}: {ready_pods} of {wanted} replicas ready\n");
    if !ready {
        // Where no Pod could be made at all, only this says why: a quota, an admission webhook, a Pod Security level.
        let conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
        for condition in conditions.filter(|condition| is_trouble(condition)) {
            let message = condition.message.as_deref().unwrap_or_default();
            text.push_str(&format!("  {}: {message}\n", condition.type_));
        }
    }
    for (pod, answer) in pods.iter().filter(|(pod, _)| !is_ready(pod)) {
        let why = why_not(pod);
        text.push_str(&format!("  {}: {why}\n", pod.name_any()));
        if let Some(advice) = advice(&why) {
            text.push_str(&format!("    {advice}\n"));
        }
        for line in answer.iter().flat_map(|answer| answer.lines()) {
            text.push_str(&format!("    {line}\n"));
        }
    }
    Finding { ready, text }
}

fn is_trouble(condition: &DeploymentCondition) -> bool {
    match &*condition.type_ {
        "ReplicaFailure" => condition.status == "True",
        "Progressing" => condition.status == "False",
        _ => false,
    }
}

/// What the kubelet or the scheduler says of a Pod that is not ready.
fn why_not(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let mut containers = status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    if let Some(why) = containers.find_map(stopped) {
        return why;
    }
    let conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
    let scheduled = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
    match scheduled.filter(|condition| condition.status == "False") {
        Some(condition) => {
            format!("not scheduled: {}", condition.message.as_deref().unwrap_or("no reason given"))
        }
        None => "not ready".to_owned(),
    }
}

/// What to do, where the words of the kernel or of the container runtime do not say it.
fn advice(why: &str) -> Option<&'static str> {
    let says = |any: &[&str]| any.iter().any(|words| why.contains(words));
    if says(&OF_ANOTHER_ARCHITECTURE) {
        return Some(
            "the image is for another architecture than this node: build it on a machine like your nodes, or set kubernetes.io/arch in the \
             nodeSelector of both operators",
        );
    }
    (says(&NOT_PULLED) && says(&NO_PASSWORD)).then_some(
        "the registry requires a password: name a Secret of type kubernetes.io/dockerconfigjson, which is in the namespace of the release, \
         in global.image.pullSecrets",
    )
}

/// Why a container does not run, with its last words where it had some.
fn stopped(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref()?;
    let ended = |state: &k8s_openapi::api::core::v1::ContainerStateTerminated| {
        let words = state.message.as_deref().unwrap_or_default().trim();
        format!("it ended with exit code {}: {words}", state.exit_code)
    };
    if let Some(terminated) = &state.terminated {
        return Some(ended(terminated));
    }
    let waiting = state.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().unwrap_or("waiting");
    let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref()).map(ended);
    let message = last.or_else(|| waiting.message.clone()).unwrap_or_default();
    Some(format!("{reason}: {message}").trim_end_matches([' ', ':']).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn deployment(status: &Value) -> Deployment {
        let value = json!({
            "metadata": {"name": "tandem-nodepool-operator", "generation": 2},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": {}},
            "status": status,
        });
        serde_json::from_value(value).unwrap()
    }

    fn pod(name: &str, status: &Value) -> Pod {
        let metadata = json!({"name": name, "labels": {"app": "x", "more": "y"}});
        serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
    }

    fn ready() -> Value {
        json!({"conditions": [{"type": "Ready", "status": "True"}]})
    }

    #[test]
    fn a_release_is_ready_when_the_wanted_replicas_of_the_present_revision_are() {
        let (a, b) = (pod("a", &ready()), pod("b", &ready()));
        let current = json!({"observedGeneration": 2, "updatedReplicas": 2});
        let finding = judge(&deployment(&current), &[(&a, None), (&b, None)]);
        assert_eq!(
            (finding.ready, &*finding.text),
            (true, "tandem-nodepool-operator: 2 of 2 replicas ready\n")
        );
        // Ready, and of the revision before; or what was asked for has not been seen yet; or one is missing.
        for status in [
            json!({"observedGeneration": 2, "updatedReplicas": 1}),
            json!({"observedGeneration": 1, "updatedReplicas": 2}),
        ] {
            assert!(!judge(&deployment(&status), &[(&a, None), (&b, None)]).ready, "{status}");
        }
        assert!(!judge(&deployment(&current), &[(&a, None)]).ready);
    }

    #[test]
    fn what_keeps_a_replica_is_said_in_the_words_of_the_one_who_knows() {
        let quota = "pods \"x\" is forbidden: insufficient quota to match these scopes";
        let refused = json!({"observedGeneration": 2, "conditions": [
            {"type": "ReplicaFailure", "status": "True", "message": quota},
            {"type": "Available", "status": "False", "message": "not of interest"},
        ]});
        let finding = judge(&deployment(&refused), &[]);
        assert_eq!(
            finding.text,
            format!("tandem-nodepool-operator: 0 of 2 replicas ready\n  ReplicaFailure: {quota}\n")
        );
        let cases = [
            (json!({"conditions": [{"type": "Ready", "status": "False"}]}), "not ready"),
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]}),
                "not scheduled: 0/1 nodes are available",
            ),
            (
                json!({"containerStatuses": [{"name": "c", "ready": false, "image": "", "imageID": "", "restartCount": 0,
                    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}]}),
                "ImagePullBackOff: not found",
            ),
            (
                json!({"containerStatuses": [{"name": "c", "ready": false, "image": "", "imageID": "", "restartCount": 3,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
                    "lastState": {"terminated": {"exitCode": 1, "message": "error: no lease\n"}}}]}),
                "CrashLoopBackOff: it ended with exit code 1: error: no lease",
            ),
        ];
        for (status, expected) in cases {
            let pod = pod("p", &status);
            let finding = judge(
                &deployment(&json!({})),
                &[(&pod, Some("lease: cannot be read\ncache: empty".to_owned()))],
            );
            let lines = format!("  p: {expected}\n    lease: cannot be read\n    cache: empty\n");
            assert!(!finding.ready && finding.text.ends_with(&lines), "{}", finding.text);
        }
    }

    #[test]
    fn an_image_for_another_architecture_is_called_that_with_what_to_do() {
        let container = |state: &Value, last: &Value| {
            json!({"containerStatuses": [{"name": "c", "ready": false, "image": "", "imageID": "", "restartCount": 1,
                "state": state, "lastState": last}]})
        };
        let back_off = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}});
        let pull = |message: &str| json!({"waiting": {"reason": "ErrImagePull", "message": message}});
        let ended = |words: &str| json!({"terminated": {"exitCode": 255, "message": words}});
        let said = |status: &Value| judge(&deployment(&json!({})), &[(&pod("p", status), None)]).text;
        for status in [
            container(&back_off, &ended("exec /nodepool-operator: exec format error\n")),
            container(&ended("exec /nodepool-operator: exec format error"), &json!({})),
            container(
                &pull("failed to pull and unpack image: no match for platform in manifest"),
                &json!({}),
            ),
        ] {
            let lines = said(&status);
            let advice = lines.lines().last().unwrap_or_default();
            assert!(
                advice.starts_with("    the image is for another architecture than this node: "),
                "{lines}"
            );
        }
        // The control: other ends are no matter of the image.
        for status in
            [container(&back_off, &ended("error: no lease")), container(&pull("unauthorized"), &json!({}))]
        {
            assert!(!said(&status).contains("architecture"), "{status}");
        }
    }

    #[test]
    fn an_image_that_needs_a_password_is_called_that_with_what_to_do() {
        let said = |state: &Value| {
            let status = json!({"containerStatuses": [{"name": "c", "ready": false, "image": "", "imageID": "",
                "restartCount": 1, "state": state}]});
            judge(&deployment(&json!({})), &[(&pod("p", &status), None)]).text
        };
        let waits = |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
        let refused =
            "unexpected status from HEAD request to https://r.example/v2/a/manifests/1: 401 Unauthorized";
        let again = format!("Back-off pulling image \"a\": ErrImagePull: {refused}");
        for state in [
            waits("ErrImagePull", refused),
            waits("ImagePullBackOff", &again),
            waits(
                "ErrImagePull",
                "pull access denied, repository does not exist or may require authorization",
            ),
        ] {
            let lines = said(&state);
            let advice = lines.lines().last().unwrap_or_default();
            assert!(advice.starts_with("    the registry requires a password: "), "{lines}");
            assert!(advice.contains("global.image.pullSecrets"), "{lines}");
        }
        // The control: one that is not there, and an operator that is refused by the API server.
        for state in [waits("ErrImagePull", "not found"), waits("CrashLoopBackOff", "Unauthorized")] {
            assert!(!said(&state).contains("password"), "{state}");
        }
    }

    #[tokio::test]
    async fn what_a_pod_says_is_repeated_and_not_asked_for_again_and_again() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let asked = stream.read(&mut [0; 1024]).await.unwrap();
            assert!(asked > 0);
            let answer = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 12\r\n\r\nlease: gone\n";
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream
        };
        let (said, _stream) = tokio::join!(ask(address), served);
        assert_eq!(said, "lease: gone");
        drop(listener);
        assert!(ask(address).await.contains("cannot be asked"));
    }

    #[test]
    fn pods_of_other_deployments_and_those_that_leave_do_not_count() {
        let deployment = deployment(&json!({}));
        let mut own = pod("a", &ready());
        assert!(belongs(&own, &deployment));
        own.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert!(!belongs(&own, &deployment));
        let mut other = pod("b", &ready());
        other.labels_mut().insert("app".to_owned(), "z".to_owned());
        assert!(!belongs(&other, &deployment));
    }
}

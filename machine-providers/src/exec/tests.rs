//! Tests of the provider with programs that misbehave. That it does what a provider has to do is in `contract_tests`.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fmt, fs};

use node_lifecycle::supply::KnownAs;
use shared_crds::v1alpha1::ExecProvider;
use shared_runtime::clock::Clock;
use shared_runtime::fence::Fence;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use super::*;
use crate::Progress;
use crate::provisioner::Provisioner;
use crate::testing::{at, cluster, key, pool, slot};

/// A program `name` that is this shell script.
pub(crate) fn script(name: &str, directory: &tempfile::TempDir, text: &str) -> Program {
    let path = directory.path().join("program");
    toolbox::executable::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    format!("{name}={}", path.display()).parse().unwrap()
}

/// What a list becomes when the program is this script.
async fn listed(text: &str) -> Result<Vec<ListedMachine>, ProviderError> {
    let directory = tempfile::tempdir().unwrap();
    Exec::new(script("rack", &directory, text), cluster()).list(&key(), at(100)).await
}

/// The kind of error, and its message without the name of the program.
fn said(error: &ProviderError) -> (&'static str, String) {
    let (kind, message) = match error {
        ProviderError::Quota(message) => ("quota", message),
        ProviderError::Invalid(message) => ("invalid", message),
        ProviderError::Unauthorized(message) => ("unauthorized", message),
        ProviderError::Transient(message) => ("transient", message),
        ProviderError::Unreachable(message) => ("unreachable", message),
        ProviderError::Throttled(message, _) => ("throttled", message),
        ProviderError::Absent(_) | ProviderError::Busy(_) | ProviderError::Conflict => {
            panic!("no program reports {error:?}")
        }
    };
    let (program, message) = message.split_once("): ").unwrap();
    assert!(program.starts_with("rack (/"), "{error}");
    (kind, message.to_owned())
}

#[tokio::test]
async fn a_list_is_read_with_states_times_and_provider_ids() {
    let machines = r#"{"name": "a", "state": "Starting", "readyInSeconds": 20}, {"name": "b", "state": "Starting"},
        {"name": "c", "state": "Running", "providerID": "x://c", "rack": 7, "cluster": "there"}, {"name": "d", "state": "Deleting"},
        {"name": "e", "state": "Failed", "message": "no power", "providerID": "", "cluster": ""}"#;
    let machines = listed(&format!("echo '{{\"machines\": [{machines}]}}'")).await.unwrap();
    let failed = ProviderError::Transient("machine e failed: no power".to_owned());
    let expected = [
        ("a", Progress::Starting(Some(at(120))), None),
        ("b", Progress::Starting(None), None),
        ("c", Progress::Running, Some("x://c".to_owned())),
        ("d", Progress::Deleting, None),
        ("e", Progress::Failed(failed), None),
    ];
    let expected = expected.map(|(name, progress, provider_id)| ListedMachine {
        name: name.to_owned(),
        progress,
        provider_id,
        template_hash: None,
        is_outdated: false,
        cluster: (name == "c").then(|| "there".to_owned()),
        known_as: KnownAs::default(),
    });
    assert_eq!(machines, expected);
}

#[tokio::test]
async fn a_machine_is_out_of_date_whose_revision_is_another_than_the_current_one() {
    for (current, own, expected) in [
        (r#", "revision": "2""#, r#", "revision": "1""#, true),
        (r#", "revision": "2""#, r#", "revision": "2""#, false),
        (r#", "revision": "2""#, "", false),
        (r#", "revision": "2""#, r#", "revision": "" "#, false),
        ("", r#", "revision": "1""#, false),
        (r#", "revision": "" "#, r#", "revision": "1""#, false),
    ] {
        let machine = format!(r#"{{"name": "a", "state": "Running"{own}}}"#);
        let machines = listed(&format!("echo '{{\"machines\": [{machine}]{current}}}'")).await.unwrap();
        assert_eq!(machines[0].is_outdated, expected, "current{current}, own{own}");
    }
}

#[tokio::test]
async fn an_error_is_read_from_the_answer_else_from_the_exit_status() {
    for (text, expected) in [
        (r#"echo '{"error": {"reason": "QuotaExceeded", "message": "m"}}'"#, ("quota", "m")),
        (r#"echo '{"error": {"reason": "Invalid", "message": "m"}}'; exit 1"#, ("invalid", "m")),
        (r#"echo '{"error": {"reason": "Unauthorized", "message": "m"}}'; exit 2"#, ("unauthorized", "m")),
        (r#"echo '{"error": {"reason": "Unreachable", "message": "m"}}'"#, ("unreachable", "m")),
        (r#"echo '{"error": {"reason": "Anything", "message": "m"}}'"#, ("transient", "m")),
        (r#"echo '{"error": {"message": "m"}}'"#, ("transient", "m")),
        (
            "echo 'no  such\nrack' >&2; exit 3",
            ("transient", "exit status: 3: its standard error is in the log of nodepool-operator"),
        ),
        ("exit 1", ("transient", "exit status: 1: it printed no error")),
        ("kill -9 $$", ("transient", "signal: 9 (SIGKILL): it printed no error")),
    ] {
        let (kind, message) = said(&listed(text).await.unwrap_err());
        assert_eq!((kind, message.as_str()), expected, "{text}");
    }
}

/// What a creation and a deletion become that are asked of the program.
async fn changed(program: Program) -> [Result<(), ProviderError>; 2] {
    let mut pool = pool(1);
    let provider = ExecProvider { name: "rack".to_owned(), ..ExecProvider::default() };
    pool.spec.provider = ProviderSpec { exec: Some(provider), ..ProviderSpec::default() };
    let (exec, key) = (Exec::new(program, cluster()), key());
    let request = MachineRequest { pool: &key, name: "m", spec: &pool.spec, existing: 0 };
    let created = exec.create(request, at(0)).await.map(drop);
    [created, exec.delete(&key, "m").await.map(drop)]
}

#[tokio::test]
async fn a_change_is_in_doubt_if_the_program_was_killed_or_its_answer_cannot_be_read_and_not_if_it_failed() {
    for (text, expected) in [
        ("kill -9 $$", "unreachable"),
        (r#"echo '{"state": "Gone"}'; kill -9 $$"#, "unreachable"),
        ("true", "unreachable"),
        ("echo done", "unreachable"),
        (r#"printf '{"state": "Go'"#, "unreachable"),
        (r#"echo '{"state": 7, "readyInSeconds": "soon"}'"#, "unreachable"),
        ("exec yes", "unreachable"),
        (r#"echo '{"error": {"message": "m"}}'; kill -9 $$"#, "transient"),
        (r#"echo '{"error": {"reason": "Invalid", "message": "m"}}'"#, "invalid"),
        (r#"printf '{"state": "Go'; exit 3"#, "transient"),
        ("exit 137", "transient"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        for answer in changed(script("rack", &directory, text)).await {
            assert_eq!(said(&answer.unwrap_err()).0, expected, "{text}");
        }
    }
    for answer in changed("rack=/no/such/program".parse().unwrap()).await {
        assert_eq!(said(&answer.unwrap_err()).0, "transient", "nothing was begun");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_takes_too_long_is_in_doubt() {
    let directory = tempfile::tempdir().unwrap();
    for answer in changed(script("rack", &directory, "exec sleep 600")).await {
        let (kind, message) = said(&answer.unwrap_err());
        assert_eq!((kind, message.as_str()), ("unreachable", "no answer within 30 s"));
    }
}

/// The fields of all events of this thread, one on a line.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.lock().unwrap().push_str(&format!("{field}: {value:?}\n"));
    }
}

#[tokio::test]
async fn what_a_program_writes_to_standard_error_is_in_the_log_and_in_no_message() {
    let log = Log::default();
    // While there is one subscriber alone, a message that another thread comes to first is off for all.
    let _second = tracing::Dispatch::new(Log::default());
    let _logging = tracing::subscriber::set_default(log.clone());
    for answer in ["exit 3", r#"echo '{"error": {"message": "m"}}'; exit 3"#, "echo garbage", "echo '{}'"] {
        let error = listed(&format!("echo '+ TOKEN=hidden  curl\nfailed' >&2; {answer}")).await.unwrap_err();
        assert!(!error.to_string().contains("hidden"), "{answer}: {error}");
        let logged = std::mem::take(&mut *log.0.lock().unwrap());
        assert!(logged.contains("program: \"rack\""), "{answer}: {logged}");
        assert!(logged.contains("standard_error: \"+ TOKEN=hidden curl failed\""), "{answer}: {logged}");
    }
}

#[tokio::test]
async fn a_program_says_when_to_ask_it_again() {
    for (fields, expected) in [
        (r#""retryAfterSeconds": 20"#, Some(20)),
        (r#""reason": "Unavailable", "retryAfterSeconds": 0.5"#, Some(1)),
        (r#""retryAfterSeconds": 1e300"#, None),
        (r#""retryAfterSeconds": 86400"#, Some(300)),
        (r#""retryAfterSeconds": 0"#, None),
        (r#""retryAfterSeconds": -1"#, None),
        (r#""retryAfterSeconds": "soon""#, None),
        (r#""retryAfterSeconds": null"#, None),
        // What stands in the way, or that it is not known what was done, is not lost.
        (r#""reason": "QuotaExceeded", "retryAfterSeconds": 20"#, None),
        (r#""reason": "Unreachable", "retryAfterSeconds": 20"#, None),
    ] {
        let error =
            listed(&format!("echo '{{\"error\": {{\"message\": \"m\", {fields}}}}}'")).await.unwrap_err();
        assert_eq!(error.retry_after().map(|after| after.as_secs()), expected, "{fields}");
        assert_eq!(said(&error).1, "m", "{fields}");
    }
}

#[tokio::test]
async fn garbage_is_no_list() {
    for text in [
        "echo hello",
        "true",
        "echo '{}'",
        r#"echo '{"machines": [{"name": "a"}]}'"#,
        r#"echo '{"machines": [{"name": "a", "state": "Sleeping"}]}'"#,
        "printf '\\000\\377'",
    ] {
        let (kind, message) = said(&listed(text).await.unwrap_err());
        assert!(kind == "transient" && message.contains("cannot be read"), "{text}: {message}");
    }
}

#[tokio::test]
async fn a_program_that_prints_without_end_is_stopped() {
    let (kind, message) = said(&listed("exec yes").await.unwrap_err());
    assert_eq!(
        (kind, message.as_str()),
        ("transient", "its output cannot be read: it is longer than 1024 KiB")
    );
    // Its standard error is dropped instead, because it may be a log.
    let answer = r#"head -c 3000000 /dev/zero >&2; echo '{"machines": []}'"#;
    assert_eq!(listed(answer).await, Ok(vec![]));
}

#[tokio::test]
async fn a_program_that_is_missing_or_no_program_is_named() {
    let missing: Program = "rack=/no/such/program".parse().unwrap();
    let (kind, message) = said(&Exec::new(missing, cluster()).list(&key(), at(0)).await.unwrap_err());
    assert_eq!(kind, "transient");
    assert!(message.starts_with("it cannot be started: No such file"), "{message}");
}

/// Whether a process with this ID exists.
fn exists(pid: &str) -> bool {
    fs::exists(format!("/proc/{}", pid.trim())).unwrap()
}

/// A program that never answers and has a child of its own, whose ID is in the file when both run.
fn that_hangs(directory: &tempfile::TempDir) -> (Program, std::path::PathBuf) {
    let pids = directory.path().join("pids");
    let text = format!("sleep 600 & echo $! >{0}.new; mv {0}.new {0}; wait", pids.display());
    (script("rack", directory, &text), pids)
}

/// What is in the file, as soon as it is there.
async fn content(file: &std::path::Path) -> String {
    while !fs::exists(file).unwrap() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fs::read_to_string(file).unwrap()
}

/// Waits until the process has ended.
async fn ended(process: &str) {
    let gone = async {
        while exists(process) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("the program's own child ends too");
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_no_process() {
    let directory = tempfile::tempdir().unwrap();
    let (program, pids) = that_hangs(&directory);
    let (program, pool) = (Exec::new(program, cluster()), key());
    let child = tokio::select! {
        ended = program.list(&pool, at(0)) => panic!("{ended:?}"),
        child = content(&pids) => child,
    };
    ended(&child).await;
}

#[tokio::test]
async fn a_program_that_makes_a_machine_is_ended_with_the_lease() {
    let directory = tempfile::tempdir().unwrap();
    let (program, pids) = that_hangs(&directory);
    let fence = Fence::unguarded(Clock::system());
    let exec = Exec::new(program, cluster());
    let provisioner = Provisioner::with(cluster(), vec![Box::new(exec)]).fenced(fence.clone());
    let mut pool = pool(1);
    let provider = ExecProvider { name: "rack".to_owned(), ..ExecProvider::default() };
    pool.spec.provider = ProviderSpec { exec: Some(provider), ..ProviderSpec::default() };
    let request = MachineRequest { pool: &key(), name: &slot(0), spec: &pool.spec, existing: 0 };
    let lost = async {
        let child = content(&pids).await;
        fence.close();
        child
    };
    let (created, child) = tokio::join!(provisioner.create(request, at(0)), lost);
    let error = created.unwrap_err();
    assert!(error.to_string().contains("lost its lease"), "{error}");
    ended(&child).await;
}

#[tokio::test]
async fn a_request_says_what_to_do_and_a_shell_can_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("request");
    let program =
        Exec::new(script("rack", &directory, &format!("cat >{}; echo '{{}}'", kept.display())), cluster());
    let spec = serde_json::from_value(serde_json::json!({
        "maxReplicas": 1,
        "provider": { "exec": { "name": "rack", "parameters": { "row": "7" } } },
        "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "capacity": { "cpu": "4", "memory": "8Gi" } } },
    }))
    .unwrap();
    let request = MachineRequest { pool: &key(), name: "m", spec: &spec, existing: 0 };
    assert_eq!(program.create(request, at(0)).await, Ok(None));
    insta::assert_snapshot!(fs::read_to_string(kept).unwrap());
}

#[test]
fn a_program_is_configured_as_name_and_absolute_path() {
    let parsed = |text: &str| text.parse::<Program>();
    assert_eq!(parsed("rack-1=/opt/a=b").unwrap().name(), "rack-1");
    assert_eq!(parsed("/opt/rack"), Err(InvalidProgram::NoName));
    assert_eq!(parsed("rack=rack"), Err(InvalidProgram::Path("rack".to_owned())));
    for name in ["", "Rack", "-rack", "rack-", "a.b", &"a".repeat(51)] {
        assert_eq!(parsed(&format!("{name}=/x")), Err(InvalidProgram::Name(name.to_owned())));
    }
}

#[tokio::test]
async fn so_many_processes_run_at_the_same_time_as_are_configured_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    for most in [1, 2] {
        // Each waits until as many have begun as may run, however long they take to start; then one too many has time to show.
        let text = format!(
            "echo + >>{0}; while [ $(grep -cF + {0}) -lt {most} ]; do sleep 0.01; done; sleep 0.1; echo - >>{0}; \
             echo '{{\"machines\": []}}'",
            log.display()
        );
        let program =
            Exec::new(script("rack", &directory, &text), cluster()).at_most(NonZeroU8::new(most).unwrap());
        fs::write(&log, "").unwrap();
        let pool = key();
        let lists = futures::future::join_all((0..6).map(|_| program.list(&pool, at(0)))).await;
        assert!(lists.iter().all(Result::is_ok), "{lists:?}");
        let (mut running, mut peak) = (0_i32, 0);
        for line in fs::read_to_string(&log).unwrap().lines() {
            running += if line == "+" { 1 } else { -1 };
            peak = peak.max(running);
        }
        assert_eq!((running, peak), (0, i32::from(most)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_place_longer_than_a_process_may_run_and_not_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let program = Exec::new(script("rack", &directory, "exec sleep 600"), cluster()).at_most(NonZeroU8::MIN);
    let pool = key();
    let lists = futures::future::join_all((0..4).map(|_| program.list(&pool, at(0)))).await;
    let kinds: Vec<bool> = lists.iter().map(|it| matches!(it, Err(ProviderError::Unreachable(_)))).collect();
    assert_eq!(kinds, [true, true, true, false], "{lists:?}");
    assert!(lists[3].as_ref().unwrap_err().to_string().contains("of its processes run already"), "{lists:?}");
}

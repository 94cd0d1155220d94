//! What the operators reject and accept at startup, and the chart with them: a release that installs must not be a
//! crash loop. Only the proxy test needs a cluster.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::operators::OperatorKind;
use testbed::tandem::{self, chart};
use testbed::wait::PATIENCE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use toolbox::tools::{Tool, Toolbox};

/// The last check at startup: an operator that gets this far has accepted everything else.
const NO_KUBECONFIG: &str = "cannot read the kubeconfig no/such/file";

/// Runs a program to completion, without the test environment's variables about clusters, proxies and certificates.
async fn run(program: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home.path()).envs(env.iter().copied()).args(args);
    command.stdin(Stdio::null()).kill_on_drop(true);
    tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap()
}

/// The last line of an operator that exits by itself.
async fn last_words(operator: OperatorKind, args: &[&str], env: &[(&str, &str)]) -> String {
    let base = ["run", "--kubeconfig=no/such/file", "--admin-address=127.0.0.1:0"];
    let output = run(&operator.binary().await.unwrap(), &[&base[..], args].concat(), env).await;
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap().lines().last().unwrap_or_default().to_owned()
}

async fn helm(args: &[&str]) -> Result<String, String> {
    let helm = Toolbox::from_environment().find(&[Tool::Helm]).await.unwrap().remove(0);
    let first: Vec<&str> = helm.first_args.iter().map(String::as_str).collect();
    let output = run(&helm.path, &[&first[..], args].concat(), &[]).await;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// The output of `helm template` for a chart with these values.
async fn render(chart: &Path, values: &Value) -> Result<String, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("values.yaml");
    std::fs::write(&file, values.to_string()).unwrap();
    helm(&["template", "tandem", chart.to_str().unwrap(), "--values", file.to_str().unwrap()]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_refuses_the_lease_times_that_the_operators_refuse_with_the_same_words() {
    for (duration, deadline, period, is_refused) in [
        (15, 10, 2, false),
        (10, 10, 2, true),
        (15, 10, 9, true),
        (15, 6, 5, true),
        (15, 7, 5, false),
        (3, 2, 1, false),
        (2, 1, 1, true),
        (3600, 3599, 2999, false),
        (3600, 3598, 2999, true),
    ] {
        let times = format!("{duration} {deadline} {period}");
        let lease = json!({
            "leaseDurationSeconds": duration, "renewDeadlineSeconds": deadline, "retryPeriodSeconds": period,
        });
        let rendered = render(&chart(), &json!({"autoscalerOperator": {"leaderElection": lease}})).await;
        let args = [
            format!("--lease-duration-seconds={duration}"),
            format!("--renew-deadline-seconds={deadline}"),
            format!("--retry-period-seconds={period}"),
        ];
        let said = last_words(OperatorKind::Autoscaler, &args.each_ref().map(String::as_str), &[]).await;
        if is_refused {
            let (_, said) = said.split_once("do not fit together: ").expect(&said);
            let as_value = said
                .replace("--lease-duration-seconds", "leaseDurationSeconds")
                .replace("--renew-deadline-seconds", "renewDeadlineSeconds")
                .replace("--retry-period-seconds", "retryPeriodSeconds");
            let refusal = rendered.expect_err(&times);
            let expected = format!("autoscalerOperator.leaderElection: {as_value}");
            assert!(refusal.contains(&expected), "{times}: {expected:?} is not in\n{refusal}");
        } else {
            rendered.unwrap();
            assert!(said.contains(NO_KUBECONFIG), "{times}: {said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_is_no_log_level_is_refused_by_the_chart_and_by_the_operators_alike() {
    for (filter, is_refused) in [
        ("info", false),
        ("INFO, kube=debug", false),
        ("warn,no_such_module=trace,", false),
        ("info,[reconcile]=debug", false),
        ("2", false),
        ("verbose", true),
        ("info,verbose", true),
        ("info,kube=loud", true),
        (" ", true),
    ] {
        let rendered = render(&chart(), &json!({"global": {"logLevel": filter}})).await;
        let said = last_words(OperatorKind::NodePool, &["--log-level", filter], &[]).await;
        let by_variable = last_words(OperatorKind::NodePool, &[], &[("TANDEM_LOG_LEVEL", filter)]).await;
        if is_refused {
            assert_eq!(said, by_variable);
            let (_, said) = said.split_once("--log-level ").expect(&said);
            assert!(
                said.contains("is no level; levels are off, error, warn, info, debug and trace"),
                "{said}"
            );
            let refusal = rendered.expect_err(filter);
            let expected = format!("global.logLevel {said}");
            assert!(refusal.contains(&expected), "{expected:?} is not in\n{refusal}");
        } else {
            rendered.unwrap();
            assert!(said.contains(NO_KUBECONFIG), "{filter}: {said}");
            assert!(by_variable.contains(NO_KUBECONFIG), "{filter}: {by_variable}");
        }
    }
}

/// In an umbrella chart with cert-manager, which has a number there and refuses text.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_level_of_a_parent_chart_that_is_a_number_is_for_other_charts() {
    let parent = tempfile::tempdir().unwrap();
    std::fs::write(parent.path().join("Chart.yaml"), "{apiVersion: v2, name: parent, version: 0.1.0}")
        .unwrap();
    std::fs::create_dir(parent.path().join("charts")).unwrap();
    std::os::unix::fs::symlink(chart(), parent.path().join("charts/tandem")).unwrap();
    for (values, level) in [
        (json!({"global": {"logLevel": 2}}), "info"),
        (json!({"global": {"logLevel": 2}, "tandem": {"logLevel": "debug"}}), "debug"),
        (json!({"global": {"logLevel": "warn"}}), "warn"),
    ] {
        let rendered = render(parent.path(), &values).await.unwrap();
        let arg = format!("--log-level={level}\"");
        assert_eq!(rendered.matches(&arg).count(), 2, "{values}: {rendered}");
    }
    let refused = render(parent.path(), &json!({"global": {"logLevel": "verbose"}})).await.unwrap_err();
    assert!(refused.contains("global.logLevel \"verbose\": \"verbose\" is no level"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_refuses_operators_that_watch_different_namespaces() {
    let watching = async |pools: &str, autoscaler: &str| {
        let values = json!({
            "nodepoolOperator": {"watchNamespace": pools}, "autoscalerOperator": {"watchNamespace": autoscaler},
        });
        render(&chart(), &values).await
    };
    for (pools, autoscaler) in [("a", ""), ("", "b"), ("a", "b")] {
        let refusal = watching(pools, autoscaler).await.expect_err("two namespaces");
        let named = format!(
            "nodepoolOperator.watchNamespace ({pools:?}) and autoscalerOperator.watchNamespace ({autoscaler:?}) must be the same"
        );
        assert!(refusal.contains(&named), "{refusal}");
    }
    watching("a", "a").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flag_that_the_chart_gives_is_refused_among_the_extra_ones() {
    let with =
        async |args: &[&str]| render(&chart(), &json!({"nodepoolOperator": {"extraArgs": args}})).await;
    let refusal = with(&["--lease-name=x"]).await.expect_err("--lease-name twice");
    assert!(refusal.contains("nodepoolOperator.extraArgs: --lease-name is given by the chart"), "{refusal}");
    with(&["--concurrency=8"]).await.unwrap();
    // Because an operator would not start.
    let binary = OperatorKind::NodePool.binary().await.unwrap();
    let output = run(&binary, &["run", "--lease-name=a", "--lease-name=b"], &[]).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot be used multiple times"), "{said}");
}

/// The words that `docs/guides/troubleshooting.md` quotes.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_too_old_is_refused_with_both_versions() {
    let chart = chart();
    let on = async |version: &str| {
        helm(&["template", "tandem", chart.to_str().unwrap(), "--kube-version", version]).await
    };
    let refusal = on("1.31.9").await.expect_err("1.31.9");
    let words = "chart requires kubeVersion: >=1.32.0-0 which is incompatible with Kubernetes v1.31.9";
    assert!(refusal.contains(words), "{refusal}");
    // The names that clouds give to their versions count as what they are.
    for version in ["1.32.0", "1.32.0-eks-5ca49cb", "1.33.1-gke.1386000"] {
        on(version).await.unwrap();
    }
}

/// A third-party chart with Tandem as a dependency.
async fn parent_chart() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let ours = chart().canonicalize().unwrap();
    let manifest = json!({
        "apiVersion": "v2", "name": "platform", "version": "1.0.0",
        "dependencies": [
            {"name": "tandem", "version": ">=0.0.0-0", "repository": format!("file://{}", ours.display())},
        ],
    });
    std::fs::write(directory.path().join("Chart.yaml"), manifest.to_string()).unwrap();
    helm(&["dependency", "update", directory.path().to_str().unwrap()]).await.unwrap();
    directory
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_chart_shares_its_registry_and_whatever_else_it_likes() {
    let parent = parent_chart().await;
    let values = json!({
        "global": {
            "imageRegistry": "mirror.example.org",
            "imagePullSecrets": ["by-name", {"name": "by-object"}],
            "storageClass": "fast",
            "postgresql": {"auth": {"database": "x"}},
        },
        "tandem": {"writeStrategy": "retry"},
    });
    let rendered = render(parent.path(), &values).await.unwrap();
    for line in [
        "image: \"mirror.example.org/tandem-dev/nodepool-operator:",
        "image: \"mirror.example.org/tandem-dev/autoscaler-operator:",
        "- name: \"by-name\"",
        "- name: \"by-object\"",
        "- --write-strategy=retry",
    ] {
        assert!(rendered.contains(line), "{line:?} is not in\n{rendered}");
    }
    assert!(!rendered.contains("ghcr.io"), "{rendered}");
    // The control: Tandem's own values are checked as strictly as before.
    let refusal = render(parent.path(), &json!({"tandem": {"typo": 1}})).await.expect_err("a typo");
    assert!(refusal.contains("typo"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_over_plain_http_need_no_certificates_and_over_tls_the_lack_is_named() {
    let traced = async |endpoint: &str| {
        let env = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
            ("SSL_CERT_FILE", "/no/such/bundle"),
            ("SSL_CERT_DIR", "/no/such/directory"),
        ];
        last_words(OperatorKind::NodePool, &[], &env).await
    };
    let said = traced("http://127.0.0.1:1").await;
    assert!(said.contains(NO_KUBECONFIG), "{said}");
    let said = traced("https://traces.example.org").await;
    for word in ["https://traces.example.org", "CA certificates", "SSL_CERT_FILE", "http://"] {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

/// Answers only `CONNECT`, and counts the requests.
async fn http_proxy() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let tunnels = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tunnels);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(tunnel(client, Arc::clone(&counted)));
        }
    });
    (url, tunnels)
}

async fn tunnel(mut client: TcpStream, tunnels: Arc<AtomicUsize>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(client.read_u8().await.unwrap());
    }
    let request = String::from_utf8(request).unwrap();
    let target = request.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap();
    let mut server = TcpStream::connect(target).await.unwrap();
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    tunnels.fetch_add(1, Ordering::Relaxed);
    copy_bidirectional(&mut client, &mut server).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_of_a_kubeconfig_is_used_and_one_that_cannot_be_is_named() {
    let cluster = tandem::definitions_only().await.unwrap();
    let (proxy, tunnels) = http_proxy().await;
    let directory = tempfile::tempdir().unwrap();
    let binary = OperatorKind::Autoscaler.binary().await.unwrap();
    let look = async |proxy_url: Option<&str>, env: &[(&str, &str)]| {
        let mut kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
        kubeconfig.clusters[0].cluster.as_mut().unwrap().proxy_url = proxy_url.map(str::to_owned);
        let file = directory.path().join("kubeconfig");
        std::fs::write(&file, serde_saphyr::to_string(&kubeconfig).unwrap()).unwrap();
        run(&binary, &["simulate", "--live", "--kubeconfig", file.to_str().unwrap()], env).await
    };

    let output = look(Some(&proxy), &[]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(tunnels.load(Ordering::Relaxed) > 0, "no connection went through the proxy");

    // The local machine is not reached through the environment's proxy, which does not exist here.
    let output = look(None, &[("HTTPS_PROXY", "http://127.0.0.1:1")]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let output = look(Some("https://user:secret@proxy.example.org"), &[]).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("proxy-url of the kubeconfig"), "{said}");
    assert!(said.contains("http://HOST:PORT or socks5://HOST:PORT"), "{said}");
    assert!(!said.contains("secret") && !said.contains("certificate"), "{said}");
}

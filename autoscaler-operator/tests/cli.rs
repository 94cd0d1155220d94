//! The program as a user runs it: exit codes, output streams, and invalid input.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Output};

const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guides/example/cluster.yaml");

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_autoscaler-operator"));
    // No cluster of the user's environment may be used by a test.
    for variable in ["KUBECONFIG", "TANDEM_KUBECONFIG", "TANDEM_CONTEXT", "KUBERNETES_SERVICE_HOST", "HOME"] {
        command.env_remove(variable);
    }
    command.args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_answer_goes_to_standard_output_and_everything_else_to_standard_error() {
    let output = run(&["simulate", "-f", CLUSTER, "--remove-node", "general-1"]);
    assert_eq!(output.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report.as_object().unwrap().keys().collect::<Vec<_>>(), ["nodes", "pods", "pools"]);
    assert!(text(&output.stderr).starts_with("note: what if general-1 is gone: pending now: shop/web-1\n"));
}

#[test]
fn bad_input_ends_with_one_and_wrong_usage_with_two_and_both_say_what_to_do() {
    let file = |args: &[&'static str]| [&["simulate", "-f", CLUSTER], args].concat();
    let explain = |args: &[&'static str]| [&["explain"], args, &["-f", CLUSTER]].concat();
    for (args, code, part) in [
        (file(&["--remove-node", "genral-1"]), 1, "there is no such node; did you mean general-1?"),
        (file(&["--pool", "genral=1"]), 1, "there is no such NodePool; did you mean general?"),
        (file(&["--pool", "general=5"]), 1, "spec.maxReplicas is 4"),
        (file(&["--pool", "general=0"]), 1, "spec.minReplicas is 1"),
        (file(&["--add-pods", "no/such/file.yaml"]), 1, "no/such/file.yaml: cannot be read"),
        (file(&["--add-pods", CLUSTER, "--count", "0"]), 2, "0 is not in 1..=100000"),
        (file(&["--add-pods", CLUSTER, "--count", "1000000"]), 2, "is not in 1..=100000"),
        (file(&["--count", "1"]), 2, "--add-pods"),
        (file(&["--pool", "general=-1"]), 2, "replicas cannot be below zero"),
        (file(&["--pool", "general"]), 2, "such as demo/small=3"),
        (file(&["--now", "yesterday"]), 2, "--now"),
        (vec!["simulate"], 2, "--live"),
        (vec!["simulate", "-f", "no/such/file.yaml"], 1, "no/such/file.yaml: cannot be read"),
        (vec!["simulate", "--live"], 1, "no cluster to connect to: pass --kubeconfig"),
        (
            vec!["simulate", "--live", "--kubeconfig", "no/such"],
            1,
            "cannot read the kubeconfig no/such; check --kubeconfig",
        ),
        (vec!["explain", "pod", "x"], 1, "no cluster to connect to: pass --kubeconfig"),
        (explain(&["pod", "web-4"]), 1, "there is no pod web-4; did you mean web-1?"),
        (explain(&["node", "x"]), 1, "there is no node x"),
        (
            explain(&["pool", "other/general"]),
            1,
            "there is no NodePool other/general; did you mean shop/general?",
        ),
        (explain(&["deployment", "x"]), 2, "[possible values: pod, node, pool]"),
        (vec!["explain", "pod"], 2, "<NAME>"),
    ] {
        let output = run(&args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_cluster_that_cannot_be_reached_is_an_error_that_names_the_flags() {
    let kubeconfig = std::env::temp_dir().join(format!("tandem-cli-{}", std::process::id()));
    std::fs::write(
        &kubeconfig,
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
         contexts: [{name: c, context: {cluster: c}}]\n",
    )
    .unwrap();
    let output = run(&["explain", "pool", "general", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    std::fs::remove_file(kubeconfig).unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("error: cannot reach the cluster's API server; check --kubeconfig and --context: "),
        "{said}"
    );
}

//! Every Pod that the chart makes, in a namespace with the restricted level of Pod Security: with each option that changes Pods.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use testbed::cluster::Cluster;
use testbed::tandem::chart;

use super::install::PLACES;

/// What changes Pods and keeps to the level: the defaults, one replica, programs in either image, an uninstall that looks for pools, user
/// IDs that are left to the cluster, and what else of a Pod the chart fills in.
const WITHIN: &[&[&str]] = &[
    &[],
    &["nodepoolOperator.replicas=1", "autoscalerOperator.replicas=1"],
    &["providers.exec[0].name=a", "providers.exec[0].path=/a"],
    &["providers.exec[0].name=a", "providers.exec[0].path=/a", "providers.execImage.repository="],
    &["uninstall.whilePoolsExist=Report"],
    &["uninstall.whilePoolsExist=Refuse", "nodepoolOperator.podSecurityContext.runAsUser=null"],
    &["crds.keep=false", "autoscalerOperator.podSecurityContext.runAsGroup=null"],
    &["nodepoolOperator.dnsPolicy=Default", "autoscalerOperator.priorityClassName="],
    &["nodepoolOperator.adminAddress=0.0.0.0:9081", "nodepoolOperator.startupProbe.periodSeconds=1"],
    &["nodepoolOperator.extraVolumes[0].name=a", "nodepoolOperator.extraVolumes[0].emptyDir.medium=Memory"],
    &["networkPolicy.enabled=true", "metrics.podMonitor.enabled=true"],
];

/// What does not, and the words with which the API server refuses its Pods.
const BEYOND: &[(&str, &str)] = &[
    ("hostNetwork=true", "host namespaces (hostNetwork=true)"),
    ("podSecurityContext=null", "must set securityContext.runAsNonRoot=true"),
    ("podSecurityContext.seccompProfile=null", "must set securityContext.seccompProfile.type"),
    ("podSecurityContext.runAsUser=0", "runAsUser=0"),
    ("securityContext=null", "must set securityContext.allowPrivilegeEscalation=false"),
    ("securityContext.capabilities=null", "must set securityContext.capabilities.drop=[\"ALL\"]"),
    ("extraVolumes[0].name=a,nodepoolOperator.extraVolumes[0].hostPath.path=/a", "restricted volume types"),
];

/// The Pods that the chart makes with these values: those of its Deployments and Jobs, and that of `helm test`.
async fn made_with(cluster: &Cluster, values: &[&str]) -> Vec<Pod> {
    let chart = chart();
    let args = ["template", "tandem", chart.to_str().unwrap(), "--kube-version", "1.36.3"];
    let values = values.iter().flat_map(|value| ["--set", *value]);
    let args: Vec<&str> = args.into_iter().chain(values).collect();
    let rendered = cluster.helm(&args).await.unwrap();
    let kinds = ["kind: Deployment", "kind: Job", "kind: Pod"];
    let makes_pods = |object: &&str| object.lines().any(|line| kinds.contains(&line));
    let objects = rendered.split("\n---\n").filter(makes_pods);
    objects.map(|object| as_pod(serde_saphyr::from_str(object).unwrap())).collect()
}

fn as_pod(mut object: Value) -> Pod {
    let mut spec = match object["kind"].as_str().unwrap() {
        "Pod" => object["spec"].take(),
        _ => object["spec"]["template"]["spec"].take(),
    };
    // The account exists in the release's namespace; Pod Security does not look at it.
    spec.as_object_mut().unwrap().remove("serviceAccountName");
    serde_json::from_value(json!({"metadata": {"name": "probe"}, "spec": spec})).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_option_of_the_chart_keeps_to_the_restricted_level_or_the_api_server_names_it() {
    let cluster = &PLACES.take().await.unwrap();
    let enforce = [("pod-security.kubernetes.io/enforce", "restricted")];
    let namespace = cluster.namespace_called("strict", &enforce).await.unwrap();
    let api = Api::<Pod>::namespaced(cluster.client().await.unwrap(), namespace.name());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for values in WITHIN {
        let pods = made_with(cluster, values).await;
        // Of each operator, and of `helm test`.
        assert!(pods.len() > 2, "{values:?}: {} Pods", pods.len());
        for pod in pods {
            let refused = api.create(&dry_run, &pod).await.err();
            assert!(refused.is_none(), "{values:?}: {refused:?}");
        }
    }
    for (value, words) in BEYOND {
        let value = format!("nodepoolOperator.{value}");
        let mut refusals = Vec::new();
        for pod in made_with(cluster, &[value.as_str()]).await {
            refusals.extend(api.create(&dry_run, &pod).await.err().map(|error| error.to_string()));
        }
        let named =
            refusals.iter().any(|said| said.contains("violates PodSecurity") && said.contains(*words));
        assert!(named, "{value}: {refusals:#?}");
    }
    cluster.mark_reusable();
}

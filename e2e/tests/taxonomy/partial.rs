//! A Rust type that knows a part of a kind, as most of kube's users write them: what it does not know survives an update, also
//! within the entries of a list, and does not survive a PUT.

use std::borrow::Cow;
use std::sync::Arc;

use conflict_retry::{Outcome, WriteOptions, update};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{NamespaceResourceScope, ObjectMeta};
use kube::{Api, Resource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use testbed::{objects, tandem};

use crate::bench::Counts;

/// A Deployment, as a program sees it that only changes images.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Images {
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Spec {
    template: Template,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Template {
    spec: PodSpec,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct PodSpec {
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Container {
    name: String,
    image: String,
}

impl Resource for Images {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Deployment::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Deployment::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Deployment::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Deployment::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Sets the image of the container called `sidecar`.
fn upgrade(deployment: &mut Images) {
    let containers = &mut deployment.spec.template.spec.containers;
    containers
        .iter_mut()
        .filter(|it| it.name == "sidecar")
        .for_each(|it| "sidecar:2".clone_into(&mut it.image));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_partial_type_does_not_know_survives_an_update_and_not_a_put() {
    let cluster = tandem::definitions_only().await.unwrap();
    let namespace = cluster.namespace("partial").await.unwrap();
    let client = cluster.client().await.unwrap();
    let whole = Api::<Deployment>::namespaced(client.clone(), namespace.name());
    let partial = Api::<Images>::namespaced(client, namespace.name());

    let mut deployment = serde_json::to_value(objects::deployment("web", "none", 0, "100m")).unwrap();
    deployment["spec"]["template"]["spec"]["containers"] = json!([
        {"name": "app", "image": "app:1", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}]},
        {"name": "sidecar", "image": "sidecar:1", "args": ["--quiet"], "env": [{"name": "B", "value": "2"}]},
    ]);
    let deployment: Deployment = serde_json::from_value(deployment).unwrap();
    let created = whole.create(&PostParams::default(), &deployment).await.unwrap();
    let mut wanted = spec_of(&created);
    wanted["template"]["spec"]["containers"][1]["image"] = json!("sidecar:2");

    let counts = Arc::new(Counts::default());
    let options = WriteOptions::new("images").with_observer(counts.clone());
    // Another writer comes first: it gives the other container an argument.
    let copy = partial.get("web").await.unwrap();
    let other =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "args": ["--fast"]}]}}}});
    whole.patch("web", &PatchParams::default(), &Patch::Strategic(other)).await.unwrap();
    wanted["template"]["spec"]["containers"][0]["args"] = json!(["--fast"]);

    let outcome =
        update(&partial, "web", upgrade).with(&options).from(Arc::new(copy)).outcome().await.unwrap();
    assert!(matches!(outcome, Outcome::Written(_)));
    assert_eq!(counts.take(), "get merge_patch", "a list is changed as the server has it");
    assert_eq!(spec_of(&whole.get("web").await.unwrap()), wanted);

    // The same by a PUT: the server refuses what is left of the object, or would store it.
    let erased =
        update(&partial, "web", |it| it.spec.template.spec.containers[1].image = "sidecar:3".to_owned())
            .put()
            .with(&options)
            .await;
    let text = format!("{:?}", erased.unwrap_err());
    assert!(text.contains("spec.selector"), "{text}");
}

fn spec_of(deployment: &Deployment) -> Value {
    serde_json::to_value(&deployment.spec).unwrap()
}

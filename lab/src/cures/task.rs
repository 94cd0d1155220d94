//! What each cure is to do, and what the rival does meanwhile.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::rival::{Moment, RivalWrite};

/// How often the crowd of `back-off` is faster than everyone: more often than the naive form tries.
const CROWD: usize = 6;
/// Writes of a controller that count as a loop.
pub(super) const LOOP: usize = 20;

/// One cure.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Its name in commands, files and links.
    pub id: &'static str,
    /// What it is about, as a heading.
    pub title: &'static str,
    /// What the programs are to do, while the rival does its part.
    pub wanted: &'static str,
    /// What comes of the naive form.
    pub naive: &'static str,
    /// What comes of the right form.
    pub right: &'static str,
    /// The end of the path of the object that both write.
    pub object: &'static str,
    /// When the rival writes.
    pub moment: Moment,
}

impl Task {
    /// Whether its programs are controllers, which do not end by themselves.
    pub fn is_controller(&self) -> bool {
        matches!(self.id, "one-write" | "requeue")
    }
}

/// All of them, in the order of the pages.
pub const TASKS: [Task; 17] = [
    Task {
        id: "change-a-field",
        title: "Change a field of an object",
        wanted: "Set `data.colour` to blue. Another writer sets `data.shade` after the object was read.",
        naive: "409 Conflict: the copy is old, and nothing is written.",
        right: "A retry reads again and changes the fresh copy: both changes are kept.",
        object: "/configmaps/settings",
        moment: Moment::FirstUse,
    },
    Task {
        id: "write-only-your-field",
        title: "Write only your own field",
        wanted: "Set `data.colour` to blue, whatever else is in the object. Another writer sets `data.shade`.",
        naive: "A PUT without a version always wins: the other writer's change is lost.",
        right: "A patch of one field needs no read and no retry: both changes are kept.",
        object: "/configmaps/settings",
        moment: Moment::FirstUse,
    },
    Task {
        id: "status",
        title: "Write a status",
        wanted: "Set `status.collisionCount` of a Deployment. Another writer sets an annotation.",
        naive: "The server answers 200 and drops the status: nothing is written.",
        right: "A write to `/status` is stored, and the annotation is kept.",
        object: "/deployments/web",
        moment: Moment::FirstUse,
    },
    Task {
        id: "condition",
        title: "Own one condition",
        wanted: "Set your own condition in `status.conditions`. Another writer sets another condition.",
        naive: "A merge patch replaces the whole list: the other condition is lost.",
        right: "Server-side apply owns one entry of the list: both conditions are there.",
        object: "/deployments/web",
        moment: Moment::FirstUse,
    },
    Task {
        id: "field-manager",
        title: "Resolve a server-side apply conflict between field managers",
        wanted: "Apply your fields. Another field manager owns `data.colour`.",
        naive: "409 each time: a retry cannot resolve a conflict about the owner of a field.",
        right: "Apply only what is yours: no conflict, and the other manager's field stays.",
        object: "/configmaps/settings",
        moment: Moment::Never,
    },
    Task {
        id: "replica-count",
        title: "Change a replica count that depends on the current one",
        wanted: "Add two replicas to the current 3. Another writer sets 10 in between.",
        naive: "The count is computed once: the retry writes 5, and the 10 is lost.",
        right: "Each attempt computes the count from the fresh object: 12.",
        object: "/deployments/web",
        moment: Moment::FirstUse,
    },
    Task {
        id: "finalizer",
        title: "Add a finalizer",
        wanted: "Add your finalizer. Another controller adds its own.",
        naive: "A merge patch replaces the list of finalizers: the other finalizer is lost.",
        right: "A patch with the resourceVersion, and a retry: both finalizers are there.",
        object: "/configmaps/settings",
        moment: Moment::FirstUse,
    },
    Task {
        id: "create-or-update",
        title: "Create an object, or change the one that is there",
        wanted: "Make sure that a ConfigMap with `colour: blue` exists. Another writer creates it first.",
        naive: "AlreadyExists, and nothing is written.",
        right: "It reads what is there now and changes it: both writers' fields are kept.",
        object: "/configmaps/fresh",
        moment: Moment::FirstUse,
    },
    Task {
        id: "delete-this-one",
        title: "Delete this object, not a new one with the same name",
        wanted: "Delete the object that was read. In between, another writer deletes it and creates a new one with the same name.",
        naive: "A delete by name removes the new object.",
        right: "With the UID as a precondition, the new object stays.",
        object: "/configmaps/settings",
        moment: Moment::FirstUse,
    },
    Task {
        id: "watch",
        title: "Resume a watch after 410 Gone: too old resource version",
        wanted: "Print the names of three ConfigMaps with a watch from a resourceVersion that the server no longer has.",
        naive: "The program takes the ERROR event for an object, and ends with a panic or an error.",
        right: "The program lists again and continues: three names.",
        object: "/configmaps",
        moment: Moment::Never,
    },
    Task {
        id: "error-type",
        title: "Wrap an error and still recognise the conflict",
        wanted: "Print whether the write failed with a conflict, after a function has added context to the error.",
        naive: "The context is text only: the conflict is not recognised.",
        right: "The context wraps the error: the conflict is recognised.",
        object: "/configmaps/settings",
        moment: Moment::FirstUse,
    },
    Task {
        id: "back-off",
        title: "Retry with exponential backoff and jitter",
        wanted: "Set `data.colour` to blue while other writers are faster six times in a row.",
        naive: "Five attempts, without a pause or with the 10 ms of DefaultRetry, end before the other writers do: 409, and nothing is written.",
        right: "Growing pauses with jitter and a limit: the write succeeds.",
        object: "/configmaps/settings",
        moment: Moment::EachRead(CROWD),
    },
    Task {
        id: "rate-limiter",
        title: "Write at a limited rate",
        wanted: "Set `data.colour` to blue at a limited rate, two a second. Another writer sets `data.shade` twenty times a second.",
        naive: "The limiter waits before each request, so also between the read and the write: 409 each time.",
        right: "The limiter waits before the read only: the write follows at once, and is stored.",
        object: "/configmaps/settings",
        moment: Moment::Every(Duration::from_millis(50)),
    },
    Task {
        id: "circuit-breaker",
        title: "A circuit breaker in front of the API server",
        wanted: "Set `data.colour` of two ConfigMaps to blue. For the first, another writer is faster six times in a row; nobody else writes the second.",
        naive: "Conflicts count as failures: the breaker opens against a healthy server, and neither is written.",
        right: "Only faults count: both are written. Five answers of 503 in a row open the breaker.",
        object: "/configmaps/settings",
        moment: Moment::EachRead(CROWD),
    },
    Task {
        id: "one-write",
        title: "Write once in a reconcile, and only if something changes",
        wanted: "A controller keeps `data.colour` at its desired value.",
        naive: "Two updates that alternate trigger the controller again and again: an endless loop.",
        right: "The controller compares first: one write, and no further reconcile writes.",
        object: "/configmaps/settings",
        moment: Moment::Never,
    },
    Task {
        id: "exported-file",
        title: "Change an object with an exported YAML file",
        wanted: "Set `data.colour` to blue in YAML that was exported. Another writer sets `data.shade`.",
        naive: "The file contains the old resourceVersion: 409.",
        right: "A patch, or a file with only your own fields: both changes are kept.",
        object: "/configmaps/settings",
        moment: Moment::FirstUse,
    },
    Task {
        id: "requeue",
        title: "In a controller: return the conflict and requeue",
        wanted: "A controller reads from its cache and sets `data.colour` to blue. Another writer is faster once.",
        naive: "The controller drops the error: the object is not requeued, and nothing is written.",
        right: "The controller returns the conflict: the object is requeued, and the next reconcile writes from a fresh copy.",
        object: "/configmaps/settings",
        moment: Moment::FirstWrite,
    },
];

/// The task of this name.
pub fn task(id: &str) -> Option<&'static Task> {
    TASKS.iter().find(|task| task.id == id)
}

/// Makes what the programs of this task find.
///
/// # Errors
/// When the server refuses it.
#[expect(clippy::disallowed_methods, reason = "the setup is not a controller's write")]
pub async fn set_up(id: &str, client: &Client, namespace: &str) -> Result<()> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    if id == "field-manager" {
        for (manager, data) in [("mine", json!({"shade": "light"})), ("rival", json!({"colour": "green"}))] {
            let metadata = json!({"name": "settings"});
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
            maps.patch("settings", &PatchParams::apply(manager), &Patch::Apply(body)).await?;
        }
        return Ok(());
    }
    let settings = map("settings", &json!({"colour": "red", "shade": "light"}))?;
    maps.create(&PostParams::default(), &settings).await.context("cannot create settings")?;
    if matches!(id, "status" | "condition" | "replica-count") {
        let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]}});
        let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": pod});
        let web = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec}))?;
        let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
        deployments.create(&PostParams::default(), &web).await.context("cannot create web")?;
    }
    if id == "circuit-breaker" {
        let quiet = map("quiet", &json!({"colour": "red"}))?;
        maps.create(&PostParams::default(), &quiet).await.context("cannot create quiet")?;
    }
    if id == "watch" {
        for name in ["one", "two"] {
            maps.create(&PostParams::default(), &map(name, &json!({}))?).await?;
        }
    }
    Ok(())
}

fn map(name: &str, data: &Value) -> Result<ConfigMap> {
    Ok(serde_json::from_value(json!({"metadata": {"name": name}, "data": data}))?)
}

/// What the rival writes.
pub fn rival_write(id: &'static str, client: &Client, namespace: &str) -> RivalWrite {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    Arc::new(move |count| {
        let (maps, deployments) = (maps.clone(), deployments.clone());
        Box::pin(async move { write(id, count, &maps, &deployments).await })
    })
}

#[expect(clippy::disallowed_methods, reason = "the rival writes as it likes")]
async fn write(id: &str, count: usize, maps: &Api<ConfigMap>, deployments: &Api<Deployment>) -> Result<()> {
    let params = PatchParams::default();
    let merge = |patch: Value| Patch::Merge(patch);
    match id {
        "status" => {
            let patch = merge(json!({"metadata": {"annotations": {"rival": "was-here"}}}));
            deployments.patch("web", &params, &patch).await?;
        }
        "condition" => {
            let entry = json!({"type": "Other", "status": "True"});
            let body =
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "status": {"conditions": [entry]}});
            deployments.patch_status("web", &PatchParams::apply("rival"), &Patch::Apply(body)).await?;
        }
        "replica-count" => {
            deployments.patch("web", &params, &merge(json!({"spec": {"replicas": 10}}))).await?;
        }
        "finalizer" => {
            let patch = merge(json!({"metadata": {"finalizers": ["example.com/rival"]}}));
            maps.patch("settings", &params, &patch).await?;
        }
        "create-or-update" => {
            let fresh = map("fresh", &json!({"colour": "red", "shade": "dark"}))?;
            maps.create(&PostParams::default(), &fresh).await?;
        }
        "delete-this-one" => {
            maps.delete("settings", &DeleteParams::default()).await?;
            let successor = map("settings", &json!({"successor": "yes"}))?;
            maps.create(&PostParams::default(), &successor).await?;
        }
        "back-off" | "rate-limiter" | "circuit-breaker" => {
            maps.patch("settings", &params, &merge(json!({"data": {"shade": format!("{count}")}}))).await?;
        }
        _ => {
            maps.patch("settings", &params, &merge(json!({"data": {"shade": "dark"}}))).await?;
        }
    }
    Ok(())
}

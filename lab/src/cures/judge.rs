//! What must come of each program.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;

use super::Form;
use super::rival::{Moment, Traffic};
use super::task::{LOOP, task};

/// The text of a conflict, as every client prints it.
const MODIFIED: &str = "the object has been modified";
/// Time between two attempts of `rate-limiter`.
const PACE: Duration = Duration::from_millis(500);
/// Faults in a row that open the breaker of `circuit-breaker`.
const FAULTS: usize = 5;

/// How a program ended, and what is stored.
#[derive(Debug, Default)]
pub struct End {
    /// Whether it ended with success.
    pub is_success: bool,
    /// Its standard output.
    pub printed: String,
    /// Its standard error.
    pub error: String,
    /// The `ConfigMap` `settings`.
    pub settings: Option<ConfigMap>,
    /// The `ConfigMap` `fresh`.
    pub fresh: Option<ConfigMap>,
    /// The `ConfigMap` `quiet`.
    pub quiet: Option<ConfigMap>,
    /// The Deployment `web`.
    pub web: Option<Deployment>,
    /// What went through the proxy.
    pub traffic: Traffic,
}

impl End {
    fn data(&self, key: &str) -> Option<&str> {
        self.settings.as_ref()?.data.as_ref()?.get(key).map(String::as_str)
    }

    fn is_blue_and(&self, shade: &str) -> bool {
        (self.data("colour"), self.data("shade")) == (Some("blue"), Some(shade))
    }

    fn fresh(&self, key: &str) -> Option<&str> {
        self.fresh.as_ref()?.data.as_ref()?.get(key).map(String::as_str)
    }

    fn quiet(&self) -> Option<&str> {
        self.quiet.as_ref()?.data.as_ref()?.get("colour").map(String::as_str)
    }

    fn finalizers(&self) -> Vec<&str> {
        let held = self.settings.as_ref().and_then(|map| map.metadata.finalizers.as_ref());
        held.into_iter().flatten().map(String::as_str).collect()
    }

    fn conditions(&self) -> Vec<&str> {
        let status = self.web.as_ref().and_then(|web| web.status.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().map(|condition| condition.type_.as_str()).collect()
    }

    fn collisions(&self) -> Option<i32> {
        self.web.as_ref()?.status.as_ref()?.collision_count
    }

    fn is_marked(&self) -> bool {
        let annotations = self.web.as_ref().and_then(|web| web.metadata.annotations.as_ref());
        annotations.is_some_and(|all| all.contains_key("rival"))
    }

    fn replicas(&self) -> Option<i32> {
        self.web.as_ref()?.spec.as_ref()?.replicas
    }
}

/// Whether what the page says of this form came true.
///
/// # Errors
/// When it did not.
pub fn judge(id: &str, form: Form, end: &End) -> Result<()> {
    use Form::{Naive, Right};
    let failed_with = |text: &str| !end.is_success && end.error.contains(text);
    let names = end.printed.split_whitespace().count();
    let is_so = match (id, form) {
        ("change-a-field" | "exported-file" | "back-off", Naive) => {
            failed_with(MODIFIED) && end.data("colour") == Some("red") && end.data("shade") != Some("light")
        }
        ("change-a-field" | "write-only-your-field" | "exported-file", Right) => {
            end.is_success && end.is_blue_and("dark")
        }
        ("write-only-your-field", Naive) => end.is_success && end.is_blue_and("light"),
        ("status", Naive) => end.is_success && end.collisions().is_none(),
        ("status", Right) => end.is_success && end.collisions() == Some(1) && end.is_marked(),
        ("condition", Naive) => end.is_success && end.conditions() == ["Seen"],
        ("condition", Right) => {
            end.is_success && end.conditions().contains(&"Seen") && end.conditions().contains(&"Other")
        }
        ("field-manager", Naive) => {
            !end.is_success && end.traffic.conflicts >= 5 && end.error.to_lowercase().contains("conflict")
        }
        ("field-manager", Right) => {
            end.is_success && (end.data("colour"), end.data("shade")) == (Some("green"), Some("dark"))
        }
        ("replica-count", Naive) => end.is_success && end.replicas() == Some(5),
        ("replica-count", Right) => end.is_success && end.replicas() == Some(12),
        ("finalizer", Naive) => end.is_success && end.finalizers() == ["example.com/mine"],
        ("finalizer", Right) => {
            let held = end.finalizers();
            end.is_success && held.len() == 2 && held.contains(&"example.com/mine")
        }
        ("create-or-update", Naive) => !end.is_success && end.error.contains("already exists"),
        ("create-or-update", Right) => {
            end.is_success && (end.fresh("colour"), end.fresh("shade")) == (Some("blue"), Some("dark"))
        }
        ("delete-this-one", Naive) => end.settings.is_none(),
        ("delete-this-one", Right) => end.data("successor").is_some(),
        ("watch", Naive) => !end.is_success && names < 3,
        ("watch", Right) => end.is_success && names == 3,
        ("error-type", Naive) => {
            end.is_success && end.printed.trim() == "other" && end.traffic.conflicts == 1
        }
        ("error-type", Right) => end.is_success && end.printed.trim() == "conflict",
        ("back-off", Right) => end.is_success && end.data("colour") == Some("blue"),
        ("rate-limiter", Naive) => {
            failed_with(MODIFIED) && end.data("colour") == Some("red") && end.traffic.conflicts == 5
        }
        ("rate-limiter", Right) => {
            end.is_success && end.data("colour") == Some("blue") && end.traffic.is_paced(PACE)
        }
        ("circuit-breaker", Naive) => {
            let colours = (end.data("colour"), end.quiet());
            failed_with("circuit breaker is open") && colours == (Some("red"), Some("red"))
        }
        ("circuit-breaker", Right) => {
            let colours = (end.data("colour"), end.quiet());
            let has_opened = end.traffic.unavailable == FAULTS;
            end.is_success && colours == (Some("blue"), Some("blue")) && has_opened
        }
        ("one-write", Naive) => end.traffic.written > LOOP,
        ("one-write", Right) => end.traffic.written == 1 && end.data("colour") == Some("blue"),
        ("requeue", Naive) => end.data("colour") == Some("red") && end.traffic.conflicts > 0,
        ("requeue", Right) => end.is_blue_and("dark") && end.traffic.conflicts > 0,
        _ => false,
    };
    let needs_rival = task(id).is_some_and(|task| task.moment != Moment::Never);
    ensure!(
        !needs_rival || end.traffic.rivals > 0,
        "{id}: the rival never wrote, so this shows nothing: {end:?}"
    );
    ensure!(is_so, "{id}, {}: it is not as the page says: {end:#?}", form.name());
    Ok(())
}

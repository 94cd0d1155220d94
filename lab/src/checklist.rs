//! What the lab has to show: every pattern about write conflicts that tutorials teach, and every wrong or incomplete
//! claim in them; last, what this project's own subject adds.

/// The patterns to show: number and text.
pub const ROWS: &[(&str, &str)] = &[
    ("0a", "provoke a conflict and read the exact text of the 409"),
    ("0b", "carry the resourceVersion from a GET into a PUT"),
    ("0c", "a resourceVersion is the etcd mod_revision of the object's last write"),
    ("0d", "first cause: another writer changes the spec between read and write"),
    ("0e", "second cause: another controller writes the status or another field"),
    ("0f", "third cause: writing a resource that another controller owns"),
    ("0g", "way A: return the error and let the work queue try again"),
    ("0h", "way B: retry around GET, change and status update"),
    ("0i", "wrap the final error and still know that it was a conflict"),
    ("1a", "the smallest resource and a reconcile that does nothing"),
    ("1b", "one update in each reconcile: versions before and after, then quiet"),
    ("1c", "two updates that alternate in each reconcile: an endless loop"),
    ("1d", "the cache is behind the store: cached version < stored version at the PUT"),
    ("1e", "a retry around the update: the errors vanish, the loop stays"),
    ("1f", "an idempotent reconcile with few writes"),
    ("2a", "resourceVersion beside generation, for spec, status and metadata"),
    ("2b", "a node pool and the operator that makes its nodes"),
    ("2c", "a second operator that writes the same object"),
    ("2d", "one operator with several controllers, operators that touch each other's objects"),
    ("2e", "the timeline of two operators racing on one object"),
    ("2f", "the lazy way: return the error, repeat the whole reconcile, and count what that costs"),
    ("2g", "the pro way: retry with backoff and jitter, and count the requests"),
    ("2h", "branches for conflict, not found and everything else"),
    ("2i", "the knobs Steps, Duration, Factor and Jitter, varied"),
    ("2j", "when a retry is needed, and when it is not"),
    ("2k", "a local cluster with one command"),
    ("2l", "no endless reconcile loop"),
    ("3a", "naive: five attempts without a pause"),
    ("3b", "by hand: 100 ms · 2^n up to 10 s with 10 % jitter, ten attempts"),
    ("3c", "RetryOnConflict with DefaultRetry"),
    ("3d", "a custom backoff: 100 ms, factor 1.5, jitter 0.1, ten steps"),
    ("3e", "which errors to retry: NotFound, Invalid, Unauthorized, Forbidden, Conflict, transient"),
    ("3f", "a retry around the whole sync"),
    ("3g", "write only when something changes"),
    ("3h", "status through its subresource, with a retry"),
    ("3i", "a rate limiter of 10 a second, burst 20, in the loop"),
    ("3j", "a circuit breaker: closed, open, half-open"),
    ("3k", "metrics of retries"),
    ("3l", "attempts in the log"),
    (
        "3m",
        "mistakes: no backoff, retrying what cannot succeed, no limit, changing outside the loop, not checking the error's type",
    ),
    ("4a", "the lost update, 3→5 against 3→2, without versions and with them"),
    ("4b", "the resourceVersion printed before and after"),
    ("4c", "a hand-written retry loop"),
    ("4d", "the helper function that does the same"),
    ("4e", "server-side apply with a field manager and without force"),
    ("4f", "the status subresource with a retry"),
    ("4g", "a JSON Patch without a version, a merge patch with one"),
    ("4h", "a watch from a version, resumed after a break"),
    ("4i", "an empty resourceVersion"),
    ("4j", "a retry loop without a limit"),
    ("4k", "an ignored conflict is a silently lost change"),
    ("5a", "two controllers scale one MachineDeployment, with and without a rollout"),
];

/// Something that is often said, and how it is.
#[derive(Clone, Copy, Debug)]
pub struct CommonClaim {
    /// Its name in scenarios.
    pub id: &'static str,
    /// What is said.
    pub said: &'static str,
    /// How it is.
    pub fact: &'static str,
}

/// Every wrong claim, in the order of the texts that make it.
pub const CLAIMS: &[CommonClaim] = &[
    CommonClaim {
        id: "revision-per-item",
        said: "etcd counts revisions per item, and the resourceVersion maps to that count.",
        fact: "etcd counts the writes of the whole store, so gaps between an object's versions are normal. Since Kubernetes 1.35 clients may compare two versions of one resource to see which is newer; before, only whether they are equal.",
    },
    CommonClaim {
        id: "status-conflicts",
        said: "Most conflicts come from status writes, and the status subresource avoids them.",
        fact: "which writes conflict most depends on how often each client writes, and is not measured here. The subresource avoids no conflict: an object has one version, and after a write to either endpoint, a PUT to either is refused.",
    },
    CommonClaim {
        id: "retry-with-cached-get",
        said: "A retry around a Get and an Update solves it.",
        fact: "if Get reads from a cache, each attempt may read the same old copy and fail again.",
    },
    CommonClaim {
        id: "second-reconcile-by-cache",
        said: "The second reconcile happens because the cache still has the old version.",
        fact: "it happens because the controller's own write causes a watch event like any other.",
    },
    CommonClaim {
        id: "no-op-moves-version",
        said: "An update that changes nothing moves the resourceVersion.",
        fact: "if the bytes would not change, the server writes nothing, keeps the version and sends no event. An equal object is written only if managedFields changes, or if the server encodes it differently, for example after a change of the storage version.",
    },
    CommonClaim {
        id: "too-many-reconciles",
        said: "Too many reconciles amplify the lag of the cache, and so the updates conflict and the loop does not end.",
        fact: "half true: the conflicts do come from stale copies. But the loop continues even with a cache that is never stale, because the desired state alternates. A retry hides the conflicts and keeps the loop.",
    },
    CommonClaim {
        id: "lazy-is-wasteful",
        said: "Returning the error is lazy and wasteful, retrying is better.",
        fact: "a decision made from an old object must be made again. Retrying only the write stores a stale decision, which stays until something triggers the reconcile again. Returning the error took one more request here, and never stored a stale decision.",
    },
    CommonClaim {
        id: "default-retry-unlimited",
        said: "DefaultRetry starts at 10 ms, doubles up to 1,000 s and has no limit.",
        fact: "it makes five attempts, 10 ms apart, with 10 % jitter. The other numbers belong to the work queue's rate limiter.",
    },
    CommonClaim {
        id: "retry-handles-transient",
        said: "Other errors may be transient; the retry logic handles them.",
        fact: "RetryOnConflict retries only conflicts; any other error ends it at once.",
    },
    CommonClaim {
        id: "not-found-is-success",
        said: "When the object is not found, return no error.",
        fact: "that reports success for a write that never happened. Treat not found as a separate outcome.",
    },
    CommonClaim {
        id: "retry-is-exponential",
        said: "RetryOnConflict implements exponential backoff.",
        fact: "only if you pass it a backoff that grows. DefaultBackoff grows (10, 50, 250 ms). DefaultRetry, which most code uses, does not: it waits 10 ms each time.",
    },
    CommonClaim {
        id: "wrap-the-reconcile",
        said: "Wrap the whole reconcile in the retry.",
        fact: "that repeats side effects, a conflict on any object repeats everything, and nested retries multiply.",
    },
    CommonClaim {
        id: "breaker-on-every-error",
        said: "A circuit breaker opens on every error.",
        fact: "a conflict is the answer of a healthy server and must not open the circuit breaker. When it is half-open, one probe decides, not many.",
    },
    CommonClaim {
        id: "hand-rolled-loop",
        said: "A hand-written loop that sleeps after each failure is enough.",
        fact: "it also sleeps after the last failure, and does not stop sleeping when it is cancelled.",
    },
    CommonClaim {
        id: "both-intentions",
        said: "With optimistic concurrency both intentions are reflected.",
        fact: "one field cannot have two values, and with a retry that sets its value blindly the last write still wins.",
    },
    CommonClaim {
        id: "status-version",
        said: "The status has its own resourceVersion.",
        fact: "there is one version per object. Only generation and the RBAC rights differ between spec and status.",
    },
    CommonClaim {
        id: "empty-version-ignores",
        said: "An empty resourceVersion means: do not check.",
        fact: "true for many built-in kinds. A PUT of a custom resource is refused with 422, but its /scale accepts it without a check.",
    },
    CommonClaim {
        id: "apply-resolves",
        said: "Server-side apply resolves conflicts better, using the resourceVersion inside.",
        fact: "its conflicts are 409s too, but about field ownership. However often it is retried, the same apply is refused until the owner gives up the field or sets the same value. And applying a whole object takes ownership of fields that you did not mean to set.",
    },
    CommonClaim {
        id: "watch-misses-nothing",
        said: "A watch that is resumed from a version misses nothing.",
        fact: "only while the server still has that version. After that it sends an ERROR event, 410 Expired, whose object is a Status and not the watched type. To find out what was deleted meanwhile, list again.",
    },
    CommonClaim {
        id: "never-set-version",
        said: "Never set the resourceVersion by hand.",
        fact: "a merge patch with an optimistic lock does exactly that. The rule is: send the version that you read, never one that you made up.",
    },
    CommonClaim {
        id: "strategic-merge",
        said: "A strategic merge patch with a version does it.",
        fact: "not for custom resources: the server answers 415. Use a merge patch with the version.",
    },
    CommonClaim {
        id: "exhaustion-unchecked",
        said: "A loop with ten attempts cannot lose a conflict silently.",
        fact: "it can, if it leaves the loop after the tenth attempt and returns without an error.",
    },
    CommonClaim {
        id: "always-retry",
        said: "Always retry updates.",
        fact: "write your own fields by a patch or an apply; then no retry is needed.",
    },
    CommonClaim {
        id: "each-update-reconciles",
        said: "Each update triggers a reconcile.",
        fact: "each update is an event, but the work queue holds each object once: all updates during a reconcile cause one reconcile after it.",
    },
    CommonClaim {
        id: "conflicts-are-certain",
        said: "You will hit conflict errors.",
        fact: "here, a writer that sends only its own fields, and guards the one shared field with a test of its value, gets no conflict.",
    },
    CommonClaim {
        id: "no-spec-writes",
        said: "Controllers should not update the spec.",
        fact: "an autoscaler does, through /scale. Each field needs one owner, and a write must be guarded with the value that it was decided from.",
    },
    CommonClaim {
        id: "force-the-apply",
        said: "kubectl apply --force gets past the conflict.",
        fact: "it deletes the object and creates a new one from the file, with a new UID: the changes of other writers are lost.",
    },
    CommonClaim {
        id: "marked-machine-goes",
        said: "Mark a Machine with cluster.x-k8s.io/delete-machine and lower the MachineDeployment by one: that machine goes.",
        fact: "the annotation only decides within one MachineSet. During a rollout there are several, and the rollout decides which of them is scaled down (kubernetes/autoscaler#8494).",
    },
];

/// What a row is, by its number.
pub fn row(number: &str) -> Option<&'static str> {
    ROWS.iter().find(|(known, _)| *known == number).map(|(_, text)| *text)
}

/// A claim, by its name.
pub fn claim(id: &str) -> Option<&'static CommonClaim> {
    CLAIMS.iter().find(|claim| claim.id == id)
}

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
    ("1c", "two updates in each reconcile that alternate: a loop without end"),
    ("1d", "the cache is behind the store: cached version < stored version at the PUT"),
    ("1e", "a retry around the update: the errors vanish, the loop stays"),
    ("1f", "an idempotent reconcile with few writes"),
    ("2a", "resourceVersion beside generation, for spec, status and metadata"),
    ("2b", "a node pool and the operator that makes its nodes"),
    ("2c", "a second operator that writes the same object"),
    ("2d", "one operator with several controllers, operators that touch each other's objects"),
    ("2e", "the timeline of two operators racing on one object"),
    ("2f", "the lazy way: return the error, do all of the reconcile again, and count what that wastes"),
    ("2g", "the pro way: retry with backoff and jitter, and count"),
    ("2h", "branches for conflict, not found and everything else"),
    ("2i", "the knobs Steps, Duration, Factor and Jitter, varied"),
    ("2j", "when a retry is needed, and when it is not"),
    ("2k", "a local cluster with one command"),
    ("2l", "no endless reconcile"),
    ("3a", "naive: five attempts without a pause"),
    ("3b", "by hand: 100 ms · 2^n up to 10 s with 10 % jitter, ten attempts"),
    ("3c", "RetryOnConflict with DefaultRetry"),
    ("3d", "a backoff of one's own: 100 ms, factor 1.5, jitter 0.1, ten steps"),
    (
        "3e",
        "what each class of error deserves: NotFound, Invalid, Unauthorized, Forbidden, Conflict, transient",
    ),
    ("3f", "a retry around the whole sync"),
    ("3g", "write only when something changes"),
    ("3h", "status through its subresource, with a retry"),
    ("3i", "a rate limiter of 10 a second, burst 20, in the loop"),
    ("3j", "a circuit breaker: closed, open, half-open"),
    ("3k", "metrics of retries"),
    ("3l", "attempts in the log"),
    (
        "3m",
        "mistakes: no backoff, retrying what cannot succeed, no end, changing outside the loop, the error's type unread",
    ),
    ("4a", "the lost update, 3→5 against 3→2, without versions and with them"),
    ("4b", "the resourceVersion printed before and after"),
    ("4c", "a retry loop by hand"),
    ("4d", "the helper that does it"),
    ("4e", "server-side apply with a field manager and without force"),
    ("4f", "the status subresource with a retry"),
    ("4g", "a JSON Patch without a version, a merge patch with one"),
    ("4h", "a watch from a version, resumed after a break"),
    ("4i", "an empty resourceVersion"),
    ("4j", "a loop without a bound"),
    ("4k", "a conflict that is ignored is a change that is lost without a word"),
    ("5a", "two controllers size one MachineDeployment, in quiet times and while it rolls out"),
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
        fact: "the revision counts the writes of the whole store; gaps between an object's versions are normal. Since Kubernetes 1.35 two versions of one resource may be compared (which is the later one); before, only for equality.",
    },
    CommonClaim {
        id: "status-conflicts",
        said: "Most conflicts come from status writes, and the status subresource avoids them.",
        fact: "which writes conflict most depends on who writes how often, and is not measured here. The subresource avoids none: an object has one version, and a PUT to either endpoint is refused after a write to either.",
    },
    CommonClaim {
        id: "retry-with-cached-get",
        said: "A retry around a Get and an Update solves it.",
        fact: "where Get reads a cache, each attempt may read the same old copy again and fail again.",
    },
    CommonClaim {
        id: "second-reconcile-by-cache",
        said: "The second reconcile happens because the cache still has the old version.",
        fact: "it happens because one's own write is an event like any other.",
    },
    CommonClaim {
        id: "no-op-moves-version",
        said: "An update that changes nothing moves the resourceVersion.",
        fact: "where the server would store what it has stored already, nothing moves and no event is sent. An equal object is a write when managedFields changes, or when the server would encode it in another way, as after a change of the storage version.",
    },
    CommonClaim {
        id: "too-many-reconciles",
        said: "Too many reconciles amplify the lag of the cache, and so the updates conflict and the loop does not end.",
        fact: "half true: the conflicts do come from copies that are behind. But the loop goes on with a cache that is never behind, because the desired state alternates. A retry hides the conflicts and keeps the loop.",
    },
    CommonClaim {
        id: "lazy-is-wasteful",
        said: "Returning the error is lazy and wasteful, retrying is better.",
        fact: "a decision made from an old object must be made again: retrying its write alone stores a stale decision, which stands until something calls the reconcile again. Returning the error took one request more here, and never stored it.",
    },
    CommonClaim {
        id: "default-retry-unlimited",
        said: "DefaultRetry starts at 10 ms, doubles up to 1,000 s and has no limit.",
        fact: "it makes five attempts, 10 ms apart, with 10 % jitter. The other numbers are the work queue's limiter.",
    },
    CommonClaim {
        id: "retry-handles-transient",
        said: "Other errors may be transient; the retry logic handles them.",
        fact: "RetryOnConflict retries conflicts and nothing else; every other error ends it at once.",
    },
    CommonClaim {
        id: "not-found-is-success",
        said: "When the object is not found, return no error.",
        fact: "that reports a write which never happened; it is an outcome of its own.",
    },
    CommonClaim {
        id: "retry-is-exponential",
        said: "RetryOnConflict implements exponential backoff.",
        fact: "only if the backoff that it is given grows. DefaultBackoff does (10, 50, 250 ms); DefaultRetry, the usual one, does not: the same 10 ms each time.",
    },
    CommonClaim {
        id: "wrap-the-reconcile",
        said: "Wrap the whole reconcile in the retry.",
        fact: "side effects are repeated, a conflict on any object repeats all, and nested retries multiply.",
    },
    CommonClaim {
        id: "breaker-on-every-error",
        said: "A circuit breaker opens on every error.",
        fact: "a conflict is the answer of a healthy server and must not open it; one probe decides, not many.",
    },
    CommonClaim {
        id: "hand-rolled-loop",
        said: "A loop by hand that sleeps after each failure is enough.",
        fact: "it sleeps once more after the last one, and does not stop sleeping when it is told to end.",
    },
    CommonClaim {
        id: "both-intentions",
        said: "With optimistic concurrency both intentions are reflected.",
        fact: "two intentions for one field cannot both hold, and a retry that assigns blindly still lets the last one win.",
    },
    CommonClaim {
        id: "status-version",
        said: "The status has its own resourceVersion.",
        fact: "there is one version per object. What is apart is generation, and who may write.",
    },
    CommonClaim {
        id: "empty-version-ignores",
        said: "An empty resourceVersion means: do not check.",
        fact: "for many built-in kinds; a PUT of a custom resource is refused with 422, its /scale takes it as unconditional.",
    },
    CommonClaim {
        id: "apply-resolves",
        said: "Server-side apply resolves conflicts better, using the resourceVersion inside.",
        fact: "its conflicts are 409s too, but over ownership: the same apply is refused until the owner gives the field up or agrees, however often it is tried. And whole objects applied take fields one never meant.",
    },
    CommonClaim {
        id: "watch-misses-nothing",
        said: "A watch that is resumed from a version misses nothing.",
        fact: "only while the server still has that version. After that it sends an ERROR event, 410 Expired, whose object is a Status and not what is watched; and what was deleted meanwhile has to be found by listing again.",
    },
    CommonClaim {
        id: "never-set-version",
        said: "Never set the resourceVersion by hand.",
        fact: "a merge patch under an optimistic lock does exactly that. The rule is: echo what was read, never invent.",
    },
    CommonClaim {
        id: "strategic-merge",
        said: "A strategic merge patch with a version does it.",
        fact: "not for custom resources: they answer 415. A merge patch does.",
    },
    CommonClaim {
        id: "exhaustion-unchecked",
        said: "A loop with ten attempts cannot lose a conflict silently.",
        fact: "it can, when it falls out of the loop after the tenth and returns as if it had written.",
    },
    CommonClaim {
        id: "always-retry",
        said: "Always retry updates.",
        fact: "fields of one's own are written by a patch or an apply, and need no retry at all.",
    },
    CommonClaim {
        id: "each-update-reconciles",
        said: "Each update triggers a reconcile.",
        fact: "each is an event, and the queue has one place for an object: what comes during a reconcile is one reconcile after it.",
    },
    CommonClaim {
        id: "conflicts-are-certain",
        said: "You will hit conflict errors.",
        fact: "who sends only fields of its own, and guards the one that it shares by its value, met none here.",
    },
    CommonClaim {
        id: "no-spec-writes",
        said: "Controllers should not update the spec.",
        fact: "an autoscaler does, through /scale. What matters is that a field has one owner, and that the write says what it was decided from.",
    },
    CommonClaim {
        id: "force-the-apply",
        said: "kubectl apply --force gets past the conflict.",
        fact: "it deletes the object and creates another one from the file: the UID is new, and the changes of others are lost.",
    },
    CommonClaim {
        id: "marked-machine-goes",
        said: "Mark a Machine with cluster.x-k8s.io/delete-machine and lower the MachineDeployment by one: that machine goes.",
        fact: "the mark chooses within one MachineSet. While a new template is rolled out there are several, and the rollout chooses which of them shrinks (kubernetes/autoscaler#8494).",
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

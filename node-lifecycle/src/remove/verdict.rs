//! What a rule says of a node.

use k8s_openapi::jiff::Timestamp;

/// Why a node goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// Its machine is gone, or going, behind the operator's back.
    MachineLost,
    /// It did not become Ready in time.
    NeverReady,
    /// It has been unhealthy for too long, and its kubelet is silent.
    Unhealthy,
    /// It has been unhealthy for too long, and its kubelet answers.
    UnhealthyAnswering,
    /// It was made from another template, or is too old.
    OutOfDate,
    /// It is one too many.
    Excess,
}

/// The answer of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The node goes now.
    Go,
    /// It would go and stays for this reason, until this time where one is known.
    Wait(Hold, Option<Timestamp>),
    /// The rule is not about it.
    No,
}

/// Why a node stays that a rule would remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It has not been so for long enough.
    NotDue {
        /// Since when it has been.
        since: Timestamp,
        /// What it is, as the end of a sentence about it.
        why: String,
    },
    /// It has, and this keeps it.
    Held(String),
    /// It stays or goes on leaving for this reason, a sentence, which keeps no other node: where more is to be said, that is.
    Alone(String),
}

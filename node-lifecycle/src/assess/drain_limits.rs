//! How long the drains of a pool may take, and what happens then.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::NodePool;
use shared_crds::v1alpha1::{DrainSpec, DrainTimeoutAction, ProtectedNodes};

use crate::input::observed_time::due;

/// How long a drain may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DrainLimits {
    /// `spec.drain.timeoutSeconds`; `None` for no limit.
    pub timeout: Option<SignedDuration>,
    /// What happens then.
    pub on_timeout: DrainTimeoutAction,
    /// Whether pods that ask to be left alone are not evicted before that.
    pub holds_protected: bool,
    /// How long a node without pods waits for its volumes to be detached.
    pub detachment: SignedDuration,
}

impl Default for DrainLimits {
    /// Those of a drain whose pool is gone.
    fn default() -> Self {
        Self {
            timeout: None,
            on_timeout: DrainTimeoutAction::Force,
            holds_protected: false,
            detachment: seconds(DrainSpec::DEFAULT_VOLUME_DETACH_TIMEOUT_SECONDS),
        }
    }
}

impl DrainLimits {
    /// The limits that the pool's spec sets.
    pub(crate) fn of(pool: &NodePool) -> Self {
        let drain = pool.spec.drain.clone().unwrap_or_default();
        let is_deleted = pool.metadata.deletion_timestamp.is_some();
        // Giving back the nodes of a pool that is deleted is of no use: they wait for their budgets.
        let is_timed = !(is_deleted && drain.on_timeout == DrainTimeoutAction::GiveBack);
        let timeout = drain.timeout_seconds.filter(|timeout| is_timed && *timeout > 0);
        Self {
            timeout: timeout.map(seconds),
            on_timeout: drain.on_timeout,
            holds_protected: drain.protected_nodes == ProtectedNodes::Wait,
            detachment: drain
                .volume_detach_timeout_seconds
                .map_or(Self::default().detachment, |limit| seconds(limit.max(0))),
        }
    }

    /// For how long a node that was given back is not drained again: as long as its drain took. `None` where drains are
    /// not given back.
    pub(crate) fn rest(self) -> Option<SignedDuration> {
        self.timeout.filter(|_| self.on_timeout == DrainTimeoutAction::GiveBack)
    }

    /// Whether less than `rest` is left of a drain that `started` then and that this process has `observed` for so long.
    pub(crate) fn has_left_less(
        self,
        rest: SignedDuration,
        started: Timestamp,
        observed: SignedDuration,
        now: Timestamp,
    ) -> bool {
        self.timeout.is_some_and(|timeout| {
            let limit = timeout.checked_sub(rest).unwrap_or_default().max(SignedDuration::ZERO);
            due(started, limit, observed, now) <= now
        })
    }
}

fn seconds(seconds: i32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(seconds))
}

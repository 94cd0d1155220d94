//! What is remembered of a pool's requests and their failures.

use k8s_openapi::jiff::Timestamp;
use node_lifecycle::keys::PoolKey;
use node_lifecycle::supply::ProvisioningFailure;
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::ProvisioningStatus;

use super::Provisioner;

impl Provisioner {
    /// Drops everything about a pool that is gone, with its nodes.
    pub fn forget(&self, key: &PoolKey) {
        self.failures.forget(key);
        self.pauses.forget(key);
        self.ids.forget(key);
        self.unending.forget(key);
        self.foreign.forget(key);
        self.lists.forget(key);
        self.named.iter().for_each(|provider| provider.forget(key));
    }

    /// Records that a node was not made, or did not become Ready. No request is sent to the provider during the
    /// backoff.
    pub fn record_failure(
        &self,
        key: &PoolKey,
        generation: Option<i64>,
        reason: Reason,
        message: String,
        now: Timestamp,
    ) -> ProvisioningFailure {
        self.failures.record(key, generation, reason, message, now)
    }

    /// Records that the provider made a node. That says nothing about nodes that are made and never become Ready.
    pub fn node_created(&self, key: &PoolKey, now: Timestamp) {
        self.failures.node_created(key, now);
    }

    /// What the pool's status should remember about its providers.
    pub fn remembered(&self, key: &PoolKey) -> ProvisioningStatus {
        self.failures.remembered(key)
    }

    /// Records that the pool has every node it wants.
    pub fn pool_complete(&self, key: &PoolKey) {
        self.failures.pool_complete(key);
    }

    /// The current failure of the pool's requests; `None` without one.
    pub fn last_failure(&self, key: &PoolKey) -> Option<ProvisioningFailure> {
        self.failures.last(key)
    }

    /// Records that the machine of a slot did not come: the slot is passed over for a while.
    pub fn slot_failed(
        &self,
        key: &PoolKey,
        generation: Option<i64>,
        name: &str,
        reason: Reason,
        now: Timestamp,
    ) {
        self.failures.slots(key, |slots| slots.failed(name, generation, reason, now));
    }

    /// Records that machines of single slots were not made while the provider makes others.
    pub fn note_failure(
        &self,
        key: &PoolKey,
        generation: Option<i64>,
        reason: Reason,
        message: String,
        now: Timestamp,
    ) -> ProvisioningFailure {
        self.failures.note(key, generation, reason, message, now)
    }

    /// Records that a Node of another owner has the name of one of the pool's slots.
    pub fn slot_taken(&self, key: &PoolKey, name: &str) {
        self.failures.slot_taken(key, name);
    }
}

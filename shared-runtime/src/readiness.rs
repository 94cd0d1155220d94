//! The conditions for an operator to work, as named gates: `/readyz` lists the closed ones, and the controller loop
//! waits for them.
//!
//! A standby replica is ready. One that cannot read the lease is no standby, and one of its gates is closed. What works only in
//! part closes no gate; `/readyz` says it and stays 200.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// Every gate of a process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// `None` is open; `Some` is the reason why it is closed.
    gates: Mutex<BTreeMap<String, Option<String>>>,
    /// What works only in part, and why.
    degraded: Mutex<BTreeMap<String, String>>,
    closed: watch::Sender<Closed>,
}

/// How many gates are closed, and how often one was closed.
#[derive(Clone, Copy, Debug, Default)]
struct Closed {
    now: usize,
    times: u64,
}

/// One condition of readiness. It keeps its last state, also when dropped.
#[derive(Clone, Debug)]
pub struct Gate {
    readiness: Readiness,
    name: String,
}

impl Default for Readiness {
    fn default() -> Self {
        Self(Arc::new(Shared {
            gates: Mutex::default(),
            degraded: Mutex::default(),
            closed: watch::Sender::new(Closed::default()),
        }))
    }
}

impl Readiness {
    /// A new gate, closed, waiting for `reason`.
    pub fn gate(&self, name: impl Into<String>, reason: impl Into<String>) -> Gate {
        let gate = Gate { readiness: self.clone(), name: name.into() };
        gate.close(reason);
        gate
    }

    /// The closed gates with the reason of each; empty means ready.
    pub fn waiting_for(&self) -> Vec<(String, String)> {
        let gates = self.0.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.iter().filter_map(|(name, reason)| Some((name.clone(), reason.clone()?))).collect()
    }

    /// Says that `name` works only in part and why, or, with `None`, that it works.
    pub fn degrade(&self, name: impl Into<String>, reason: Option<String>) {
        let mut degraded = self.0.degraded.lock().unwrap_or_else(PoisonError::into_inner);
        match reason {
            Some(reason) => degraded.insert(name.into(), reason),
            None => degraded.remove(&name.into()),
        };
    }

    /// What works only in part, with the reason of each.
    pub fn degraded(&self) -> Vec<(String, String)> {
        let degraded = self.0.degraded.lock().unwrap_or_else(PoisonError::into_inner);
        degraded.iter().map(|(name, reason)| (name.clone(), reason.clone())).collect()
    }

    /// Returns as soon as every gate is open.
    pub async fn ready(&self) {
        let mut closed = self.0.closed.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = closed.wait_for(|closed| closed.now == 0).await;
    }

    /// Returns as soon as a gate is closed.
    pub async fn not_ready(&self) {
        let mut closed = self.0.closed.subscribe();
        let _ = closed.wait_for(|closed| closed.now > 0).await;
    }

    /// How often a gate was closed until now.
    pub(crate) fn closings(&self) -> u64 {
        self.0.closed.borrow().times
    }

    /// Returns when a gate was closed after [`Self::closings`] returned `closings`, even if it is open again.
    pub(crate) async fn closed_since(&self, closings: u64) {
        let mut closed = self.0.closed.subscribe();
        let _ = closed.wait_for(|closed| closed.times != closings).await;
    }

    fn set(&self, name: &str, reason: Option<String>) {
        let mut gates = self.0.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let closes = reason.is_some();
        let was_closed = gates.insert(name.to_owned(), reason).is_some_and(|before| before.is_some());
        let now = gates.values().flatten().count();
        self.0.closed.send_modify(|closed| {
            closed.now = now;
            closed.times += u64::from(closes && !was_closed);
        });
    }
}

impl Gate {
    /// Opens the gate: its condition holds.
    pub fn open(&self) {
        self.readiness.set(&self.name, None);
    }

    /// Closes the gate: its condition does not hold. `/readyz` shows `reason`.
    pub fn close(&self, reason: impl Into<String>) {
        self.readiness.set(&self.name, Some(reason.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_comes_when_the_last_gate_opens() {
        let readiness = Readiness::default();
        let a = readiness.gate("a", "waiting for a");
        let b = readiness.gate("b", "waiting for b");
        a.open();
        assert_eq!(readiness.waiting_for(), [("b".to_owned(), "waiting for b".to_owned())]);
        assert!(futures::poll!(std::pin::pin!(readiness.ready())).is_pending());
        b.open();
        readiness.ready().await;
        b.close("lost b");
        assert_eq!(readiness.waiting_for().len(), 1);
    }
}

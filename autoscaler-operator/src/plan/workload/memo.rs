//! What was read of pods in earlier passes. A pod that has not changed is the same object in the next pass, and is not
//! read again.
//!
//! Only saves time: results are the same with a [`Memo`] of earlier passes and with an empty one.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Pod;

use super::{reading::Reading, twins::Twins};
use crate::plan::pods;

/// The readings of the pods of the last pass.
#[derive(Debug, Default)]
pub struct Memo {
    /// By address; holding the pod keeps the address from being given to another.
    pods: HashMap<usize, Remembered>,
    /// Every reading once.
    readings: HashSet<Arc<Reading>>,
    /// Pods read in this pass, for others that look like them.
    twins: Twins,
    pass: u64,
}

#[derive(Debug)]
struct Remembered {
    /// Held, never read.
    _pod: Arc<Pod>,
    reading: Arc<Reading>,
    /// The last pass that asked for it.
    pass: u64,
}

impl Memo {
    /// What the pod says. Equal readings are one object.
    pub(super) fn reading(&mut self, pod: &Arc<Pod>) -> Arc<Reading> {
        let address = Arc::as_ptr(pod).addr();
        if let Some(remembered) = self.pods.get_mut(&address) {
            remembered.pass = self.pass;
            return Arc::clone(&remembered.reading);
        }
        let reading = if pods::is_daemon(pod) {
            // No two of them look alike, since each names its node; what is read of them does.
            self.only(Reading::of(pod))
        } else if let Some(reading) = self.twins.find(pod) {
            reading
        } else {
            let reading = self.only(Reading::of(pod));
            self.twins.remember(pod, &reading);
            reading
        };
        let remembered = Remembered { _pod: Arc::clone(pod), reading: Arc::clone(&reading), pass: self.pass };
        self.pods.insert(address, remembered);
        reading
    }

    fn only(&mut self, reading: Reading) -> Arc<Reading> {
        if let Some(known) = self.readings.get(&reading) {
            return Arc::clone(known);
        }
        let reading = Arc::new(reading);
        self.readings.insert(Arc::clone(&reading));
        reading
    }

    /// Forgets what this pass did not ask for.
    pub(super) fn end_pass(&mut self) {
        let pass = self.pass;
        self.twins = Twins::default();
        self.pods.retain(|_, remembered| remembered.pass == pass);
        self.readings.retain(|reading| Arc::strong_count(reading) > 1);
        self.pass += 1;
    }

    /// How many pods are remembered.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether no pod is remembered.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }
}

//! One queue per object: workers of one process that want to write the same object run one after another, so that for
//! the API server the process is a single contender. It knows nothing about other processes; conflicts with them
//! remain.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::{Cancelled, lock};

/// Fair mutual exclusion per key. Cheap to clone; clones share the queues.
///
/// A key uses memory only while a task holds it or waits for it. A task that locks a key it already holds waits for
/// itself forever.
pub struct KeyQueue<K> {
    lines: Arc<Lines<K>>,
}

/// The queues, by key.
type Lines<K> = Mutex<HashMap<K, Line>>;

/// One key's queue.
#[derive(Debug)]
struct Line {
    /// Fair: waiters get it in the order in which they arrived.
    mutex: Arc<tokio::sync::Mutex<()>>,
    /// Number of holders and waiters; the last one removes the entry.
    members: usize,
}

impl<K> Default for KeyQueue<K> {
    fn default() -> Self {
        Self { lines: Arc::default() }
    }
}

impl<K> Clone for KeyQueue<K> {
    fn clone(&self) -> Self {
        Self { lines: Arc::clone(&self.lines) }
    }
}

impl<K> fmt::Debug for KeyQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyQueue").field("keys", &self.len()).finish_non_exhaustive()
    }
}

impl<K> KeyQueue<K> {
    /// Number of keys that are held or waited for.
    pub fn len(&self) -> usize {
        lock(&self.lines).len()
    }

    /// Whether no key is held or waited for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Hash + Eq + Clone> KeyQueue<K> {
    /// A queue without any keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits until all earlier callers for `key` are done. The place in the queue is determined by the future's first
    /// poll; dropping the future gives it up.
    pub async fn lock(&self, key: K) -> KeyGuard<K> {
        let (mutex, place) = self.enter(key);
        KeyGuard { _guard: mutex.lock_owned().await, place }
    }

    /// Like [`Self::lock`], until `cancel` is cancelled.
    pub async fn take(&self, key: K, cancel: &CancellationToken) -> Result<KeyGuard<K>, Cancelled> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Cancelled),
            turn = self.lock(key) => Ok(turn),
        }
    }

    /// Number of tasks that hold `key` (at most one) or wait for it.
    pub fn members(&self, key: &K) -> usize {
        lock(&self.lines).get(key).map_or(0, |line| line.members)
    }

    fn enter(&self, key: K) -> (Arc<tokio::sync::Mutex<()>>, Place<K>) {
        let mut lines = lock(&self.lines);
        let line = lines.entry(key.clone()).or_insert_with(|| Line { mutex: Arc::default(), members: 0 });
        line.members += 1;
        (Arc::clone(&line.mutex), Place { lines: Arc::clone(&self.lines), key })
    }
}

/// The holder's turn for a key; it ends when this is dropped.
#[must_use = "the key is held only for as long as this lives"]
pub struct KeyGuard<K: Hash + Eq> {
    // Fields are dropped in order. The lock must go first: if the place were dropped first, the entry could be removed,
    // and a new caller would get a new lock while this one is still held.
    _guard: OwnedMutexGuard<()>,
    place: Place<K>,
}

impl<K: Hash + Eq> KeyGuard<K> {
    /// The key that is held.
    pub fn key(&self) -> &K {
        &self.place.key
    }
}

impl<K: Hash + Eq + fmt::Debug> fmt::Debug for KeyGuard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyGuard").field("key", self.key()).finish_non_exhaustive()
    }
}

/// Membership of a queue, waiting or holding.
struct Place<K: Hash + Eq> {
    lines: Arc<Lines<K>>,
    key: K,
}

impl<K: Hash + Eq> Drop for Place<K> {
    fn drop(&mut self) {
        let mut lines = lock(&self.lines);
        if let Some(line) = lines.get_mut(&self.key) {
            line.members = line.members.saturating_sub(1);
            if line.members == 0 {
                lines.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;

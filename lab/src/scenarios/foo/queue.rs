//! A controller's work queue: one slot for each object, in which the earliest time wins.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// The queued objects, each with the earliest time of its reconcile.
#[derive(Default)]
pub(super) struct Queue {
    slots: Mutex<HashMap<String, Instant>>,
    added: Notify,
}

impl Queue {
    /// Queues `name` for `at`, or keeps an earlier time.
    pub(super) fn add(&self, name: &str, at: Instant) {
        self.slots().entry(name.to_owned()).and_modify(|slot| *slot = at.min(*slot)).or_insert(at);
        self.added.notify_one();
    }

    /// Whether the queue is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.slots().is_empty()
    }

    /// Removes all entries.
    pub(super) fn clear(&self) {
        self.slots().clear();
    }

    /// The next object, once there is one and its time has come.
    pub(super) async fn next(&self) -> String {
        loop {
            let first = self.first();
            let due = async {
                match &first {
                    Some((_, at)) => tokio::time::sleep_until(*at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.added.notified() => continue,
            }
            if let Some((name, _)) = first
                && self.slots().remove(&name).is_some()
            {
                return name;
            }
        }
    }

    fn first(&self) -> Option<(String, Instant)> {
        let slots = self.slots();
        slots.iter().min_by_key(|(_, at)| **at).map(|(name, at)| (name.clone(), *at))
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_object_has_one_slot_and_its_earliest_time_wins() {
        let (queue, now) = (Queue::default(), Instant::now());
        queue.add("a", now + Duration::from_secs(10));
        queue.add("a", now + Duration::from_secs(2));
        queue.add("a", now + Duration::from_secs(5));
        assert_eq!(queue.next().await, "a");
        assert_eq!(now.elapsed(), Duration::from_secs(2));
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_makes_a_delayed_object_due() {
        let (queue, now) = (Queue::default(), Instant::now());
        queue.add("a", now + Duration::from_secs(10));
        let event = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            queue.add("a", Instant::now());
        };
        let (name, ()) = tokio::join!(queue.next(), event);
        assert_eq!((name.as_str(), now.elapsed()), ("a", Duration::from_secs(1)));
    }
}

//! A controller's work queue: one slot for each object, in which the earliest time wins.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// Which objects are to be looked at, and from when on.
#[derive(Default)]
pub(super) struct Queue {
    slots: Mutex<HashMap<String, Instant>>,
    added: Notify,
}

impl Queue {
    /// `name` is to be looked at from `at` on, or earlier if it was to be already.
    pub(super) fn add(&self, name: &str, at: Instant) {
        self.slots().entry(name.to_owned()).and_modify(|slot| *slot = at.min(*slot)).or_insert(at);
        self.added.notify_one();
    }

    /// Whether nothing is to be done, neither now nor later.
    pub(super) fn is_empty(&self) -> bool {
        self.slots().is_empty()
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.slots().clear();
    }

    /// The next object, as soon as there is one and its time has come.
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
    async fn an_event_brings_forward_what_waits() {
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

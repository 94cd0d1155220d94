//! Up to which point in time every cache of this process has caught up.
//!
//! A watch cache shows the past, and a standby's may be arbitrarily old: its watch can be half open for as long as the
//! connection's failure goes undetected. So a process that has just become the leader tells every cache to catch up,
//! and decides nothing before each has confirmed that it contains everything written before that request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use tokio::sync::watch;

/// Every cache of a process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Caches(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The number of requests to catch up.
    asked: u64,
    /// The request that was made when this process became the leader; 0 before.
    led: u64,
    caches: Vec<Asked>,
}

#[derive(Debug)]
struct Asked {
    question: watch::Sender<u64>,
    answer: watch::Receiver<u64>,
}

/// A cache's handle: the number of the last request, and of the last that was answered.
#[derive(Debug)]
pub(crate) struct Questions {
    pub(super) asked: watch::Receiver<u64>,
    pub(super) answered: watch::Sender<u64>,
}

impl Questions {
    /// The open request, if any.
    pub(super) fn open(&mut self) -> Option<u64> {
        let asked = *self.asked.borrow_and_update();
        (asked > *self.answered.borrow()).then_some(asked)
    }

    #[cfg(test)]
    pub(crate) fn answer_all(&mut self) {
        if let Some(question) = self.open() {
            self.answer(question);
        }
    }

    /// Confirms that the cache contains everything that had been written when this request was made.
    pub(super) fn answer(&self, question: u64) {
        self.answered.send_replace(question);
    }
}

impl Caches {
    /// A cache's handle, for tests of the requesting side.
    #[cfg(test)]
    pub(crate) fn questions(&self) -> Questions {
        self.register()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a new cache. Requests from before it existed apply to it as well.
    pub(super) fn register(&self) -> Questions {
        let mut state = self.state();
        let (question, asked) = watch::channel(state.asked);
        let (answered, answer) = watch::channel(0);
        state.caches.push(Asked { question, answer });
        Questions { asked, answered }
    }

    /// Records that this process is the leader from now on. Only the first call makes a request: a cache that is
    /// created after it lists the state of that time, and has thereby answered.
    pub(crate) fn led(&self) {
        let mut state = self.state();
        if state.led == 0 {
            state.led = state.ask();
        }
    }

    /// Returns when every cache contains everything that had been written when this process became the leader.
    pub(crate) async fn caught_up_since_led(&self) {
        self.led();
        let led = self.state().led;
        self.answered(led).await;
    }

    /// Returns when every cache contains everything that had been written when this was called.
    pub async fn catch_up(&self) {
        let question = self.state().ask();
        self.answered(question).await;
    }

    async fn answered(&self, question: u64) {
        let answers: Vec<_> = self.state().caches.iter().map(|cache| cache.answer.clone()).collect();
        join_all(answers.into_iter().map(|mut answer| async move {
            if answer.wait_for(|answered| *answered >= question).await.is_err() {
                // The cache no longer exists; its contents will not change.
                std::future::pending::<()>().await;
            }
        }))
        .await;
    }
}

impl State {
    fn ask(&mut self) -> u64 {
        self.asked += 1;
        for cache in &self.caches {
            cache.question.send_replace(self.asked);
        }
        self.asked
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, poll};

    use super::*;

    #[tokio::test]
    async fn one_that_asks_waits_for_every_cache_and_for_an_answer_to_this_question() {
        let caches = Caches::default();
        let (mut a, mut b) = (caches.register(), caches.register());
        let mut caught_up = std::pin::pin!(caches.catch_up());
        assert!(poll!(&mut caught_up).is_pending());
        a.answer_all();
        assert!(a.open().is_none());
        assert!(poll!(&mut caught_up).is_pending());
        b.answer_all();
        assert!(poll!(&mut caught_up).is_ready());
        assert!(poll!(std::pin::pin!(caches.catch_up())).is_pending(), "an old answer does not do");
    }

    #[tokio::test]
    async fn a_cache_that_is_made_while_this_process_leads_is_asked_by_that() {
        let caches = Caches::default();
        caches.led();
        caches.led();
        let mut made = caches.register();
        assert_eq!(made.open(), Some(1));
        made.answer(1);
        caches.caught_up_since_led().now_or_never().unwrap();
    }

    #[tokio::test]
    async fn a_cache_that_has_ended_never_catches_up() {
        let caches = Caches::default();
        drop(caches.register());
        assert!(poll!(std::pin::pin!(caches.catch_up())).is_pending());
    }
}

//! Which moment every cache of this process has caught up with.
//!
//! A cache that a watch feeds shows the past, and a standby's may show any past: its watch can be half open for as long as
//! nobody notices. So whoever has just come to lead asks every cache to catch up, and decides nothing before each has
//! shown that it holds all that had been written when it was asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use tokio::sync::watch;

/// Every cache of a process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Caches(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// How often the caches were asked.
    asked: u64,
    /// The question that was asked when this process came to lead; 0 before.
    led: u64,
    caches: Vec<Asked>,
}

#[derive(Debug)]
struct Asked {
    question: watch::Sender<u64>,
    answer: watch::Receiver<u64>,
}

/// A cache's side: the number of the last question, and of the last that was answered.
#[derive(Debug)]
pub(crate) struct Questions {
    pub(super) asked: watch::Receiver<u64>,
    pub(super) answered: watch::Sender<u64>,
}

impl Questions {
    /// The question that is open, if any.
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

    /// The cache holds everything that had been written when this question was asked.
    pub(super) fn answer(&self, question: u64) {
        self.answered.send_replace(question);
    }
}

impl Caches {
    /// The side of a cache, for tests of who asks.
    #[cfg(test)]
    pub(crate) fn questions(&self) -> Questions {
        self.register()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new cache. What was asked before it existed is asked of it as well.
    pub(super) fn register(&self) -> Questions {
        let mut state = self.state();
        let (question, asked) = watch::channel(state.asked);
        let (answered, answer) = watch::channel(0);
        state.caches.push(Asked { question, answer });
        Questions { asked, answered }
    }

    /// This process leads from now on. Only the first call asks: a cache that is made after it lists what is there then, and
    /// has answered with that.
    pub(crate) fn led(&self) {
        let mut state = self.state();
        if state.led == 0 {
            state.led = state.ask();
        }
    }

    /// Comes back when every cache holds all that had been written when this process came to lead.
    pub(crate) async fn caught_up_since_led(&self) {
        self.led();
        let led = self.state().led;
        self.answered(led).await;
    }

    /// Comes back when every cache holds all that had been written when this was called.
    pub async fn catch_up(&self) {
        let question = self.state().ask();
        self.answered(question).await;
    }

    async fn answered(&self, question: u64) {
        let answers: Vec<_> = self.state().caches.iter().map(|cache| cache.answer.clone()).collect();
        join_all(answers.into_iter().map(|mut answer| async move {
            if answer.wait_for(|answered| *answered >= question).await.is_err() {
                // The cache is no more; what it held is as old as it was.
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
    async fn whoever_asks_waits_for_every_cache_and_for_an_answer_to_this_question() {
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

//! When an operator may make decisions: the only rule that connects its knowledge to its actions.

use futures::{Stream, stream};

use crate::fence::Fence;
use crate::readiness::Readiness;
use crate::watch::Caches;

/// Whether decisions may be made from the caches, now and whenever that changes.
///
/// They may while this replica is the leader, everything is ready, and every cache contains all writes from before this
/// replica became the leader. If a cache has lost its connection since, every cache first has to catch up with all
/// writes until then.
pub(crate) fn may_decide(
    readiness: Readiness,
    fence: Fence,
    caches: Caches,
) -> impl Stream<Item = bool> + Send + 'static {
    let opening = Opening { readiness, fence, caches, since_led: true, closings: 0 };
    stream::unfold((opening, false), |(mut opening, is_open)| async move {
        if is_open {
            opening.readiness.closed_since(opening.closings).await;
        } else {
            opening.comes().await;
        }
        Some((!is_open, (opening, !is_open)))
    })
}

struct Opening {
    readiness: Readiness,
    fence: Fence,
    caches: Caches,
    /// No cache has lost its connection since this replica became the leader.
    since_led: bool,
    /// The gates' closing count when the caches began to catch up. A gate that has closed and opened again since,
    /// between two checks, has missed something.
    closings: u64,
}

impl Opening {
    async fn comes(&mut self) {
        self.fence.leading().await;
        self.caches.led();
        loop {
            self.readiness.ready().await;
            self.closings = self.readiness.closings();
            let first = std::mem::take(&mut self.since_led);
            let caught_up = async {
                if first {
                    self.caches.caught_up_since_led().await;
                } else {
                    self.caches.catch_up().await;
                }
            };
            tokio::select! {
                () = caught_up => return,
                () = self.readiness.closed_since(self.closings) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use futures::{StreamExt as _, poll};
    use jiff::Timestamp;

    use super::*;
    use crate::clock::Clock;

    #[tokio::test]
    async fn a_standby_that_comes_to_lead_decides_when_its_caches_have_caught_up_and_again_after_a_loss() {
        let (clock, _) = Clock::fake(Timestamp::UNIX_EPOCH);
        let (readiness, fence, caches) = (Readiness::default(), Fence::standby(clock), Caches::default());
        let gate = readiness.gate("cache", "not listed yet");
        let mut cache = caches.questions();
        let mut decides = pin!(may_decide(readiness, fence.clone(), caches));
        gate.open();
        assert!(poll!(decides.next()).is_pending(), "a standby");
        fence.lead_for(Duration::from_secs(15));
        assert!(poll!(decides.next()).is_pending(), "what it holds may be of any time");
        cache.answer_all();
        assert_eq!(decides.next().await, Some(true));

        gate.close("nothing was heard");
        gate.open();
        assert_eq!(decides.next().await, Some(false), "it was closed, if only for a moment");
        assert!(poll!(decides.next()).is_pending(), "what was missed has not come yet");
        gate.close("again");
        gate.open();
        assert!(poll!(decides.next()).is_pending());
        cache.answer_all();
        assert_eq!(decides.next().await, Some(true));
    }
}

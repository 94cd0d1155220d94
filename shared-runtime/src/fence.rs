//! The token that every write requires: may this process write *now*?
//!
//! A fence does not make writes safe by itself: a request that was sent in time can be carried out late. Resource
//! versions and `test` operations protect against that. The fence keeps a process that has lost its connection from
//! *starting* writes that the next leader would have to undo.

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// This process may not write now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fenced {
    /// Another replica is the leader, or there is none yet.
    #[error("this replica does not lead")]
    Standby,
    /// This replica was the leader and could not renew its lease in time.
    #[error("this replica no longer leads")]
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is no leader election; every write is allowed.
    Always,
    Standby,
    /// Writes may start before `renew_by`; none may be waited for after `expires`, when another replica may take over.
    /// In the time of [`Clock::boottime`]: a machine that is suspended wakes with the timers it had, and the elector's
    /// does not fire at once.
    Leading {
        renew_by: Duration,
        expires: Duration,
    },
    Lost,
}

/// Whether this process is the leader. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fence {
    clock: Clock,
    state: watch::Sender<State>,
    lost: CancellationToken,
    tried: CancellationToken,
}

impl Fence {
    /// A fence that is always open: for a process without leader election.
    pub fn unguarded(clock: Clock) -> Self {
        Self::new(clock, State::Always)
    }

    /// A fence that is closed until the elector has acquired the lease.
    pub fn standby(clock: Clock) -> Self {
        Self::new(clock, State::Standby)
    }

    fn new(clock: Clock, state: State) -> Self {
        let (lost, tried) = (CancellationToken::new(), CancellationToken::new());
        if state == State::Always {
            tried.cancel();
        }
        Self { clock, state: watch::Sender::new(state), lost, tried }
    }

    /// How long a write that starts now may take, retries included; `None` means no limit.
    pub fn pass(&self) -> Result<Option<Duration>, Fenced> {
        let now = self.clock.boottime();
        match *self.state.borrow() {
            State::Always => Ok(None),
            State::Standby => Err(Fenced::Standby),
            State::Leading { renew_by, expires } if now < renew_by => Ok(Some(expires.saturating_sub(now))),
            State::Leading { .. } | State::Lost => Err(Fenced::Lost),
        }
    }

    /// Returns as soon as this process is the leader.
    pub async fn leading(&self) {
        let mut state = self.state.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = state.wait_for(|state| matches!(state, State::Always | State::Leading { .. })).await;
    }

    /// Whether this process is the leader, or was.
    pub fn has_led(&self) -> bool {
        *self.state.borrow() != State::Standby
    }

    /// Cancelled when this process has tried to acquire the lease once, whatever the result.
    pub fn tried(&self) -> &CancellationToken {
        &self.tried
    }

    /// Cancelled when this process was the leader and is not any more.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    #[cfg(test)]
    pub(crate) fn lead_for(&self, time: Duration) {
        self.renewed(self.clock.monotonic() + time, self.clock.monotonic() + time);
    }

    /// Opens the fence: the lease was renewed.
    pub(crate) fn renewed(&self, renew_by: Duration, expires: Duration) {
        self.state.send_replace(State::Leading { renew_by, expires });
        self.tried.cancel();
    }

    /// Records that the lease is held by another replica, or cannot be acquired.
    pub(super) fn stands_by(&self) {
        self.tried.cancel();
    }

    /// Closes the fence, for as long as this process runs: the lease was not renewed in time, or was released. What is under way is
    /// given up.
    pub fn close(&self) {
        self.state.send_replace(State::Lost);
        self.lost.cancel();
        self.tried.cancel();
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_fence_closes_by_itself_when_the_lease_is_not_renewed() {
        let (clock, fake) = Clock::fake(Timestamp::UNIX_EPOCH);
        let fence = Fence::standby(clock);
        assert_eq!(fence.pass(), Err(Fenced::Standby));
        fence.renewed(SECOND * 10, SECOND * 15);
        assert_eq!(fence.pass(), Ok(Some(SECOND * 15)));
        fake.advance(SECOND * 9);
        assert_eq!(fence.pass(), Ok(Some(SECOND * 6)));
        fake.advance(SECOND);
        assert_eq!(fence.pass(), Err(Fenced::Lost));
    }

    #[test]
    fn a_machine_that_was_suspended_for_longer_than_the_lease_wakes_with_a_closed_fence() {
        let (clock, fake) = Clock::fake(Timestamp::UNIX_EPOCH);
        let fence = Fence::standby(clock);
        fence.renewed(SECOND * 10, SECOND * 15);
        fake.advance(SECOND);
        // Another replica is the leader by the time it wakes, and no timer of this process has fired yet.
        fake.suspend(SECOND * 3600);
        assert_eq!(fence.pass(), Err(Fenced::Lost));
        // A short suspension within the lease counts, too.
        fence.renewed(SECOND * 3611, SECOND * 3616);
        fake.suspend(SECOND * 4);
        assert_eq!(fence.pass(), Ok(Some(SECOND * 11)));
    }

    #[test]
    fn one_that_waits_for_the_first_try_is_told_of_every_end_that_it_can_have() {
        let told_when = |end: fn(&Fence)| {
            let fence = Fence::standby(Clock::fake(Timestamp::UNIX_EPOCH).0);
            assert!(!fence.tried().is_cancelled());
            end(&fence);
            fence.tried().is_cancelled()
        };
        assert!(told_when(|fence| fence.renewed(SECOND, SECOND)), "it leads");
        assert!(told_when(Fence::stands_by), "another one does");
        assert!(told_when(Fence::close), "the elector ended before it could try, by a panic for instance");
    }

    #[tokio::test]
    async fn leading_comes_with_the_first_renewal_and_lost_with_the_close() {
        let (clock, _) = Clock::fake(Timestamp::UNIX_EPOCH);
        let fence = Fence::standby(clock);
        assert!(futures::poll!(std::pin::pin!(fence.leading())).is_pending());
        fence.renewed(SECOND, SECOND);
        fence.leading().await;
        assert!(!fence.lost().is_cancelled());
        fence.close();
        assert!(fence.lost().is_cancelled());
        assert_eq!(fence.pass(), Err(Fenced::Lost));
    }
}

//! What the work waits for of leader election: before it begins, and after it has ended.

use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::cli::CommonArgs;
use crate::clock::Clock;
use crate::fence::Fence;
use crate::leader::Ended;
use crate::reflect::Caches;

/// How long publishing the last events may take at the end.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// What lets this replica write: the lease, where there is an election.
pub(super) fn fence(args: &CommonArgs, clock: &Clock) -> Fence {
    if args.leader.leader_elect { Fence::standby(clock.clone()) } else { Fence::unguarded(clock.clone()) }
}

/// The caches of the work, once the lease was tried for or the process is to end. Caches that are listed after the lease
/// was acquired need not catch up with earlier writes.
pub(super) async fn caches_after_the_first_try(fence: &Fence, signalled: &CancellationToken) -> Caches {
    let caches = Caches::default();
    tokio::select! {
        () = signalled.cancelled() => {}
        () = fence.tried().cancelled() => {}
    }
    if fence.has_led() {
        caches.led();
    }
    caches
}

/// Waits for the end of the election, which is told to end, and for the last events; and returns how the election ended.
pub(super) async fn stopped(
    election: Option<JoinHandle<Ended>>,
    publisher: JoinHandle<()>,
) -> Result<Ended, JoinError> {
    let lease = match election {
        Some(election) => election.await,
        None => Ok(Ended::Released),
    };
    if tokio::time::timeout(LAST_EVENTS, publisher).await.is_err() {
        warn!("the last events were not published in time");
    }
    lease
}

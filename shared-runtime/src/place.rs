//! Places in the loop: as many reconciles run at the same time as there are places, and one that waits for something slow
//! lends its place to another meanwhile.
//!
//! The bound is there for the API server and for this process, and a reconcile that only waits burdens neither. If it kept its
//! place, a few objects whose provider hangs would hold all others. The alternatives were worse: an unlimited loop makes a
//! restart with many objects a burst of requests, and calls in the background would be answered with lists from before the
//! caller's own writes. Here each reconcile is one sequence still: what it reads comes after what it wrote.
//!
//! A reconcile that comes back takes a place again before anything else is done, and waits for it in turn.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

tokio::task_local! {
    static PLACE: Arc<Place>;
}

/// The place of one reconcile.
struct Place {
    places: Arc<Semaphore>,
    state: Mutex<State>,
}

struct State {
    permit: Option<OwnedSemaphorePermit>,
    /// Calls of the reconcile that take long. It has no place while there are any, also if another one has returned.
    away: usize,
}

impl Place {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that panics runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `run` with the place `permit` of `places`.
pub(crate) fn holding<F: Future>(
    places: Arc<Semaphore>,
    permit: OwnedSemaphorePermit,
    run: F,
) -> impl Future<Output = F::Output> {
    let state = Mutex::new(State { permit: Some(permit), away: 0 });
    PLACE.scope(Arc::new(Place { places, state }), run)
}

/// The result of `call`. If it takes longer than `patience`, the reconcile that waits for it gives up its place in the loop
/// until it is there. Outside a reconcile there is no place, and it is only waited for.
pub async fn lent<F: Future>(patience: Duration, call: F) -> F::Output {
    let mut call = pin!(call);
    if let Ok(answer) = tokio::time::timeout(patience, &mut call).await {
        return answer;
    }
    let Ok(place) = PLACE.try_with(Arc::clone) else {
        return call.await;
    };
    let away = Away::leave(place);
    let answer = call.await;
    away.come_back().await;
    answer
}

/// One call that takes long. Dropped with its call when that is given up.
struct Away {
    place: Arc<Place>,
}

impl Away {
    fn leave(place: Arc<Place>) -> Self {
        let mut state = place.state();
        state.away += 1;
        state.permit = None;
        drop(state);
        Self { place }
    }

    async fn come_back(self) {
        let place = Arc::clone(&self.place);
        drop(self);
        if place.state().away > 0 {
            return;
        }
        // Never closed.
        let Ok(permit) = Arc::clone(&place.places).acquire_owned().await else { return };
        let mut state = place.state();
        if state.away == 0 {
            state.permit = Some(permit);
        }
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        let mut state = self.place.state();
        state.away = state.away.saturating_sub(1);
    }
}

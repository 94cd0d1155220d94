//! The chart with its images: real Pods on real kubelets. On a kind cluster that is made for it, which needs Linux and root, or on the
//! cluster that `cargo e2e --kubeconfig` names. Where there is neither, each test says why it did not run.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

mod available;
mod installed;
mod made;
mod place;
mod pulled;
mod quickstart;
mod real_node;
mod release;
mod upgraded;

use place::Place;
use testbed::cluster::Cluster;
use testbed::kind::{Kind, unavailable};
use testbed::waiting::{does_not_run, for_others};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// Set where these tests must not be skipped, as in CI.
const REQUIRED: &str = "TANDEM_REQUIRE_KIND";

/// The cluster, for one test at a time: each installs the chart.
struct Turn {
    place: &'static Place,
    cluster: Cluster,
    _alone: MutexGuard<'static, ()>,
}

impl Turn {
    /// The kind cluster, for tests that need more than a cluster; `None` on one of the user's, which is said.
    fn kind(&self) -> Option<&Kind> {
        let kind = self.place.kind();
        if kind.is_none() {
            skip("it needs the cluster of `cargo e2e --kind --own-engine`");
        }
        kind
    }
}

/// Says why a test does not run; panics where it must.
fn skip(why: &str) {
    assert!(std::env::var_os(REQUIRED).is_none(), "{REQUIRED} is set, and this test would not run: {why}");
    does_not_run(why);
}

/// The cluster, with the images of both operators; `None` where there can be none, which is said.
async fn begin() -> Option<Turn> {
    static PLACE: OnceCell<Place> = OnceCell::const_new();
    static ALONE: Mutex<()> = Mutex::const_new(());
    if place::of_the_user().is_none()
        && let Some(why) = unavailable()
    {
        skip(why);
        return None;
    }
    let alone = for_others(ALONE.lock()).await;
    let place = PLACE.get_or_try_init(Place::find).await.unwrap();
    let cluster = place.cluster().await.unwrap();
    release::clean(&cluster).await;
    Some(Turn { place, cluster, _alone: alone })
}

//! The chart on a real kind cluster: real images, real Pods on real kubelets. Linux and root only; elsewhere each test says why
//! it did not run.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

mod installed;

use std::path::Path;

use anyhow::{Context as _, Result};
use e2e::cluster::Cluster;
use e2e::control_plane::go::inform;
use e2e::control_plane::toolbox::target_directory;
use e2e::kind::{Kind, unavailable};
use e2e::operators::cargo;
use images::WrittenImage;
use images::programs::{Profile, build};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// Set where these tests must not be skipped, as in CI.
const REQUIRED: &str = "TANDEM_REQUIRE_KIND";

/// What the tests of this program share.
struct Shared {
    kind: Kind,
    images: Vec<WrittenImage>,
}

/// The cluster, for one test at a time: each installs the chart.
struct Turn {
    shared: &'static Shared,
    cluster: Cluster,
    _alone: MutexGuard<'static, ()>,
}

/// The cluster with the images of both operators loaded; `None` where there can be none, which is said.
async fn begin() -> Option<Turn> {
    static SHARED: OnceCell<Shared> = OnceCell::const_new();
    static ALONE: Mutex<()> = Mutex::const_new(());
    if let Some(why) = unavailable() {
        assert!(
            std::env::var_os(REQUIRED).is_none(),
            "{REQUIRED} is set, and there is no kind cluster: {why}"
        );
        inform(&format!("NOT RUN: a test on a kind cluster: {why}"));
        return None;
    }
    let alone = e2e::waiting::for_others(ALONE.lock()).await;
    let shared = SHARED.get_or_try_init(start).await.unwrap();
    Some(Turn { shared, cluster: shared.kind.cluster().await.unwrap(), _alone: alone })
}

async fn start() -> Result<Shared> {
    let images = tokio::task::spawn_blocking(|| {
        inform("building the operators' images");
        let target = target_directory();
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace")?;
        build(cargo(), workspace, &target, Profile::Dev, &target.join("images"))
    });
    let images = images.await??;
    let kind = Kind::start().await?;
    for image in &images {
        kind.load(&image.archive).await?;
    }
    kind.play_kubelets().await?;
    Ok(Shared { kind, images })
}

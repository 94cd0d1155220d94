//! Builds what `cargo suites` needs besides the test programs: the control plane, the providers' own programs, and images.

use images::before;
use images::programs::{Build, build};
use toolbox::messages::inform;
use toolbox::tools::{Tool, Toolbox};
use toolbox::workspace;

/// The control plane and the providers' own programs. With a cluster or binaries of the user's, a test builds what it needs
/// besides those.
pub(crate) async fn run() -> anyhow::Result<()> {
    Toolbox::from_environment().find(&Tool::ORDINARY).await?;
    testbed::prometheus_operator::definitions().await?;
    testbed::karpenter::binary().await?;
    testbed::cluster_api::build().await?;
    if let Some(why) = testbed::real_nodes::unavailable() {
        inform(&format!("no test with real nodes or on a kind cluster will run: {why}"));
    } else {
        testbed::real_nodes::build().await?;
        testbed::kind::build().await?;
        images().await?;
    }
    Ok(())
}

/// The operators' images, which the tests on a kind cluster load, and those of the commit before, from which one upgrades: here, so that no test waits for a compiler.
async fn images() -> anyhow::Result<()> {
    inform("building the operators' images");
    let (root, target) = (workspace::root(), workspace::target_directory());
    let build = move || {
        build(Build::for_tests(workspace::cargo(), &root, &target))?;
        inform("building the operators of the commit before");
        before::build(workspace::cargo(), &root, &target)
    };
    tokio::task::spawn_blocking(build).await??;
    Ok(())
}

//! The operator is killed after every write of its work on the machines of a `MachineDeployment`, its marks on Machines and its
//! writes of their number among them, and the work ends as if it had not been. `cargo xtask crashes --provider clusterApi` does so with a
//! scale-up, a drain and a repair, too; no rollout, which is Cluster API's work.

use testbed::crashes::{NodeMaker, Work, ends_as_if_undisturbed};

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_of_a_set_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-gone-capi", NodeMaker::Set, Work::Deletion).await.unwrap();
}

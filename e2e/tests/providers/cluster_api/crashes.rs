//! The operator is killed after every write of its work on the machines of a `MachineDeployment`, its marks on Machines and its
//! writes of their number among them, and the work ends as if it had not been. No rollout: that is Cluster API's work.

use testbed::crashes::{NodeMaker, Work, ends_as_if_undisturbed};

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_up_of_a_set_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-up-capi", NodeMaker::Set, Work::ScaleUp).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_of_a_set_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-down-capi", NodeMaker::Set, Work::Drain).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_of_a_set_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-dead-capi", NodeMaker::Set, Work::Repair).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_of_a_set_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-gone-capi", NodeMaker::Set, Work::Deletion).await.unwrap();
}

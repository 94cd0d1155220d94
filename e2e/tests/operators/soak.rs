//! The small size of `cargo soak`: a pool's life on a real control plane, held against the audit log.

use testbed::soak::{SoakOptions, SoakOutputs, run};

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_shows_that_every_bound_and_budget_was_kept_in_the_life_of_a_pool() {
    let options = SoakOptions { nodes: 40, outputs: SoakOutputs::default(), audit_log: None };
    println!("{}", run(options).await.unwrap());
}

use super::*;
use crate::leader::DEFAULT_TIMING;
use crate::testing::server;
use crate::write::{WriteStrategy, unobserved};

/// The work of an operator that does not end by itself.
async fn work(stop: CancellationToken) -> Result<(), BootstrapError> {
    stop.cancelled().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_elector_ends_the_operator_as_a_lost_lease_does() {
    let (client, _) = server(|_| panic!("injected"));
    let (clock, metrics) = (Clock::system(), Metrics::new("test", "0").unwrap());
    let fence = Fence::standby(clock.clone());
    let writer =
        Writer::new(client.clone(), Owner::NodepoolOperator, WriteStrategy::Guarded, &clock, unobserved())
            .unwrap();
    let config = LeaseConfig {
        namespace: "ns".into(),
        name: "lease".into(),
        identity: "a".into(),
        timing: DEFAULT_TIMING,
    };
    let elector = Elector::new(client, writer.unfenced(&clock), config, fence.clone(), clock, metrics);
    let election = elector.spawn(CancellationToken::new());

    let (stop, signalled) = (CancellationToken::new(), CancellationToken::new());
    let ended = supervise(work(stop.clone()), &stop, &signalled, &fence);
    let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
    let ended = ended.expect("the operator goes on as a replica that never leads, and says it is ready");
    let said = chain(&concluded(ended, election.await).unwrap_err());
    assert!(said.starts_with("leader election failed") && said.contains("injected"), "{said}");
}

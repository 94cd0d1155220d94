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
    let elector = Elector::new(client, writer.for_lease(&clock), config, fence.clone(), clock, metrics);
    let election = elector.spawn(CancellationToken::new());

    let (stop, signalled) = (CancellationToken::new(), CancellationToken::new());
    let ended = supervise(work(stop.clone()), &stop, &signalled, &fence, std::future::pending());
    let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
    let ended = ended.expect("the operator goes on as a replica that never leads, and says it is ready");
    let said = chain(&concluded(ended, election.await).unwrap_err());
    assert!(said.starts_with("leader election failed") && said.contains("injected"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn an_operator_whose_credentials_are_stale_ends_in_order_and_says_why() {
    let (stop, signalled) = (CancellationToken::new(), CancellationToken::new());
    let stale = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        StaleCredentials::Changed
    };
    let fence = Fence::unguarded(Clock::system());
    let ended = supervise(work(stop.clone()), &stop, &signalled, &fence, stale).await;
    assert!(stop.is_cancelled(), "its work was told to end");
    let said = chain(&concluded(ended, Ok(Ended::Released)).unwrap_err());
    assert!(said.contains("new credentials: the kubeconfig,") && said.ends_with("has changed"), "{said}");
}

/// A kubelet asks from the first moment on, and a rolling update goes on with the first yes.
#[tokio::test]
async fn a_replica_is_not_ready_before_it_knows_what_it_waits_for() {
    #[derive(clap::Parser)]
    struct Args {
        #[command(flatten)]
        common: CommonArgs,
    }
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let without_user = "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], \
        clusters: [{name: a, cluster: {server: \"http://127.0.0.1:1\"}}], users: [{name: a, user: {}}]}";
    std::fs::write(&kubeconfig, without_user).unwrap();
    let flags = ["x", "--leader-elect=false", "--admin-address=127.0.0.1:0", "--kubeconfig"];
    let flags = flags.map(std::ffi::OsString::from).into_iter().chain([kubeconfig.into_os_string()]);
    let args = <Args as clap::Parser>::parse_from(flags).common;
    let spec = OperatorSpec { name: "x", version: "0", owner: Owner::NodepoolOperator, crds: &[] };
    let waits_for =
        |operator: &Operator| operator.readiness.waiting_for().into_iter().map(|(gate, _)| gate).collect();
    let seen = Arc::new(std::sync::Mutex::new(Vec::<Vec<String>>::new()));
    let start = {
        let seen = Arc::clone(&seen);
        async move |operator: Operator| {
            seen.lock().unwrap().push(waits_for(&operator));
            let cache = operator.readiness.gate("cache", "not listed yet");
            let _config = operator.controller("x");
            seen.lock().unwrap().push(waits_for(&operator));
            cache.open();
            seen.lock().unwrap().push(waits_for(&operator));
            Ok::<_, MetricsError>(())
        }
    };
    let ended = run(spec, args, DEFAULT_TIMING, start).await;
    assert!(matches!(ended, Err(BootstrapError::Ended)), "{ended:?}");
    assert_eq!(*seen.lock().unwrap(), [vec!["start".to_owned()], vec!["cache".to_owned()], vec![]]);
}

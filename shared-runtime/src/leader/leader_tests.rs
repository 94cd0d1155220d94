use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use shared_crds::ownership::Owner;
use tokio::task::JoinHandle;

use super::*;
use crate::readiness::Readiness;
use crate::testing::{failure, server};
use crate::write::WriteStrategy;

const SECOND: Duration = Duration::from_secs(1);

/// An API server that holds one lease and checks versions.
#[derive(Clone, Default)]
struct Leases {
    stored: Arc<Mutex<Option<Value>>>,
    broken: Arc<AtomicBool>,
    forbidden: Arc<AtomicBool>,
}

impl Leases {
    fn client(&self) -> Client {
        let Self { stored, broken, forbidden } = self.clone();
        let (client, _) = server(move |asked| {
            if broken.load(Ordering::SeqCst) {
                return failure(500, "InternalError", "broken");
            }
            if forbidden.load(Ordering::SeqCst) {
                return failure(403, "Forbidden", "leases \"l\" is forbidden: User \"u\" cannot get it");
            }
            let mut stored = stored.lock().unwrap();
            let version =
                |lease: &Value| lease["metadata"]["resourceVersion"].as_str().map(ToOwned::to_owned);
            match (&asked.method, stored.clone()) {
                (&Method::GET, Some(lease)) => (200, lease),
                (&Method::GET | &Method::PUT, None) => failure(404, "NotFound", "no"),
                (&Method::POST, Some(_)) => failure(409, "AlreadyExists", "there is one"),
                (&Method::PUT, Some(current)) if version(&current) != version(&asked.body) => failure(
                    409,
                    "Conflict",
                    "the object has been modified; please apply your changes to the latest version and try again",
                ),
                (_, current) => {
                    let next =
                        current.as_ref().and_then(version).map_or(1, |v| v.parse::<u64>().unwrap() + 1);
                    let mut lease = asked.body.clone();
                    lease["metadata"]["resourceVersion"] = next.to_string().into();
                    lease["metadata"]["uid"] = "u".into();
                    *stored = Some(lease.clone());
                    (if current.is_some() { 200 } else { 201 }, lease)
                }
            }
        });
        client
    }

    fn holder(&self) -> String {
        let stored = self.stored.lock().unwrap();
        stored
            .as_ref()
            .map(|lease| lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
            .unwrap_or_default()
    }

    /// Writes the lease as another process.
    fn write(&self, change: impl FnOnce(&mut Value)) {
        let mut stored = self.stored.lock().unwrap();
        let lease = stored.as_mut().unwrap();
        change(lease);
        let version: u64 = lease["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        lease["metadata"]["resourceVersion"] = (version + 1).to_string().into();
    }
}

struct Candidate {
    fence: Fence,
    readiness: Readiness,
    release: CancellationToken,
    task: JoinHandle<Ended>,
}

fn elector(leases: &Leases, identity: &str, readiness: &Readiness) -> Elector {
    let clock = Clock::system();
    let fence = Fence::standby(clock.clone());
    let metrics = Metrics::new("test", "0").unwrap();
    let client = leases.client();
    let owner = Owner::NodepoolOperator;
    let writer = Writer::new(
        client.clone(),
        owner,
        WriteStrategy::Guarded,
        &clock,
        Arc::new(metrics.writes("test").unwrap()),
    )
    .unwrap();
    let config = LeaseConfig {
        namespace: "ns".to_owned(),
        name: "l".to_owned(),
        identity: identity.to_owned(),
        timing: DEFAULT_TIMING,
    };
    Elector::new(client, writer, config, fence, clock, metrics)
        .ready_by(readiness.gate("lease", "not read yet"))
}

fn candidate(leases: &Leases, identity: &str) -> Candidate {
    let (readiness, release) = (Readiness::default(), CancellationToken::new());
    let elector = elector(leases, identity, &readiness);
    let fence = elector.fence.clone();
    Candidate { fence, readiness, release: release.clone(), task: tokio::spawn(elector.run(release)) }
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_a_renewal_is_logged_also_where_it_is_of_the_same_kind_as_the_last_one() {
    let mut elector = elector(&Leases::default(), "a", &Readiness::default());
    for _ in 0..2 {
        assert!(elector.result_of(Ok(Err(TryError::Timeout))).is_none());
        assert_eq!(elector.said, "timeout");
        assert!(elector.result_of(Ok(Ok(Try::Won(Box::default())))).is_some());
        assert_eq!(elector.said, "", "another failure would not be logged");
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_candidates_one_leads_and_a_release_hands_over_at_once() {
    let leases = Leases::default();
    let mut candidates: Vec<_> = (0..5).map(|n| candidate(&leases, &format!("c{n}"))).collect();
    tokio::time::sleep(SECOND * 60).await;
    let leading: Vec<_> = (0..5).filter(|n| candidates[*n].fence.pass().is_ok()).collect();
    assert_eq!(leading.len(), 1);
    assert_eq!(leases.holder(), format!("c{}", leading[0]));

    let leader = candidates.remove(leading[0]);
    leader.release.cancel();
    assert_eq!(leader.task.await.unwrap(), Ended::Released);
    assert!(leader.fence.pass().is_err());
    assert_eq!(leases.holder(), "");
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(candidates.iter().filter(|c| c.fence.pass().is_ok()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_successor_waits_out_the_lease_of_a_leader_that_died() {
    let leases = Leases::default();
    let leader = candidate(&leases, "a");
    tokio::time::sleep(SECOND).await;
    leader.task.abort();
    let successor = candidate(&leases, "b");
    tokio::time::sleep(SECOND * 14).await;
    assert!(leader.fence.pass().is_err(), "the dead leader's fence has closed by itself");
    assert!(successor.fence.pass().is_err());
    tokio::time::sleep(SECOND * 6).await;
    assert!(successor.fence.pass().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_does_not_make_a_second_leader() {
    let leases = Leases::default();
    let leader = candidate(&leases, "a");
    tokio::time::sleep(SECOND).await;
    let successor = candidate(&leases, "b");
    tokio::time::sleep(SECOND * 5).await;
    assert!(leader.fence.pass().is_ok() && successor.fence.pass().is_err());
    // The leader is not notified of it, because its requests fail; the standby replica is.
    *leases.stored.lock().unwrap() = None;
    leader.task.abort();
    for _ in 0..100 {
        tokio::time::sleep(SECOND / 10).await;
        assert!(leader.fence.pass().is_err() || successor.fence.pass().is_err(), "two lead");
    }
    tokio::time::sleep(SECOND * 15).await;
    assert!(successor.fence.pass().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_at_the_deadline_before_another_takes_over() {
    let leases = Leases::default();
    let leader = candidate(&leases, "a");
    tokio::time::sleep(SECOND).await;
    leases.broken.store(true, Ordering::SeqCst);
    let broken_for = Clock::system();
    assert_eq!(leader.task.await.unwrap(), Ended::Lost);
    assert!(broken_for.monotonic() <= DEFAULT_TIMING.renew_deadline + DEFAULT_TIMING.retry_period);
    assert!(leader.fence.lost().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_few_failed_renewals_do_not_matter() {
    let leases = Leases::default();
    let leader = candidate(&leases, "a");
    tokio::time::sleep(SECOND).await;
    leases.broken.store(true, Ordering::SeqCst);
    tokio::time::sleep(SECOND * 6).await;
    leases.broken.store(false, Ordering::SeqCst);
    tokio::time::sleep(SECOND * 60).await;
    assert!(leader.fence.pass().is_ok());
}

#[tokio::test(start_paused = true)]
async fn another_writer_of_the_lease_is_survived_and_a_thief_is_not() {
    let leases = Leases::default();
    let leader = candidate(&leases, "a");
    tokio::time::sleep(SECOND).await;
    leases.write(|lease| lease["metadata"]["labels"] = json!({ "x": "y" }));
    tokio::time::sleep(SECOND * 30).await;
    assert!(leader.fence.pass().is_ok());
    leases.write(|lease| lease["spec"]["holderIdentity"] = "thief".into());
    assert_eq!(leader.task.await.unwrap(), Ended::Lost);
    assert_eq!(leases.holder(), "thief", "the lease was not taken back");
}

fn reasons(candidate: &Candidate) -> Vec<String> {
    candidate.readiness.waiting_for().into_iter().map(|(_, reason)| reason).collect()
}

#[tokio::test(start_paused = true)]
async fn a_leader_and_a_standby_are_ready_and_a_replica_without_a_right_to_the_lease_is_not() {
    let leases = Leases::default();
    let leader = candidate(&leases, "a");
    tokio::time::sleep(SECOND).await;
    let standby = candidate(&leases, "b");
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!((reasons(&leader), reasons(&standby)), (vec![], vec![]));

    leases.forbidden.store(true, Ordering::SeqCst);
    let late = candidate(&leases, "c");
    tokio::time::sleep(SECOND).await;
    let told = reasons(&late).concat();
    for part in ["lease ns/l (forbidden)", "User \"u\" cannot get it", "allow get, create and update"] {
        assert!(told.contains(part), "{told}");
    }
    leases.forbidden.store(false, Ordering::SeqCst);
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(reasons(&late), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_standby_is_ready_until_it_could_not_read_the_lease_for_as_long_as_one_lasts() {
    for forbidden in [false, true] {
        let leases = Leases::default();
        let _leader = candidate(&leases, "a");
        tokio::time::sleep(SECOND).await;
        let standby = candidate(&leases, "b");
        tokio::time::sleep(SECOND * 5).await;
        let fault = if forbidden { &leases.forbidden } else { &leases.broken };
        fault.store(true, Ordering::SeqCst);
        tokio::time::sleep(SECOND * 10).await;
        assert_eq!(reasons(&standby), Vec::<String>::new(), "a moment is no loss");
        tokio::time::sleep(SECOND * 10).await;
        assert_eq!(reasons(&standby).len(), 1);
        fault.store(false, Ordering::SeqCst);
        tokio::time::sleep(SECOND * 5).await;
        assert_eq!(reasons(&standby), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_before_its_gate_would_close() {
    let leases = Leases::default();
    let leader = candidate(&leases, "a");
    tokio::time::sleep(SECOND).await;
    leases.forbidden.store(true, Ordering::SeqCst);
    assert_eq!(leader.task.await.unwrap(), Ended::Lost);
    assert!(leader.readiness.waiting_for().is_empty());
}

//! The life cycle of an operator, the same for both: telemetry, admin server, client, waiting for the cluster, leader
//! election, work, and an orderly stop in the reverse order.
//!
//! The operator supplies its work as one async function.

mod election;
mod entry;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use kube::core::NamespaceResourceScope;
use kube::runtime::reflector::{Lookup, Store};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use shared_crds::ownership::Owner;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::election::{caches_after_the_first_try, fence, stopped};
pub use self::entry::main;
use crate::admin::{self, AdminError};
use crate::cli::CommonArgs;
use crate::client::{self, ClientError};
use crate::clock::Clock;
use crate::crds::{Definitions, ServedFields};
use crate::credentials::{OwnCredentials, StaleCredentials};
use crate::error::chain;
use crate::events::Recorder;
use crate::fence::Fence;
use crate::freshness::WriteTracker;
use crate::leader::{self, Elector, Ended, InvalidTiming, LeaseConfig};
use crate::liveness::Liveness;
use crate::metrics::{Metrics, MetricsError};
use crate::readiness::{Gate, Readiness};
use crate::reflect::{self, Caches, Change, Unreadable, UnreadableObjects, Watching};
use crate::telemetry::{self, TelemetryError};
use crate::write::{NotAnOperator, Writer};
use crate::{controller, decision_gate, shutdown};

/// How long the work may take to end after it is told to. The controller loop's own deadline is shorter.
const WORK_DEADLINE: Duration = Duration::from_secs(25);

/// Identity and requirements of an operator.
#[derive(Clone, Copy, Debug)]
pub struct OperatorSpec {
    /// Its name: field manager, user agent, default name of its lease, reporter of its events.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The owner of the fields it writes.
    pub owner: Owner,
    /// Names of the custom resource definitions it requires.
    pub crds: &'static [&'static str],
}

/// Everything an operator's work needs. Cheap to clone.
#[derive(Clone)]
pub struct Operator {
    /// Client for reads and watches. Writes go through `writer`.
    pub client: Client,
    /// The only way to write to the API server.
    pub writer: Writer,
    /// Whether a cached object is fresh enough for a decision.
    pub write_tracker: WriteTracker,
    /// The metrics registry.
    pub metrics: Metrics,
    /// Publishes Kubernetes events.
    pub recorder: Recorder,
    /// The conditions that must hold for the operator to work.
    pub readiness: Readiness,
    /// What the installed definitions lack.
    pub served: ServedFields,
    /// Objects that the caches leave out because they cannot be read.
    pub unreadable: UnreadableObjects,
    /// Up to which point in time the caches are known to show the cluster.
    pub caches: Caches,
    /// Whether the tasks of this process run.
    pub liveness: Liveness,
    /// Wall clock and monotonic clock.
    pub clock: Clock,
    /// Whether this replica is the leader.
    pub fence: Fence,
    /// Cancelled when the work must end.
    pub shutdown: CancellationToken,
    /// The command-line flags.
    pub args: CommonArgs,
    /// Closed until everything that a replica waits for has a gate of its own.
    starting: Gate,
}

impl Operator {
    /// The configuration of a controller loop that runs while this replica is the leader and every cache is current.
    /// Triggers are accepted before. It comes after the caches that the loop reads: from here on the replica is ready when
    /// they are.
    pub fn controller(&self, name: &'static str) -> controller::Config {
        self.starting.open();
        controller::Config::new(name, self.clock.clone(), self.metrics.clone())
            .concurrency(usize::from(self.args.concurrency))
            .pulse(self.liveness.pulse(format!("controller {name}")))
            .gate(decision_gate::may_decide(self.readiness.clone(), self.fence.clone(), self.caches.clone()))
    }

    /// A cache of a kind and the stream of its changes; see [`reflect::reflect`].
    pub fn reflect<K, P>(
        &self,
        api: Api<K>,
        config: &watcher::Config,
        transform: P,
    ) -> (Store<K>, impl Stream<Item = Change<K>> + Send + 'static + use<K, P>)
    where
        P: FnMut(&mut K) + Send + 'static,
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
    {
        reflect::reflect(api, config, &self.watching(), transform)
    }

    /// A cache of the values that `keep` makes from a kind's objects, and the stream of its changes; see
    /// [`reflect::reflect_as`].
    pub fn reflect_as<W, K, P>(
        &self,
        api: Api<W>,
        config: &watcher::Config,
        keep: P,
        stand_in: fn(&Unreadable) -> Option<W>,
    ) -> (Store<K>, impl Stream<Item = Change<K>> + Send + 'static + use<W, K, P>)
    where
        P: FnMut(W) -> K + Send + 'static,
        W: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
        K: Lookup<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        reflect::reflect_as(api, config, &self.watching(), keep, stand_in)
    }

    fn watching(&self) -> Watching {
        Watching {
            metrics: self.metrics.clone(),
            write_tracker: self.write_tracker.clone(),
            readiness: self.readiness.clone(),
            unreadable: self.unreadable.clone(),
            caches: self.caches.clone(),
            liveness: self.liveness.clone(),
        }
    }

    /// The watched namespaces: one, or all.
    pub fn api_watched<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match self.args.client.watch_namespace.as_str() {
            "" => Api::all(self.client.clone()),
            namespace => Api::namespaced(self.client.clone(), namespace),
        }
    }
}

/// Why an operator failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// The lease times are inconsistent.
    #[error("the flags of leader election do not fit together")]
    Timing(#[from] InvalidTiming),
    /// Logs or traces cannot be set up.
    #[error("cannot set up logs and traces")]
    Telemetry(#[from] TelemetryError),
    /// Metrics cannot be set up.
    #[error("cannot set up metrics")]
    Metrics(#[from] MetricsError),
    /// Signal handlers cannot be installed.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    /// The admin server cannot listen.
    #[error("cannot start the admin server")]
    Admin(#[from] AdminError),
    /// The client cannot be created.
    #[error("cannot connect to the cluster")]
    Client(#[from] ClientError),
    /// The spec's owner is not an operator.
    #[error("cannot create the writer")]
    Writer(#[from] NotAnOperator),
    /// The definitions of this version cannot be written out.
    #[error("cannot read the operator's own definitions")]
    Definitions(#[from] shared_crds::CrdError),
    /// The operator's own work failed.
    #[error("the operator failed")]
    Work(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The operator's work ended without being told to.
    #[error("the operator's work ended by itself")]
    Ended,
    /// Another replica is the leader now. This process exits: its memory is outdated, and a fresh start is the one
    /// recovery that is known to be correct.
    #[error("this replica lost its lease and makes room for another")]
    LostLease,
    /// The connection was made from credentials that are not current any more. The next process reads them anew.
    #[error("this process makes room for one with new credentials")]
    Credentials(#[source] StaleCredentials),
    /// The lease is not renewed any more: the elector's task has panicked.
    #[error("leader election failed, and this replica makes room for another")]
    Election(#[source] JoinError),
}

/// Runs an operator until SIGTERM or SIGINT, or until it cannot continue.
///
/// `start` is called when the definitions are established, in a standby replica too, so that its caches are warm when
/// it becomes the leader. It ends when [`Operator::shutdown`] is cancelled.
pub async fn run_operator<F, Fut, E>(
    spec: OperatorSpec,
    args: CommonArgs,
    start: F,
) -> Result<(), BootstrapError>
where
    F: FnOnce(Operator) -> Fut,
    Fut: Future<Output = Result<(), E>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let timing = args.leader.timing()?;
    let telemetry = telemetry::init(&args.telemetry, spec.name, spec.version)?;
    // Together with the other operator's line this shows whether both watch the same pools.
    let watched = match args.client.watch_namespace.as_str() {
        "" => "all",
        namespace => namespace,
    };
    info!(name = spec.name, version = spec.version, strategy = %args.write_strategy, watched, "starting");
    let ended = run(spec, args, timing, start).await;
    match &ended {
        Ok(()) => info!("stopped"),
        Err(failed) => warn!(error = %chain(failed), "stopped"),
    }
    telemetry.flush().await;
    ended
}

async fn run<F, Fut, E>(
    spec: OperatorSpec,
    args: CommonArgs,
    timing: leader::Timing,
    start: F,
) -> Result<(), BootstrapError>
where
    F: FnOnce(Operator) -> Fut,
    Fut: Future<Output = Result<(), E>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let signalled = shutdown::on_signals().map_err(BootstrapError::Signals)?;
    let clock = Clock::system();
    let metrics = Metrics::new(spec.name, spec.version)?;
    let readiness = Readiness::default();
    let liveness = Liveness::new(clock.clone());
    // Before the first probe can ask: without any gate it would be ready.
    let starting = readiness.gate("start", "the operator is starting");
    // The admin server outlives everything else, so that a stop can be observed.
    let served = CancellationToken::new();
    let _stop_serving = served.clone().drop_guard();
    admin::serve(args.admin_address, readiness.clone(), liveness.clone(), metrics.clone(), served).await?;
    let credentials = OwnCredentials::new(&args.client.connection);
    let client =
        client::connect(&args.client.connection, spec.name, spec.version, clock.clone(), metrics.clone())
            .await?;
    let definitions = Definitions::new(&client, spec.crds, &readiness, &metrics)?;
    tokio::select! {
        () = signalled.cancelled() => return Ok(()),
        why = credentials.stale(&client, &clock) => return Err(BootstrapError::Credentials(why)),
        () = definitions.wait() => {}
    }
    let _following = definitions.follow();

    let host = std::env::var("POD_NAME").or_else(|_| hostname()).unwrap_or_else(|_| spec.name.to_owned());
    let identity = leader::identity(&host, rand::random());
    let fence = fence(&args, &clock);
    let observer = Arc::new(metrics.writes(args.write_strategy.as_str())?);
    let writer = Writer::new(client.clone(), spec.owner, args.write_strategy, &clock, observer)?
        .with_fence(fence.clone())
        .with_served_fields(definitions.served());
    let (recorder, publisher) =
        Recorder::new(client.clone(), spec.name, &host, fence.clone(), metrics.clone());
    let release = CancellationToken::new();
    let election = args.leader.leader_elect.then(|| {
        let config = LeaseConfig {
            namespace: lease_namespace(&args, &client),
            name: lease_name(&args, spec),
            identity,
            timing,
        };
        let writer = writer.for_lease(&clock);
        let elector =
            Elector::new(client.clone(), writer, config, fence.clone(), clock.clone(), metrics.clone());
        elector.ready_by(readiness.gate("lease", "not read yet")).spawn(release.clone())
    });
    if election.is_none() {
        metrics.leading(true);
        metrics.lease_usable(true);
    }

    let caches = caches_after_the_first_try(&fence, &signalled).await;
    let work = CancellationToken::new();
    let operator = Operator {
        client: client.clone(),
        write_tracker: writer.write_tracker().clone(),
        writer,
        metrics,
        recorder,
        readiness,
        served: definitions.served(),
        unreadable: UnreadableObjects::default(),
        caches,
        liveness,
        clock: clock.clone(),
        fence: fence.clone(),
        shutdown: work.clone(),
        args,
        starting,
    };
    let stale = credentials.stale(&client, &clock);
    let ended = supervise(start(operator), &work, &signalled, &fence, stale).await;
    release.cancel();
    let lease = stopped(election, publisher).await;
    concluded(ended, lease)
}

/// The result of the operator from the results of the work and the election.
fn concluded(
    ended: Result<(), BootstrapError>,
    lease: Result<Ended, JoinError>,
) -> Result<(), BootstrapError> {
    match (ended, lease) {
        (_, Err(failed)) => Err(BootstrapError::Election(failed)),
        (Ok(()), Ok(Ended::Lost)) => Err(BootstrapError::LostLease),
        (ended, Ok(_)) => ended,
    }
}

/// Runs the work until it ends, a signal arrives, the lease is lost, or the credentials are `stale`; unless it has ended, tells it to
/// end and waits.
async fn supervise<E>(
    work: impl Future<Output = Result<(), E>>,
    stop: &CancellationToken,
    signalled: &CancellationToken,
    fence: &Fence,
    stale: impl Future<Output = StaleCredentials>,
) -> Result<(), BootstrapError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut work = std::pin::pin!(work);
    let ending = tokio::select! {
        ended = &mut work => {
            ended.map_err(|failed| BootstrapError::Work(failed.into()))?;
            let is_asked = signalled.is_cancelled() || fence.lost().is_cancelled();
            return if is_asked { Ok(()) } else { Err(BootstrapError::Ended) };
        }
        () = signalled.cancelled() => Ok(()),
        () = fence.lost().cancelled() => Err(BootstrapError::LostLease),
        why = stale => Err(BootstrapError::Credentials(why)),
    };
    stop.cancel();
    if let Ok(ended) = tokio::time::timeout(WORK_DEADLINE, work).await {
        ended.map_err(|failed| BootstrapError::Work(failed.into()))?;
    } else {
        warn!(after = ?WORK_DEADLINE, "the work did not end when it was told to");
    }
    ending
}

fn lease_name(args: &CommonArgs, spec: OperatorSpec) -> String {
    args.leader.lease_name.clone().unwrap_or_else(|| spec.name.to_owned())
}

fn lease_namespace(args: &CommonArgs, client: &Client) -> String {
    let named = args.leader.lease_namespace.clone().or_else(|| std::env::var("POD_NAMESPACE").ok());
    named.filter(|namespace| !namespace.is_empty()).unwrap_or_else(|| client.default_namespace().to_owned())
}

fn hostname() -> Result<String, std::io::Error> {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned())
}

#[cfg(test)]
#[path = "bootstrap_tests.rs"]
mod tests;

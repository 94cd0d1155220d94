//! The type of a scenario.

use anyhow::Result;
use futures::future::BoxFuture;

use crate::context::ScenarioContext;

/// One demonstration on a real API server.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line, and of its page.
    pub name: &'static str,
    /// What it shows, in one line.
    pub title: &'static str,
    /// The rows of the checklist that it shows.
    pub rows: &'static [&'static str],
    /// The wrong claims that it refutes.
    pub refutes: &'static [&'static str],
    /// The conclusion, in at most two lines.
    pub lesson: &'static str,
    /// The cluster that it needs.
    pub needs: Needs,
    /// The function that runs it.
    pub run: Play,
}

/// The function of a scenario.
pub type Play = for<'a> fn(&'a ScenarioContext) -> BoxFuture<'a, Result<()>>;

/// The cluster that a scenario needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Any API server.
    ApiServer,
    /// The embedded control plane: the scenario reads etcd, or the API server's audit log.
    Embedded,
    /// The embedded control plane with scheduler, controllers and simulated kubelets, on which both operators run.
    Operators,
    /// Like `Operators`, with Cluster API's definitions, on a control plane of its own. Cluster API's controllers are built
    /// when they are first needed.
    ClusterApi,
}

impl Needs {
    /// Whether it cannot run on a user's cluster.
    pub const fn is_embedded(self) -> bool {
        !matches!(self, Self::ApiServer)
    }

    /// Whether both operators run on it.
    pub const fn has_operators(self) -> bool {
        matches!(self, Self::Operators | Self::ClusterApi)
    }
}

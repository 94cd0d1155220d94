//! What a scenario is, and which there are.

use anyhow::Result;
use futures::future::BoxFuture;

use crate::context::ScenarioContext;

/// One thing to see on a real API server.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line, and of its page.
    pub name: &'static str,
    /// What it shows, in a line.
    pub title: &'static str,
    /// The rows of the checklist that it shows.
    pub rows: &'static [&'static str],
    /// The wrong claims that it refutes.
    pub refutes: &'static [&'static str],
    /// What to take home, in two lines.
    pub lesson: &'static str,
    /// What it has to be played on.
    pub needs: Needs,
    /// The play.
    pub run: Play,
}

/// How a scenario is played.
pub type Play = for<'a> fn(&'a ScenarioContext) -> BoxFuture<'a, Result<()>>;

/// What a scenario has to be played on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// An API server, anybody's.
    ApiServer,
    /// The embedded control plane: it looks into etcd, or at the API server's audit log.
    Embedded,
    /// The embedded control plane with scheduler, controllers and simulated kubelets: both operators run on it.
    Operators,
}

impl Needs {
    /// Whether somebody else's cluster will not do.
    pub const fn is_embedded(self) -> bool {
        matches!(self, Self::Embedded | Self::Operators)
    }
}

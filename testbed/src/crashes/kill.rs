//! Kills an operator after its writes, again and again, until a test has seen its work done: what an operator has not
//! written is lost, and what it has written is not answered.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use crate::fault_proxy::FaultProxy;
use crate::machines::Machines;
use crate::operators::OperatorProcess;
use crate::write_gate::GatedWrite;

/// Where an operator is killed.
#[derive(Clone, Copy)]
pub struct CrashPoints<'a> {
    /// How many writes to the API server it makes before. The last one is not answered.
    pub writes: usize,
    /// The machines of a program, after each change of which it is killed as well, before the program answers.
    pub machines: Option<&'a Machines>,
}

impl CrashPoints<'_> {
    async fn machine_changed(&self) {
        match self.machines {
            Some(machines) => machines.changed(1).await,
            None => std::future::pending().await,
        }
    }

    fn machine_changes(&self) -> Result<Vec<String>> {
        self.machines.map_or_else(|| Ok(Vec::new()), Machines::unanswered)
    }
}

/// What an operator wrote before it was killed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Its writes to the API server, in order.
    pub writes: Vec<GatedWrite>,
    /// What the program of its provider did that killed it.
    pub machines: Vec<String>,
}

impl Life {
    /// What it was killed after.
    pub fn ended_after(&self) -> String {
        let machine = self.machines.last().map(|operation| format!("machine {operation}"));
        machine.or_else(|| self.writes.last().map(GatedWrite::to_string)).unwrap_or_default()
    }
}

/// The lives of an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// Those that were ended.
    pub killed: Vec<Life>,
    /// The writes of the one that was left alone, because it had no more to write than that.
    pub rest: Vec<GatedWrite>,
}

impl Lives {
    /// How often it was killed after what.
    pub fn kills(&self) -> BTreeMap<String, usize> {
        let mut kills = BTreeMap::new();
        for life in &self.killed {
            *kills.entry(life.ended_after()).or_default() += 1;
        }
        kills
    }

    /// The number of writes to the API server.
    pub fn writes(&self) -> usize {
        self.killed.iter().map(|life| life.writes.len()).sum::<usize>() + self.rest.len()
    }
}

/// Waits for `work`, and kills `operator` at its `points` meanwhile. Its requests go through `proxy`. It is left alone when
/// the work is done.
///
/// # Errors
/// Those of `work`; and when the operator ends by itself, or cannot be started again.
pub async fn crashing<T>(
    operator: &OperatorProcess,
    proxy: &FaultProxy,
    points: CrashPoints<'_>,
    work: impl Future<Output = Result<T>>,
) -> Result<(T, Lives)> {
    let gate = proxy.writes();
    let mut lives = Lives::default();
    gate.executed();
    points.machines.map_or(Ok(()), |machines| machines.answer_changes_before(1))?;
    gate.allow(Some(points.writes));
    let mut work = std::pin::pin!(work);
    loop {
        let done = tokio::select! {
            done = &mut work => Some(done?),
            () = gate.closed() => None,
            () = points.machine_changed() => None,
            exit = operator.wait() => bail!("the operator ended with {exit}\n{}", operator.log_tail()),
        };
        if let Some(done) = done {
            points.machines.map_or(Ok(()), Machines::tell_the_truth)?;
            gate.allow(None);
            lives.rest = gate.executed();
            return Ok((done, lives));
        }
        let next_life = || {
            let life = Life { writes: gate.executed(), machines: points.machine_changes()? };
            gate.allow(Some(points.writes));
            Ok(life)
        };
        lives.killed.push(operator.kill_and_restart(next_life).await?);
    }
}

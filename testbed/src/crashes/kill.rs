//! Kills an operator after its writes, again and again, until a test has seen its work done: what an operator has not
//! written is lost, and what it has written is not answered.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use crate::fault_proxy::FaultProxy;
use crate::machines::Machines;
use crate::operators::OperatorProcess;
use crate::write_gate::{GatedWrite, WriteGate};

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
    /// Whether the last of them was not answered.
    pub is_unanswered: bool,
    /// What the program of its provider did that killed it.
    pub machines: Vec<String>,
}

impl Life {
    /// The life that ends now, with the writes that passed `gate`, and these changes of machines.
    pub(super) fn ending(gate: &WriteGate, machines: Vec<String>) -> Self {
        let is_unanswered = gate.is_closed();
        Self { writes: gate.executed(), is_unanswered, machines }
    }

    /// What it was killed after: what it had done and was not told of. It works on several nodes at once, so it may have
    /// changed a machine while one of its writes was held.
    pub fn ended_after(&self) -> Vec<String> {
        let machine = self.machines.last().map(|operation| format!("machine {operation}"));
        let write = self.writes.last().filter(|_| self.is_unanswered).map(GatedWrite::to_string);
        machine.into_iter().chain(write).collect()
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
    /// How often it was killed after what. A life that ended after a write and a machine counts for both.
    pub fn kills(&self) -> BTreeMap<String, usize> {
        let mut kills = BTreeMap::new();
        for what in self.killed.iter().flat_map(Life::ended_after) {
            *kills.entry(what).or_default() += 1;
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
            let life = Life::ending(gate, points.machine_changes()?);
            gate.allow(Some(points.writes));
            Ok(life)
        };
        lives.killed.push(operator.kill_and_restart(next_life).await?);
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::*;

    fn life(machines: &[&str], is_unanswered: bool) -> Life {
        let release = GatedWrite::of(&Method::DELETE, "/api/v1/nodes/a", b"").unwrap();
        let machines = machines.iter().map(|operation| (*operation).to_owned()).collect();
        Life { writes: vec![release], is_unanswered, machines }
    }

    #[test]
    fn a_life_that_ends_after_a_write_and_a_machine_counts_for_both() {
        assert_eq!(life(&["delete"], true).ended_after(), ["machine delete", "DELETE nodes"]);
        assert_eq!(life(&["delete"], false).ended_after(), ["machine delete"], "the write was answered");
        assert_eq!(life(&[], true).ended_after(), ["DELETE nodes"]);

        let killed = vec![life(&["delete"], true), life(&[], true)];
        let kills = Lives { killed, rest: Vec::new() }.kills();
        let expected = [("DELETE nodes", 2), ("machine delete", 1)];
        assert_eq!(kills, expected.map(|(what, count)| (what.to_owned(), count)).into());
    }
}

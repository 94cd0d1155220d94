//! Machines that have no Node of the pool: which may still get one, which have waited too long for it and are given up, and which are
//! withdrawn where there are too many.

use shared_crds::NodePool;

use crate::Observed;
use crate::assess::membership::start_timeout;
use crate::input::supply::Machine;

/// The machines that are requested or run, and have no Node of the pool yet.
#[derive(Default)]
pub(super) struct MachinesWithoutNode<'a> {
    /// Those that may have a live Node are neither withdrawn nor given up, and nothing goes or comes in their place.
    pub(super) live: Vec<&'a Machine>,
    /// Those whose Node did not come in time. They count no more.
    pub(super) timed_out: Vec<&'a Machine>,
    /// All others that can still be withdrawn.
    pub(super) pending: Vec<&'a Machine>,
    /// Number of those whose Node has registered. They cannot be withdrawn any more.
    pub(super) joining: usize,
}

impl<'a> MachinesWithoutNode<'a> {
    /// Those of the pool.
    pub(super) fn of(observed: &'a Observed, pool: &NodePool) -> Self {
        let (live, machines): (Vec<&Machine>, Vec<&Machine>) =
            observed.in_flight().partition(|machine| observed.may_be_live(machine));
        // How long one takes that does not exist yet depends on the drain of another one.
        let is_awaited = |machine: &Machine| observed.supply.duties.awaits.contains(&machine.name);
        let (timed_out, pending): (Vec<&Machine>, Vec<&Machine>) = machines
            .into_iter()
            .partition(|machine| has_timed_out(observed, pool, machine) && !is_awaited(machine));
        Self { live, timed_out, pending, joining: observed.joining().len() }
    }

    /// Number of those that count.
    pub(super) const fn count(&self) -> usize {
        self.pending.len() + self.live.len() + self.joining
    }
}

/// Whether the machine's Node should have come by now, as measured by this process alone: no object records since when
/// there is a machine.
fn has_timed_out(observed: &Observed, pool: &NodePool, machine: &Machine) -> bool {
    let waited = observed.machine_times.of_machine(&machine.name);
    let may_remove = !observed.may_be_hidden && observed.supply.removals_wait.is_none();
    may_remove && start_timeout(pool).is_some_and(|timeout| waited >= timeout)
}

/// Removes up to `count` requests from `machines`: those that would take longest first.
pub(super) fn withdraw(machines: &mut Vec<&Machine>, count: usize) -> Vec<String> {
    machines.sort_by(|a, b| (a.state.ready_at(), &a.name).cmp(&(b.state.ready_at(), &b.name)));
    let keep = machines.len().saturating_sub(count);
    machines.split_off(keep).into_iter().map(|machine| machine.name.clone()).collect()
}

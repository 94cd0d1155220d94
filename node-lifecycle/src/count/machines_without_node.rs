//! Machines that have no Node of the pool: which may still get one, which have waited too long for it and are given up, and which are
//! withdrawn where there are too many, or because the template has changed since.

use k8s_openapi::jiff::SignedDuration;
use shared_crds::v1alpha1::RolloutType;
use shared_crds::{NodePool, names};

use crate::Observed;
use crate::assess::membership::start_timeout;
use crate::assess::outdated::OutdatedCriteria;
use crate::input::supply::Machine;
use crate::template::Blueprint;

/// For how long the template has to have been as it is before machines of an earlier one are withdrawn. A change that is taken back, or
/// made in several steps, comes within a minute, and costs no machine then that may be of use again.
const TEMPLATE_SETTLED_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// The machines that are requested or run, and have no Node of the pool yet.
#[derive(Default)]
pub(super) struct MachinesWithoutNode<'a> {
    /// Those that may have a live Node are neither withdrawn nor given up, and nothing goes or comes in their place.
    pub(super) live: Vec<&'a Machine>,
    /// Those whose Node did not come in time. They count no more.
    pub(super) timed_out: Vec<&'a Machine>,
    /// Those of an earlier template, which are withdrawn: their Nodes would be replaced as soon as they come, and until then they use
    /// the places of others. They count until their provider says that they are going.
    pub(super) superseded: Vec<&'a Machine>,
    /// How many of those may be withdrawn for their template. One, until a Node of the present template has come: as long as that
    /// has not shown that it can be made, the others are better than no nodes.
    pub(super) may_supersede: usize,
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
        let present = present_template(observed, pool);
        let (mut superseded, pending): (Vec<&Machine>, Vec<&Machine>) =
            pending.into_iter().partition(|machine| {
                present.as_ref().is_some_and(|present| is_superseded(observed, present, machine))
            });
        // The oldest first.
        superseded
            .sort_by_key(|it| (std::cmp::Reverse(observed.machine_times.of_machine(&it.name)), &it.name));
        let may_supersede = match &present {
            Some(present) if !is_proven(observed, present) => {
                let is_first = |machine: &&Machine| present.is_own(machine.template_hash.as_deref());
                usize::from(!pending.iter().chain(&live).any(is_first))
            }
            _ => superseded.len(),
        };
        Self { live, timed_out, superseded, may_supersede, pending, joining: observed.joining().len() }
    }

    /// Number of those that count.
    pub(super) const fn count(&self) -> usize {
        self.superseded.len() + self.pending.len() + self.live.len() + self.joining
    }
}

/// Whether the machine's Node should have come by now, as measured by this process alone: no object records since when
/// there is a machine.
fn has_timed_out(observed: &Observed, pool: &NodePool, machine: &Machine) -> bool {
    let waited = observed.machine_times.of_machine(&machine.name);
    let may_remove = !observed.may_be_hidden && observed.supply.removals_wait.is_none();
    may_remove && start_timeout(pool).is_some_and(|timeout| waited >= timeout)
}

/// The template by which machines are superseded; `None` while it may still change, where none can be withdrawn or made from it now, and
/// where nodes of an earlier one are not replaced, or their provider makes and replaces machines by itself.
fn present_template<'a>(observed: &Observed, pool: &'a NodePool) -> Option<OutdatedCriteria<'a>> {
    let supply = &observed.supply;
    let has_settled = observed.template_time >= TEMPLATE_SETTLED_AFTER;
    let is_deleted = pool.metadata.deletion_timestamp.is_some();
    let may_withdraw = !observed.may_be_hidden && supply.removals_wait.is_none();
    if !has_settled || is_deleted || !may_withdraw || supply.size.is_some() {
        return None;
    }
    let can_make = || Blueprint::of(&observed.key, pool, &supply.source).is_ok();
    let present = OutdatedCriteria::of(pool, observed.now);
    let replaces = present.spec.type_ == RolloutType::RollingUpdate && supply.may_request(observed.now);
    (replaces && can_make()).then_some(present)
}

/// Whether the machine is of an earlier template than the `present` one. It was there before that: otherwise a provider that says
/// something else of a machine than what it was asked for would be asked for machines and to withdraw them without end.
fn is_superseded(observed: &Observed, present: &OutdatedCriteria<'_>, machine: &Machine) -> bool {
    let is_older = observed.machine_times.of_machine(&machine.name) > observed.template_time;
    is_older && present.is_of_other_template(machine)
}

/// Whether a Node of the present template has come.
fn is_proven(observed: &Observed, present: &OutdatedCriteria<'_>) -> bool {
    let annotations = observed.nodes.iter().filter_map(|node| node.metadata.annotations.as_ref());
    let mut hashes = annotations.map(|all| all.get(names::TEMPLATE_HASH_ANNOTATION).map(String::as_str));
    hashes.any(|hash| present.is_own(hash))
}

/// Removes up to `count` requests from `machines`: those that would take longest first.
pub(super) fn withdraw(machines: &mut Vec<&Machine>, count: usize) -> Vec<String> {
    machines.sort_by(|a, b| (a.state.ready_at(), &a.name).cmp(&(b.state.ready_at(), &b.name)));
    let keep = machines.len().saturating_sub(count);
    machines.split_off(keep).into_iter().map(|machine| machine.name.clone()).collect()
}

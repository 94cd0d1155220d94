//! What can happen next, and what it does.

use super::state::{ABANDONED, ModelDecision, OperatorPhase, OperatorsState, SLOTS, Sent, Writer};
use super::{OperatorFlaw, OperatorsModel};
use crate::server::{
    ListTest, Manager, ModelEndpoint, ModelOperation, Reason, Request, RequestedChange, Set, Status, Test,
};

/// The minimum and the maximum wanted number of nodes.
const COUNTS: std::ops::RangeInclusive<i32> = 1..=3;

/// The node slots and the slots of abandoned requests.
const PLACES: [u8; SLOTS] = [0, 1, 2];
const ABANDONED_PLACES: [u8; ABANDONED] = [0, 1];

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperatorStep {
    /// The leader reads, decides to remove the node in this slot, and sends the list.
    DecideDown(u8),
    /// The leader reads, decides to add one node, and sends the count; or it removes a list that is in the way.
    DecideUp,
    /// The leader sends the count that belongs to its list.
    SendCount,
    /// The leader's request is executed or refused, and answered.
    Arrive,
    /// The leader gives up on its request: a timeout, or a crash and a restart.
    GiveUp,
    /// The leader is deposed; its sent requests may still be executed.
    Depose,
    /// An abandoned request is executed or refused after all.
    ArriveLate(u8),
    /// An abandoned request never arrives.
    NeverArrive(u8),
    /// The user writes this count.
    UserScales(i32),
    /// The user changes another part of the spec.
    UserChanges,
    /// The node in this slot is deleted, but by neither operator.
    LoseNode(u8),
    /// The `NodePool` operator creates or removes nodes, until the count is the wanted one.
    Resize,
}

/// All events that can happen in `state`.
pub(super) fn possible(state: &OperatorsState, steps: &mut Vec<OperatorStep>) {
    let (count, _, _) = state.seen();
    let left = &state.left;
    match state.phase {
        OperatorPhase::Idle if left.decisions > 0 => {
            let exists = |slot: &u8| state.nodes.get(usize::from(*slot)).is_some_and(|uid| *uid != 0);
            if count > *COUNTS.start() {
                steps.extend(PLACES.into_iter().filter(exists).map(OperatorStep::DecideDown));
            }
            if count < *COUNTS.end() {
                steps.push(OperatorStep::DecideUp);
            }
        }
        OperatorPhase::Idle => {}
        OperatorPhase::Announced(_) => steps.push(OperatorStep::SendCount),
        OperatorPhase::Waiting(_) => {
            steps.push(OperatorStep::Arrive);
            if left.lost > 0 && state.abandoned.contains(&None) {
                steps.push(OperatorStep::GiveUp);
            }
        }
    }
    if left.depositions > 0
        && (state.abandoned.contains(&None) || !matches!(state.phase, OperatorPhase::Waiting(_)))
    {
        steps.push(OperatorStep::Depose);
    }
    for (which, _) in ABANDONED_PLACES.into_iter().zip(state.abandoned).filter(|(_, sent)| sent.is_some()) {
        steps.extend([OperatorStep::ArriveLate(which), OperatorStep::NeverArrive(which)]);
    }
    if left.user_writes > 0 {
        steps.extend(COUNTS.filter(|wanted| *wanted != count).map(OperatorStep::UserScales));
    }
    if left.other_changes > 0 {
        steps.push(OperatorStep::UserChanges);
    }
    if left.losses > 0 {
        let used = PLACES.into_iter().zip(state.nodes).filter(|(_, uid)| *uid != 0);
        steps.extend(used.map(|(slot, _)| OperatorStep::LoseNode(slot)));
    }
    if state.count() != count {
        steps.push(OperatorStep::Resize);
    }
}

/// Executes `step`.
pub(super) fn take(model: OperatorsModel, state: &mut OperatorsState, step: OperatorStep) {
    match step {
        OperatorStep::DecideDown(slot) => decide(model, state, Some(slot)),
        OperatorStep::DecideUp => decide(model, state, None),
        OperatorStep::SendCount => {
            if let OperatorPhase::Announced(which) = state.phase {
                send_count(model, state, which);
            }
        }
        OperatorStep::Arrive => {
            if let OperatorPhase::Waiting(sent) = state.phase {
                let granted = arrive(state, sent);
                state.phase = match sent {
                    // An announced list is followed by its count; anything else by another pass.
                    Sent { decision: Some(which), request, .. } if granted && !is_count(&request) => {
                        OperatorPhase::Announced(which)
                    }
                    _ => OperatorPhase::Idle,
                };
            }
        }
        OperatorStep::GiveUp => {
            state.left.lost -= 1;
            abandon(state);
        }
        OperatorStep::Depose => {
            state.left.depositions -= 1;
            abandon(state);
            state.leader += 1;
        }
        OperatorStep::ArriveLate(which) => {
            if let Some(sent) = state.abandoned[usize::from(which)].take() {
                let granted = arrive(state, sent);
                state.history.refused_late |= !granted;
                state.history.executed_late |= granted;
            }
        }
        OperatorStep::NeverArrive(which) => state.abandoned[usize::from(which)] = None,
        OperatorStep::UserScales(wanted) => {
            state.left.user_writes -= 1;
            let scale = Request::MergeScale { version: None, uid: None, replicas: Some(wanted) };
            if handle(state, &scale) {
                state.count_by = Writer::User;
                state.history.count_of = None;
                state.history.user_writes += 1;
            }
        }
        OperatorStep::UserChanges => {
            state.left.other_changes -= 1;
            let tokens = [state.left.other_changes + 1, 0, 0];
            let change = RequestedChange::Tokens(tokens);
            let merge = Request::Merge { on: ModelEndpoint::Main, version: None, uid: None, change };
            state.history.user_changes += u8::from(handle(state, &merge));
        }
        OperatorStep::LoseNode(slot) => {
            state.left.losses -= 1;
            state.nodes[usize::from(slot)] = 0;
        }
        OperatorStep::Resize => resize(model, state),
    }
}

/// Decides from the server's current state, and sends the first request.
fn decide(model: OperatorsModel, state: &mut OperatorsState, slot: Option<u8>) {
    let (from, generation, announced) = state.seen();
    let by = state.leader;
    if slot.is_none() && announced.is_some() && !model.lacks(OperatorFlaw::UnpairedCount) {
        // The count of a decision that removes no nodes must not meet the list of another decision.
        let request = list_request(model, generation, announced, None);
        state.phase = OperatorPhase::Waiting(Sent { by, decision: None, request });
        // It costs a decision, or it could go on forever.
        state.left.decisions -= 1;
        return;
    }
    state.left.decisions -= 1;
    let Some((which, place)) = (0..).zip(&mut state.decisions).find(|(_, place)| place.is_none()) else {
        return;
    };
    let uid = slot.map_or(0, |slot| state.nodes[usize::from(slot)]);
    let to = if slot.is_some() { from - 1 } else { from + 1 };
    let (user_writes_seen, user_changes_seen) = (state.history.user_writes, state.history.user_changes);
    let made_from = state.history.count_of;
    *place = Some(ModelDecision {
        by,
        from,
        to,
        generation,
        announced,
        slot,
        uid,
        user_writes_seen,
        user_changes_seen,
        made_from,
    });
    if slot.is_some() {
        let request = list_request(model, generation, announced, Some(which));
        state.phase = OperatorPhase::Waiting(Sent { by, decision: Some(which), request });
    } else {
        send_count(model, state, which);
    }
}

fn list_request(model: OperatorsModel, generation: i64, announced: Option<u8>, list: Option<u8>) -> Request {
    if model.lacks(OperatorFlaw::ForcedApply) {
        // The rest of the status is sent with it.
        let status = Status { ready: Some(3), list, ..Status::default() };
        Request::Apply { manager: Manager::Alpha, force: true, version: None, uid: None, status }
    } else {
        Request::PatchAtGeneration { generation, list: announced.into(), set: Set::List(list) }
    }
}

fn send_count(model: OperatorsModel, state: &mut OperatorsState, which: u8) {
    let Some(decision) = state.decision(which) else { return };
    let request = if model.lacks(OperatorFlaw::CountGuard) {
        let (test, operation) = (Test::Replicas(decision.from), ModelOperation::Add(decision.to));
        Request::JsonPatch { scale: true, test, operation }
    } else {
        let own = decision.slot.map(|_| which);
        let list = if model.lacks(OperatorFlaw::UnpairedCount) { ListTest::Nothing } else { own.into() };
        let set = Set::Replicas(decision.to);
        Request::PatchAtGeneration { generation: decision.generation, list, set }
    };
    state.phase = OperatorPhase::Waiting(Sent { by: decision.by, decision: Some(which), request });
}

fn is_count(request: &Request) -> bool {
    matches!(request, Request::JsonPatch { .. } | Request::PatchAtGeneration { set: Set::Replicas(_), .. })
}

/// Abandons the request in flight.
fn abandon(state: &mut OperatorsState) {
    if let OperatorPhase::Waiting(sent) = state.phase
        && let Some(place) = state.abandoned.iter_mut().find(|place| place.is_none())
    {
        *place = Some(sent);
    }
    state.phase = OperatorPhase::Idle;
}

/// The server handles an Autoscaler's request. Returns whether it was granted.
fn arrive(state: &mut OperatorsState, sent: Sent) -> bool {
    let (_, _, announced) = state.seen();
    let granted = handle(state, &sent.request);
    if !granted {
        return false;
    }
    match sent.decision.and_then(|which| Some((which, state.decision(which)?))) {
        Some((which, decision)) if is_count(&sent.request) => {
            state.count_by = Writer::Autoscaler;
            state.history.count_of = Some(which);
            state.history.user_write_undone |= state.history.user_writes > decision.user_writes_seen;
        }
        _ => {
            let author = |list: u8| state.decision(list).map(|decision| decision.by);
            state.history.list_replaced |= announced.and_then(author).is_some_and(|author| author > sent.by);
        }
    }
    true
}

/// The server handles any request. Returns whether it was granted.
fn handle(state: &mut OperatorsState, request: &Request) -> bool {
    let (server, answer) = state.server.answer(request);
    state.server = server;
    answer.reason == Reason::Success
}

/// A pass of the `NodePool` operator.
fn resize(model: OperatorsModel, state: &mut OperatorsState) {
    let (wanted, generation, list) = state.seen();
    while state.count() < wanted {
        let Some(free) = state.nodes.iter().position(|uid| *uid == 0) else { return };
        state.uids += 1;
        state.nodes[free] = state.uids;
    }
    if state.count() <= wanted {
        return;
    }
    let named = named(model, state, wanted, generation, list);
    if let Some((which, slot, decision)) = named {
        let node = state.nodes[slot];
        state.nodes[slot] = 0;
        let is_its_own = state.history.count_of == Some(which);
        let of_its_author = state.history.count_of.is_some() && decision.made_from == state.history.count_of;
        let was_made_from_it = of_its_author && decision.user_changes_seen == state.history.user_changes;
        state.history.list_used |= is_its_own;
        state.history.list_used_early |= !is_its_own;
        state.history.list_of_another_decision |= !is_its_own && !was_made_from_it;
        state.history.wrong_node |= node != decision.uid;
    }
    while state.count() > wanted {
        let Some(used) = state.nodes.iter().rposition(|uid| *uid != 0) else { return };
        state.nodes[used] = 0;
        state.history.removed_without_list = true;
        state.history.named_node_skipped |= names_a_remaining_node(state, list);
    }
}

/// The node that is removed by a list, if there is one: its decision, its slot, and the decision's details.
fn named(
    model: OperatorsModel,
    state: &OperatorsState,
    wanted: i32,
    generation: i64,
    list: Option<u8>,
) -> Option<(u8, usize, ModelDecision)> {
    let which = list?;
    let decision = state.decision(which)?;
    let slot = usize::from(decision.slot?);
    let by_writer = model.lacks(OperatorFlaw::AnyWriter) || state.count_by == Writer::Autoscaler;
    let of_this_spec = decision.generation == generation || model.lacks(OperatorFlaw::AnySpec);
    let at_this_count = decision.to == wanted || (of_this_spec && !model.lacks(OperatorFlaw::OwnCountOnly));
    let node = state.nodes[slot];
    let is_meant = node != 0 && (node == decision.uid || model.lacks(OperatorFlaw::SlotNames));
    (by_writer && at_this_count && is_meant).then_some((which, slot, decision))
}

/// Whether the author of the count has named an existing node: for this count, or later, based on the current spec.
fn names_a_remaining_node(state: &OperatorsState, list: Option<u8>) -> bool {
    let named = list.and_then(|which| state.decision(which));
    let stays = |decision: ModelDecision| {
        decision.slot.is_some_and(|slot| state.nodes[usize::from(slot)] == decision.uid)
    };
    let counts = |decision: &ModelDecision| {
        state.history.count_of == list || decision.user_changes_seen == state.history.user_changes
    };
    state.history.count_of.is_some() && named.filter(counts).is_some_and(stays)
}

//! What a rule says of a node, and what all of them say.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use super::question::Question;
use crate::assess::membership::Member;

/// Why a node goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// Its machine is gone, or going, behind the operator's back.
    MachineLost,
    /// It did not become Ready in time.
    NeverStarted,
    /// It has been unhealthy for too long, and its kubelet is silent.
    Unhealthy,
    /// It has been unhealthy for too long, and its kubelet answers.
    Ailing,
    /// It was made from another template, or is too old.
    OutOfDate,
    /// It is one too many.
    Excess,
}

/// The answer of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The node goes now.
    Go,
    /// It would go and stays for this reason, until this time where one is known.
    Wait(Hold, Option<Timestamp>),
    /// The rule is not about it.
    No,
}

/// Why a node stays that a rule would remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It has not been so for long enough.
    NotDue {
        /// Since when it has been.
        since: Timestamp,
        /// What it is, as the end of a sentence about it.
        why: String,
    },
    /// It has, and this keeps it.
    Held(String),
    /// It stays or goes on leaving for this reason, a sentence, which keeps no other node: where more is to be said, that is.
    Alone(String),
}

/// A rule: the ground, and the question whether it holds for a node.
pub(crate) struct Rule {
    /// Why a node goes of which the answer is [`Verdict::Go`].
    pub ground: Ground,
    /// The question.
    pub ask: fn(&mut Question<'_>, &Member) -> Verdict,
}

/// A node that stays although a rule would remove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Its name.
    pub node: String,
    /// The ground of the rule.
    pub ground: Ground,
    /// Why it stays.
    pub hold: Hold,
    /// Until when, where that is known.
    pub until: Option<Timestamp>,
}

/// What the rules say of all nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Removals {
    go: BTreeMap<String, Ground>,
    /// In the order in which the rules said so.
    pub(crate) waits: Vec<Waiting>,
}

impl Removals {
    /// Asks each rule in turn about all nodes. One that goes by an earlier rule is not asked about again.
    pub(crate) fn ask(&mut self, rules: &[Rule], question: &mut Question<'_>, members: &[Member]) {
        for Rule { ground, ask } in rules {
            for member in members {
                if self.go.contains_key(member.name()) {
                    continue;
                }
                match ask(question, member) {
                    Verdict::Go => {
                        self.go.insert(member.name().to_owned(), *ground);
                    }
                    Verdict::Wait(hold, until) => {
                        let node = member.name().to_owned();
                        self.waits.push(Waiting { node, ground: *ground, hold, until });
                    }
                    Verdict::No => {}
                }
            }
        }
    }

    /// Why the node goes; `None` for one that stays.
    pub(crate) fn ground(&self, node: &str) -> Option<Ground> {
        self.go.get(node).copied()
    }

    /// The names of the nodes that go.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.go.keys().cloned().collect()
    }

    /// Why nodes stay although a rule would remove them, by name, in the words of the first such rule.
    pub(crate) fn reasons_to_stay(&self) -> BTreeMap<&str, &str> {
        let mut reasons = BTreeMap::new();
        for Waiting { node, hold, .. } in self.waits.iter().filter(|it| self.ground(&it.node).is_none()) {
            let (Hold::NotDue { why, .. } | Hold::Held(why) | Hold::Alone(why)) = hold;
            reasons.entry(&**node).or_insert(&**why);
        }
        reasons
    }
}

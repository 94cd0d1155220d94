//! The rules, asked about all nodes, and what they say together.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use super::question::Question;
use super::verdict::{Ground, Hold, Verdict};
use crate::assess::membership::Member;

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

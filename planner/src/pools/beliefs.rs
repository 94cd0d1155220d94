//! For how long is believed what keeps pods away from new nodes of a pool: the one rule for all of it. It ends some time after the
//! last node that has shown it, since the provider may have got other machines, or what was broken may work again. Then one more
//! node is tried. If that shows it again, it is believed for twice as long: else the pool would grow for the same pod every hour
//! for ever. A node that is up without it ends it at once, and the next time is the first again; so does another template.
//!
//! It is remembered in `status.autoscaling.discovered.beliefs`. Of amounts and pods an entry only says how often they were tried
//! anew, as they have a place of their own there; taints are nowhere else.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use shared_crds::v1alpha1::{BeliefKind, DiscoveredBelief};

use crate::requirements::node_profile::RepellingTaint;
use crate::steps;
use crate::time::later;

/// How long in seconds is believed what is learnt for the first time. Long against the ten minutes after which an unneeded node
/// goes, so that a pod that never fits costs little.
pub(crate) const BELIEVED_SECONDS: i32 = 3600;

/// The longest time: a cause that is mended is noticed within a day.
const MOST_SECONDS: i32 = 24 * 3600;

/// From so many times on it is that.
const MOST_TIMES: i32 = 5;

/// `maxItems` of `status.autoscaling.discovered.beliefs`.
const MAX_BELIEFS: usize = 64;

/// How long in seconds is believed what was learnt again so many times.
fn seconds(times: i32) -> i32 {
    (BELIEVED_SECONDS << times.clamp(0, MOST_TIMES)).min(MOST_SECONDS)
}

/// How long in seconds an amount or pods are believed after the last node.
pub(crate) fn seconds_of(beliefs: &[DiscoveredBelief], kind: BeliefKind, name: &str) -> i32 {
    seconds(found(beliefs, kind, name).map_or(0, |known| known.times))
}

/// Whether an amount or pods were believed, and are no longer.
pub(crate) fn has_ended(beliefs: &[DiscoveredBelief], kind: BeliefKind, name: &str) -> bool {
    found(beliefs, kind, name).is_some_and(|known| known.until_time.is_some())
}

/// Records that an amount or pods are no longer believed from a time on.
pub(crate) fn end(beliefs: &mut Vec<DiscoveredBelief>, kind: BeliefKind, name: &str, at: Timestamp) {
    let until_time = Some(Time(at));
    if let Some(known) = beliefs.iter_mut().find(|known| known.kind == kind && known.name == name) {
        known.until_time = until_time;
    } else if beliefs.len() < MAX_BELIEFS {
        let (value, effect) = (String::new(), String::new());
        beliefs.push(DiscoveredBelief { kind, name: name.to_owned(), value, effect, times: 0, until_time });
    }
}

/// Records that nodes show an amount or pods.
pub(crate) fn learn(beliefs: &mut [DiscoveredBelief], kind: BeliefKind, name: &str) {
    let known = beliefs.iter_mut().find(|known| known.kind == kind && known.name == name);
    if let Some(known) = known.filter(|known| known.until_time.is_some()) {
        known.times = once_more(known.times);
        known.until_time = None;
    }
}

fn found<'a>(beliefs: &'a [DiscoveredBelief], kind: BeliefKind, name: &str) -> Option<&'a DiscoveredBelief> {
    beliefs.iter().find(|known| known.kind == kind && known.name == name)
}

const fn once_more(times: i32) -> i32 {
    if times < MOST_TIMES { times + 1 } else { MOST_TIMES }
}

/// The taints of one kind that the nodes of a pool show now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaintLesson<'a> {
    /// Of which kind they are.
    pub kind: BeliefKind,
    /// Those that all these nodes have.
    pub shown: &'a [RepellingTaint],
    /// When the provisioning timeout of the youngest of the nodes ends; `None` if its age is unknown, or there is none. They are
    /// believed for a while from then on: what older nodes have, they may have got later.
    pub from: Option<Timestamp>,
    /// Whether the nodes show enough to remember a taint for the first time.
    pub is_enough: bool,
    /// The time of the pass.
    pub now: Timestamp,
}

impl TaintLesson<'_> {
    /// Brings what is remembered up to date, and returns the taints that are believed, and until when each is. `is_refuted` says
    /// of which taints a node shows that a new one need not have them.
    pub(crate) fn renew(
        &self,
        beliefs: &mut Vec<DiscoveredBelief>,
        is_refuted: impl Fn(&RepellingTaint) -> bool,
    ) -> Vec<(RepellingTaint, Timestamp)> {
        steps::count(beliefs.len() * (1 + self.shown.len()));
        beliefs.retain(|known| known.kind != self.kind || !is_refuted(&taint_of(known)));
        if let Some(from) = self.from {
            self.shown.iter().for_each(|taint| self.learn(taint, from, beliefs));
        }
        let believed = |known: &DiscoveredBelief| {
            let until = known.until_time.as_ref()?.0;
            (known.kind == self.kind && until > self.now).then(|| (taint_of(known), until))
        };
        beliefs.iter().filter_map(believed).collect()
    }

    fn learn(&self, taint: &RepellingTaint, from: Timestamp, beliefs: &mut Vec<DiscoveredBelief>) {
        let RepellingTaint { key, value, effect } = taint;
        let is_it = |known: &&mut DiscoveredBelief| known.kind == self.kind && taint_of(known) == *taint;
        if let Some(known) = beliefs.iter_mut().find(is_it) {
            let until = known.until_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
            let times = if until > self.now { known.times } else { once_more(known.times) };
            let longer = later(from, seconds(times));
            // Nodes from before it ended have shown it already.
            let is_news = until > self.now || from > until;
            if is_news && longer > until.max(self.now) {
                (known.times, known.until_time) = (times, Some(Time(longer)));
            }
            return;
        }
        let until = later(from, BELIEVED_SECONDS);
        if self.is_enough && until > self.now && beliefs.len() < MAX_BELIEFS {
            beliefs.push(DiscoveredBelief {
                kind: self.kind,
                name: key.clone(),
                value: value.clone(),
                effect: effect.clone(),
                times: 0,
                until_time: Some(Time(until)),
            });
        }
    }
}

fn taint_of(known: &DiscoveredBelief) -> RepellingTaint {
    let DiscoveredBelief { kind: _, name, value, effect, times: _, until_time: _ } = known;
    RepellingTaint { key: name.clone(), value: value.clone(), effect: effect.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    fn time(hours: i64) -> Timestamp {
        Timestamp::from_second(1_767_268_800 + hours * HOUR).unwrap()
    }

    #[test]
    fn the_time_doubles_from_an_hour_to_a_day() {
        let hours = [-1, 0, 1, 2, 3, 4, 5, 6, i32::MAX].map(|times| seconds(times) / 3600);
        assert_eq!(hours, [1, 1, 2, 4, 8, 16, 24, 24, 24]);
    }

    #[test]
    fn amounts_that_were_no_longer_believed_count_as_learnt_again_once() {
        let (kind, name) = (BeliefKind::Resource, "cpu");
        let mut beliefs = Vec::new();
        learn(&mut beliefs, kind, name);
        assert!(beliefs.is_empty(), "the first time there is nothing to count");
        for (times, hours) in [(1, 2), (2, 4), (3, 8), (4, 16), (5, 24), (5, 24)] {
            end(&mut beliefs, kind, name, time(0));
            assert!(has_ended(&beliefs, kind, name));
            learn(&mut beliefs, kind, name);
            learn(&mut beliefs, kind, name);
            assert!(!has_ended(&beliefs, kind, name));
            assert_eq!((beliefs[0].times, seconds_of(&beliefs, kind, name) / 3600), (times, hours));
        }
        assert_eq!(seconds_of(&beliefs, BeliefKind::Pods, ""), BELIEVED_SECONDS, "another one");
    }

    /// What is remembered when nodes whose timeout ends at `from` show the taint at `now`, in hours: how often it was learnt again,
    /// and for how many hours more it is believed.
    fn shown(beliefs: &mut Vec<DiscoveredBelief>, from: i64, now: i64) -> Option<(i32, i64)> {
        let taint =
            RepellingTaint { key: "k".to_owned(), value: "v".to_owned(), effect: "NoExecute".to_owned() };
        let shown = std::slice::from_ref(&taint);
        let kind = BeliefKind::Taint;
        let lesson = TaintLesson { kind, shown, from: Some(time(from)), is_enough: true, now: time(now) };
        let believed = lesson.renew(beliefs, |_| false);
        let (its, until) = believed.first()?;
        assert_eq!((its, believed.len()), (&taint, 1));
        Some((beliefs[0].times, (until.as_second() - time(now).as_second()) / HOUR))
    }

    #[test]
    fn a_taint_is_believed_for_longer_each_time_that_a_later_node_shows_it_again() {
        let mut beliefs = Vec::new();
        assert_eq!(shown(&mut beliefs, -1, 0), None, "old nodes may have got it later");
        assert!(beliefs.is_empty());
        assert_eq!(shown(&mut beliefs, 0, 0), Some((0, 1)));
        assert_eq!(shown(&mut beliefs, 0, 1), None, "it ends, and the same node shows nothing more");
        assert_eq!(shown(&mut beliefs, 1, 2), None, "nor does one from before it ended");
        assert_eq!(shown(&mut beliefs, 2, 2), Some((1, 2)));
        assert_eq!(shown(&mut beliefs, 3, 3), Some((1, 2)), "one more node beside it: not again, but later");
        assert_eq!(shown(&mut beliefs, 6, 6), Some((2, 4)));
        for (now, expected) in [(11, (3, 8)), (20, (4, 16)), (37, (5, 24)), (62, (5, 24))] {
            assert_eq!(shown(&mut beliefs, now, now), Some(expected));
        }
    }

    #[test]
    fn a_taint_outlives_its_nodes_and_ends_with_one_that_does_not_have_it() {
        let mut beliefs = Vec::new();
        assert_eq!(shown(&mut beliefs, 0, 0), Some((0, 1)));
        let none = |kind| TaintLesson { kind, shown: &[], from: None, is_enough: false, now: time(0) };
        assert_eq!(none(BeliefKind::Taint).renew(&mut beliefs, |_| false).len(), 1);
        assert_eq!(none(BeliefKind::StartupTaint).renew(&mut beliefs, |_| true).len(), 0);
        assert_eq!(beliefs.len(), 1, "of another kind");
        assert_eq!(none(BeliefKind::Taint).renew(&mut beliefs, |_| true).len(), 0);
        assert!(beliefs.is_empty());
    }

    #[test]
    fn what_too_few_nodes_show_is_learnt_only_again() {
        let mut beliefs = Vec::new();
        let taint =
            RepellingTaint { key: "k".to_owned(), value: String::new(), effect: "NoSchedule".to_owned() };
        let shown = [taint];
        let lesson = |is_enough, now| TaintLesson {
            kind: BeliefKind::Taint,
            shown: &shown,
            from: Some(time(now)),
            is_enough,
            now: time(now),
        };
        assert!(lesson(false, 0).renew(&mut beliefs, |_| false).is_empty());
        assert_eq!(lesson(true, 0).renew(&mut beliefs, |_| false).len(), 1);
        assert_eq!(lesson(false, 2).renew(&mut beliefs, |_| false), [(shown[0].clone(), time(4))]);
    }
}

//! Judges whether the replicas of an operator led one after the other: by the holders that its lease had, and by what each replica wrote.

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

use crate::audit::{Event, ObjectKey};
use crate::operators::OperatorKind;

/// What one replica wrote for as long as it held the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderTerm {
    /// The replica's Pod.
    pub pod: String,
    /// How many writes it sent, whatever the answer. Those to the lease tell who leads, and events change nothing: neither counts.
    pub writes: usize,
    /// When the last of these was answered.
    last: Option<Timestamp>,
}

impl LeaderTerm {
    /// The terms of an operator, in their order. `events` must contain all that it wrote since before its first replica took `lease`.
    ///
    /// # Errors
    /// When a replica sent a write while it did not hold the lease, or one that may have been stored after another replica's.
    pub fn all(events: &[Event], lease: &ObjectKey, operator: OperatorKind) -> Result<Vec<Self>> {
        let sent = events.iter().filter(|event| event.is_write());
        let mut sent: Vec<_> =
            sent.filter_map(|event| Some((pod(event, operator)?, event.object.as_ref()?, event))).collect();
        // Requests are logged when they are answered.
        sent.sort_by_key(|(_, _, event)| event.received);
        let mut terms: Vec<Self> = Vec::new();
        // When the last write of the replicas that held the lease before was answered.
        let mut before: Option<Timestamp> = None;
        for (pod, object, event) in sent {
            if object == lease {
                let holder =
                    holder(event).filter(|holder| terms.last().is_none_or(|term| term.pod != *holder));
                if let Some(holder) = holder {
                    before = before.max(terms.last().and_then(|term| term.last));
                    terms.push(Self { pod: holder.to_owned(), writes: 0, last: None });
                }
            } else if !matches!(&*object.resource, "leases" | "events") {
                let Event { verb, received, completed, .. } = event;
                let wrote = || format!("{pod}, {received}: {verb} {}/{}", object.resource, object.name);
                let term =
                    terms.last_mut().with_context(|| format!("{}: no replica held the lease", wrote()))?;
                ensure!(term.pod == pod, "{}: the lease was held by {}", wrote(), term.pod);
                ensure!(
                    before.is_none_or(|before| before < *received),
                    "{}: a write of a former leader was not answered yet",
                    wrote()
                );
                term.writes += 1;
                term.last = term.last.max(Some(*completed));
            }
        }
        Ok(terms)
    }
}

/// The Pod of the replica that sent the request; `None` if it was no Pod of this operator.
fn pod(event: &Event, operator: OperatorKind) -> Option<&str> {
    let (program, rest) = event.user_agent.split_once('/')?;
    let (_, pod) = rest.split_once('(')?;
    (program == operator.name()).then_some(pod.trim_end_matches(')'))
}

/// The Pod that holds the lease after this write; `None` if the write failed, or released the lease.
fn holder(event: &Event) -> Option<&str> {
    let written = event.response.as_ref().filter(|_| event.succeeded())?;
    // What follows the underscore is another one after each start of the process.
    let pod = written.pointer("/spec/holderIdentity")?.as_str()?.split('_').next()?;
    Some(pod).filter(|pod| !pod.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::audit::tests::Wrote;

    fn lease() -> ObjectKey {
        let [group, resource, namespace, name] =
            ["coordination.k8s.io", "leases", "n", "tandem-nodepool-operator"].map(str::to_owned);
        ObjectKey { group, resource, namespace, name }
    }

    /// A write of a Pod of the `NodePool` operator to a pool, answered after 10 ms.
    fn writes(pod: &str, at: i64) -> Event {
        let wrote = Wrote {
            user: "system:serviceaccount:n:tandem-nodepool-operator",
            verb: "update",
            subresource: "",
            request: json!({}),
            code: 200,
            response: json!({}),
            at,
        };
        let event = wrote.event();
        let completed = event.received.checked_add(jiff::SignedDuration::from_millis(10)).unwrap();
        Event { user_agent: format!("nodepool-operator/0.1.0 ({pod})"), completed, ..event }
    }

    /// A write to the lease, after which `holder` has it.
    fn leases(pod: &str, holder: &str, at: i64) -> Event {
        let response = Some(json!({ "spec": { "holderIdentity": holder } }));
        Event { object: Some(lease()), response, ..writes(pod, at) }
    }

    fn of(mut events: Vec<Event>) -> Result<Vec<(String, usize)>> {
        events.reverse();
        let terms = LeaderTerm::all(&events, &lease(), OperatorKind::NodePool)?;
        Ok(terms.into_iter().map(|term| (term.pod, term.writes)).collect())
    }

    /// `a` leads, and then `b`.
    fn handed_over() -> Vec<Event> {
        vec![
            leases("a", "a_1", 0),
            writes("a", 100),
            leases("a", "a_1", 2_000),
            writes("a", 2_100),
            leases("a", "", 2_200),
            leases("b", "b_1", 3_000),
            writes("b", 3_100),
        ]
    }

    fn with(event: Event) -> Result<Vec<(String, usize)>> {
        let mut events = handed_over();
        events.push(event);
        of(events)
    }

    #[test]
    fn replicas_that_lead_one_after_the_other_break_no_rule() {
        let expected = [("a".to_owned(), 2), ("b".to_owned(), 1)];
        assert_eq!(of(handed_over()).unwrap(), expected);
        // Nor does one that leads again, after its process was started again.
        let mut again = handed_over();
        again.extend([leases("b", "", 4_000), leases("a", "a_2", 5_000), writes("a", 5_100)]);
        assert_eq!(of(again).unwrap()[2..], [("a".to_owned(), 1)]);
    }

    #[test]
    fn a_former_leader_that_writes_again_is_named() {
        let late = with(writes("a", 3_200)).unwrap_err().to_string();
        assert!(late.starts_with("a, ") && late.ends_with("the lease was held by b"), "{late}");
        // Also before the new leader has written, and if the answer is a conflict.
        assert!(with(writes("a", 3_050)).is_err());
        assert!(with(Event { code: 409, ..writes("a", 3_200) }).is_err());
    }

    #[test]
    fn a_standby_that_writes_is_named() {
        let early = with(writes("b", 1_000)).unwrap_err().to_string();
        assert!(early.starts_with("b, ") && early.ends_with("the lease was held by a"), "{early}");
        let without = with(writes("c", -100)).unwrap_err().to_string();
        assert!(without.ends_with("no replica held the lease"), "{without}");
    }

    #[test]
    fn a_write_that_is_answered_only_after_one_of_the_next_leader_is_noticed() {
        let slow = writes("a", 2_150);
        let completed = |at| writes("b", at).received;
        // The next leader has the lease, and has written nothing yet.
        with(Event { completed: completed(3_050), ..slow.clone() }).unwrap();
        let overlaps = with(Event { completed: completed(3_150), ..slow }).unwrap_err().to_string();
        assert!(overlaps.ends_with("a write of a former leader was not answered yet"), "{overlaps}");
    }

    #[test]
    fn what_is_no_work_of_a_leader_does_not_count() {
        let all = of(handed_over()).unwrap();
        let late = writes("a", 3_200);
        let read = Event { verb: "get".into(), ..late.clone() };
        let of_another = Event { user_agent: "autoscaler-operator/0.1.0 (a)".into(), ..late.clone() };
        let of_a_user = Event { user_agent: "kubectl/v1.36.0 (linux/amd64)".into(), ..late.clone() };
        let event = ObjectKey { resource: "events".into(), ..lease() };
        let reported = Event { object: Some(event), ..late };
        // A replica that was too late for the lease.
        let refused = Event { code: 409, ..leases("a", "a_1", 3_200) };
        for other in [read, of_another, of_a_user, reported, refused] {
            assert_eq!(with(other).unwrap(), all);
        }
    }
}

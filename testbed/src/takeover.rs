//! Judges a takeover of a lease by the requests of the replica that took it: whether it waited for the duration of the lease, and then took
//! it at its first attempt. How long that takes depends on the machine; which attempt it was does not.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

use crate::audit::{Event, ObjectKey};

/// A read of the lease by the replica that took it in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempt {
    received: Timestamp,
    completed: Timestamp,
}

/// How a replica took a lease that its holder had not renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// From the last renewal to the write that took the lease.
    pub took: Duration,
    /// The reads of the replica that took it, from the first after the last renewal to the one before its write.
    attempts: Vec<Attempt>,
}

impl Takeover {
    /// Finds the takeover of `lease` from the holder with this identity. `events` must contain all requests for the lease since then.
    ///
    /// # Errors
    /// When there is no renewal by that holder, or none other has taken the lease (yet).
    pub fn of(events: &[Event], lease: &ObjectKey, old: &str) -> Result<Self> {
        let mut of_lease: Vec<&Event> =
            events.iter().filter(|event| event.object.as_ref() == Some(lease) && event.succeeded()).collect();
        of_lease.sort_by_key(|event| event.received);
        let renewed = of_lease.iter().rposition(|event| holder(event) == Some(old));
        let renewed = renewed.with_context(|| format!("{old} has not renewed the lease"))?;
        let (renewal, later) = (of_lease[renewed], &of_lease[renewed..]);
        let taken = later.iter().find(|event| holder(event).is_some_and(|by| !by.is_empty() && by != old));
        let taken = taken.context("no other replica has taken the lease")?;
        let seen_after = |event: &&&Event| {
            event.verb == "get"
                && event.user_agent == taken.user_agent
                && event.received >= renewal.completed
                && event.completed <= taken.received
        };
        let attempt = |event: &&Event| Attempt { received: event.received, completed: event.completed };
        let attempts = later.iter().filter(seen_after).map(attempt).collect();
        Ok(Self { took: between(renewal.received, taken.received), attempts })
    }

    /// Checks that the replica took the lease when it had seen the same renewal for `duration`, and at its first attempt after that; and
    /// that it waited for at least `retry` between two attempts, and mostly for no longer than `longest`.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn check(&self, duration: Duration, retry: Duration, longest: Duration) -> Result<()> {
        ensure!(self.took >= duration, "the lease was taken {:?} after its last renewal", self.took);
        let pauses = self.attempts.windows(2).map(|pair| between(pair[0].completed, pair[1].received));
        let mut pauses: Vec<Duration> = pauses.collect();
        pauses.sort_unstable();
        let (Some(shortest), Some(median)) = (pauses.first(), pauses.get(pauses.len() / 2)) else {
            anyhow::bail!("there were not two attempts: {self:?}");
        };
        ensure!(*shortest >= retry, "an attempt came {shortest:?} after the one before: {self:?}");
        ensure!(*median <= longest, "attempts came {median:?} after one another: {self:?}");
        // The replica judges after an answer, and waits before it asks again: so it had seen the renewal by then.
        let seen = self.attempts[1].received.checked_sub(jiff::SignedDuration::try_from(retry)?)?;
        let failed = self.attempts[self.attempts.len() - 2].completed;
        let waited = between(seen, failed);
        ensure!(
            waited < duration,
            "an attempt {waited:?} after the renewal had been seen did not take the lease: {self:?}"
        );
        Ok(())
    }
}

/// Who holds the lease after this write; `None` if it was no write of the holder.
fn holder(event: &Event) -> Option<&str> {
    let written = event.response.as_ref().filter(|_| event.is_write())?;
    written.pointer("/spec/holderIdentity")?.as_str()
}

/// Zero where `to` is before `from`.
fn between(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::audit::tests::Wrote;

    fn lease() -> ObjectKey {
        let [group, resource] = ["coordination.k8s.io", "leases"].map(str::to_owned);
        ObjectKey { group, resource, namespace: "n".into(), name: "l".into() }
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_000_000 + millis).unwrap()
    }

    fn request(verb: &'static str, agent: &str, holder: Option<&str>, received: i64) -> Event {
        let user = "system:serviceaccount:n:operator";
        let (request, response) = (json!({}), json!({ "spec": { "holderIdentity": holder } }));
        let event = Wrote { user, verb, subresource: "", request, code: 200, response, at: 0 }.event();
        Event {
            object: Some(lease()),
            user_agent: agent.into(),
            received: at(received),
            completed: at(received + 50),
            ..event
        }
    }

    /// The last renewal at 0; another replica reads at these times, and writes 100 ms after the last.
    fn taken(reads: &[i64]) -> Result<Takeover> {
        let mut events = vec![
            request("update", "old", Some("old_1"), -2_000),
            request("get", "new", None, -1_000),
            request("update", "old", Some("old_1"), 0),
            request("get", "third", None, 15_900),
        ];
        events.extend(reads.iter().map(|read| request("get", "new", None, *read)));
        let last = reads.last().copied().unwrap_or(0);
        events.push(request("update", "new", Some("new_1"), last + 100));
        // Requests are logged when they are answered.
        events.reverse();
        Takeover::of(&events, &lease(), "old_1")
    }

    fn check(reads: &[i64]) -> Result<()> {
        let seconds = Duration::from_secs;
        taken(reads)?.check(seconds(15), seconds(2), Duration::from_millis(4_400))
    }

    #[test]
    fn the_first_attempt_after_the_duration_has_to_take_the_lease() {
        check(&[4_000, 8_000, 12_000, 16_000, 20_000]).unwrap();
        let late = check(&[1_000, 5_000, 9_000, 13_000, 17_000, 19_500, 22_000]).unwrap_err();
        assert!(late.to_string().contains("did not take the lease"), "{late}");
    }

    #[test]
    fn a_machine_that_holds_one_attempt_up_breaks_no_rule() {
        check(&[4_300, 8_500, 12_500, 16_900, 28_000]).unwrap();
    }

    #[test]
    fn a_lease_is_not_taken_before_its_duration_is_over() {
        let early = check(&[3_000, 6_000, 9_000, 12_000]).unwrap_err();
        assert!(early.to_string().contains("after its last renewal"), "{early}");
    }

    #[test]
    fn attempts_that_are_too_rare_or_too_frequent_are_noticed() {
        let rare = check(&[9_000, 18_000, 27_000]).unwrap_err();
        assert!(rare.to_string().contains("after one another"), "{rare}");
        let frequent = check(&[4_000, 8_000, 9_000, 12_000, 16_000, 20_000]).unwrap_err();
        assert!(frequent.to_string().contains("after the one before"), "{frequent}");
    }

    #[test]
    fn without_a_renewal_or_another_holder_there_is_no_takeover() {
        assert!(Takeover::of(&[], &lease(), "old_1").is_err());
        let alone = [request("update", "old", Some("old_1"), 0), request("get", "new", None, 4_000)];
        assert!(Takeover::of(&alone, &lease(), "old_1").is_err());
        assert!(check(&[16_000]).unwrap_err().to_string().contains("two attempts"));
    }
}

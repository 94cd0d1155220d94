//! One run in which the operator is killed after every write, and one after every other one: what both leave is compared with
//! what an undisturbed run leaves, and with what the audit log says of each.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::crashable::Crashable;
use super::kill::{CrashPoints, Lives, crashing};
use super::maker::NodeMaker;
use super::work::Work;
use super::writes;
use crate::audit::Event;
use crate::end_state::EndState;
use crate::operators::OperatorKind;
use crate::waiting;

/// What work did to Nodes and pods, as the audit log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Effects {
    /// How many nodes of the pool were made.
    made: usize,
    /// How many of them the operator has deleted.
    deleted: usize,
    /// How many pods of its workload are gone.
    pods: usize,
}

/// What each run with kills is compared with.
struct Undisturbed<'a> {
    work: Work,
    maker: NodeMaker,
    state: &'a EndState,
    effects: Effects,
}

impl Effects {
    fn of(events: &[Event], pool: &str) -> Self {
        let names = |verb: &str, resource: &str, subresource: &str, is_meant: fn(&Event) -> bool| {
            let done =
                events.iter().filter(|event| event.succeeded() && event.verb == verb && is_meant(event));
            let names = done.filter(|event| event.subresource == subresource).filter_map(|event| {
                let object = event.object.as_ref().filter(|object| object.resource == resource)?;
                let in_body =
                    event.request.as_ref().and_then(|body| body.pointer("/metadata/name")?.as_str());
                Some(in_body.unwrap_or(&object.name).to_owned())
            });
            names.filter(|name| name.contains(&format!("{pool}-"))).collect::<Vec<String>>()
        };
        let by_any = |_: &Event| true;
        // Several may delete a pod.
        let pods = [names("create", "pods", "eviction", by_any), names("delete", "pods", "", by_any)];
        let pods: BTreeSet<String> = pods.concat().into_iter().collect();
        Self {
            made: names("create", "nodes", "", by_any).len(),
            // Cluster API also deletes the Node of a machine that has gone, when the operator has.
            deleted: names("delete", "nodes", "", is_own).len(),
            pods: pods.len(),
        }
    }
}

fn is_own(event: &Event) -> bool {
    OperatorKind::NodePool.has_sent(event, 0)
}

/// The writes of the `NodePool` operator that were granted, without those that change nothing it works from.
fn granted(events: &[Event]) -> usize {
    let uncounted = ["events", "leases", "selfsubjectaccessreviews"];
    let is_counted = |event: &&Event| {
        let object = event.object.as_ref();
        object.is_some_and(|object| !uncounted.contains(&object.resource.as_str()))
    };
    let writes = events.iter().filter(|event| event.is_write() && event.succeeded());
    writes.filter(|event| is_own(event)).filter(is_counted).count()
}

/// Does `work` on a pool undisturbed, and then on other pools while the operator is killed.
///
/// # Errors
/// When it does not end, or not as the undisturbed one, or the operator was not killed after each of the writes that it takes.
pub async fn ends_as_if_undisturbed(prefix: &str, maker: NodeMaker, work: Work) -> Result<()> {
    let test = Crashable::begin(prefix, maker).await?;
    let audit = test.env.audit()?;
    // A test that failed before leaves pools of the names that it used.
    let calm = &format!("{prefix}-undisturbed");
    work.prepare(&test, calm).await?;
    let began = audit.end()?;
    work.carry_out(&test, calm).await?;
    let state = &test.at_rest(calm, None).await?;
    let effects = Effects::of(&audit.follow_from(began).read_new()?, calm);
    let undisturbed = Undisturbed { work, maker, state, effects };

    for (name, writes) in [("every-write", 1), ("every-other", 2)] {
        undisturbed.compare(&test, &format!("{prefix}-{name}"), writes).await?;
        waiting::gets_on();
    }
    // None of the lives has touched it.
    test.state(calm).await?.check(state)?;
    test.end().await
}

impl Undisturbed<'_> {
    /// Does the same on `pool`, and kills the operator each time it has made so many `writes`.
    async fn compare(&self, test: &Crashable, pool: &str, writes: usize) -> Result<()> {
        self.work.prepare(test, pool).await?;
        test.quiet().await;
        let audit = test.env.audit()?;
        let began = audit.end()?;
        // Each change of a machine is a write, too.
        let machines = test.machines.as_ref().filter(|_| writes == 1);
        let disturbed = async {
            self.work.carry_out(test, pool).await?;
            test.at_rest(pool, Some(self.state)).await
        };
        let operator = &test.env.operators.node_pool;
        let points = CrashPoints { writes, machines };
        let done = crashing(operator, &test.proxy, points, disturbed).await;
        let (_, lives) = done.map_err(|error| error.context(operator.log_tail()))?;
        show(pool, &lives);

        // The audit log says so, too: there was no write after which the operator was not killed.
        ensure!(lives.killed.iter().all(|life| life.writes.len() <= writes), "{lives:#?}");
        ensure!(lives.rest.len() < writes, "{lives:#?}");
        let events = audit.follow_from(began).read_new()?;
        let (granted, counted) = (granted(&events), lives.writes());
        ensure!(granted == counted, "{granted} writes were granted, and {counted} were counted: {lives:#?}");
        let (effects, usual) = (Effects::of(&events, pool), self.effects);
        ensure!(effects == usual, "{effects:?} instead of {usual:?}");
        let kills = lives.kills();
        for (write, least) in writes::of(self.work, self.maker).into_iter().filter(|_| writes == 1) {
            let count = kills.get(write).copied().unwrap_or_default();
            ensure!(count >= least, "killed {count} times after {write}, not {least}: {kills:#?}");
        }
        Ok(())
    }
}

/// Says after which writes it was killed, for those who look into it.
fn show(what: &str, lives: &Lives) {
    println!("{what}: killed {} times, after", lives.killed.len());
    for (write, count) in lives.kills() {
        println!("{count:>6} {write}");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::audit::parse;

    fn event(verb: &str, resource: &str, name: &str, user_agent: &str) -> Event {
        let line = json!({
            "stage": "ResponseComplete", "verb": verb, "requestURI": "/", "user": {"username": "u"},
            "userAgent": user_agent, "objectRef": {"resource": resource, "name": name},
            "responseStatus": {"code": 200},
            "requestReceivedTimestamp": "2026-11-21T03:00:00Z", "stageTimestamp": "2026-11-21T03:00:00Z",
        });
        parse(&line.to_string()).unwrap().unwrap()
    }

    #[test]
    fn a_node_that_cluster_api_deletes_after_the_operator_counts_once_and_is_no_write_of_the_operator() {
        let operator = "nodepool-operator/0.1 (nodepool-operator-0)";
        let events = [
            event("create", "nodes", "p-a-b", "kubelets"),
            event("delete", "nodes", "p-a-b", operator),
            event("delete", "nodes", "p-a-b", "manager"),
            event("delete", "nodes", "other-a-b", operator),
            event("update", "leases", "l", operator),
        ];
        assert_eq!(Effects::of(&events, "p"), Effects { made: 1, deleted: 1, pods: 0 });
        assert_eq!(granted(&events), 2);
    }
}

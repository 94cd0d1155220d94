//! The steps of the demo: load is added and nodes are created; a user requests too many replicas and is rejected; load is
//! removed and nodes are removed. Where machines are made, the operator that has them removed is killed meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use shared_crds::names::MACHINE_LABEL;

use super::machinery::MachineStates;
use super::maker::Story;
use super::names::{NAMESPACE, NODE_POOL_OPERATOR, POOL};
use super::setup::Setup;
use super::state::{ClusterState, StateReader, tally};
use super::{DemoOptions, Screen};
use crate::audit::Event;

/// Longest delay between an answer and its line in the audit log, on a machine that is busy.
const LOGGED: Duration = Duration::from_secs(60);

pub(super) async fn run(screen: &Screen, setup: &mut Setup, options: &DemoOptions) -> Result<()> {
    let reader = StateReader::new(setup.cluster.client().await?);
    let Story { pods, first, more, few, most } = setup.maker.story();

    screen.part(&format!("A Deployment that does not fit: {first} {pods}; there is no node"));
    scale(setup, first).await?;
    let what = format!("{first} pods run");
    reader.watch(screen, setup, &what, |state| state.running == first && state.settled()).await?;
    setup.show_machines().await?;

    screen.part(&format!("More load: {more} pods"));
    scale(setup, more).await?;
    let what = format!("{more} pods run");
    let full = reader.watch(screen, setup, &what, |state| state.running == more && state.settled()).await?;
    Screen::quote(&setup.cluster.kubectl(&["get", "npool,npa", "--namespace", NAMESPACE]).await?);

    screen.part("A user asks for more than the pool allows");
    let pool = format!("npool/{POOL}");
    let asked = ["scale", &pool, "--namespace", NAMESPACE, "--replicas=99"];
    match setup.cluster.kubectl(&asked).await {
        Ok(_) => bail!("the API server accepted 99 replicas in a pool of at most {most}"),
        Err(refused) => Screen::quote(&format!("{refused:#}")),
    }

    let is_less = |state: &ClusterState| state.running == few && state.nodes < full.nodes && state.settled();
    let is_nothing = |state: &ClusterState| state.running == 0 && state.nodes == 0 && state.settled();
    let what = format!("{few} pods run on few nodes");
    if let Some(before) = &full.machines {
        screen.part("The load goes, and nodepool-operator is killed while nodes are drained");
        let mark = audit_end(setup)?;
        scale(setup, few).await?;
        reader.watch(screen, setup, "a node is drained", |state| state.leaving > 0).await?;
        setup.kill_node_pool_operator(screen).await?;
        let left = reader.watch(screen, setup, &what, is_less).await?.machines.unwrap_or_default();
        check_removed(screen, setup, mark, before, &left).await?;

        screen.part("The rest of the load goes");
        let mark = audit_end(setup)?;
        scale(setup, 0).await?;
        reader.watch(screen, setup, "no node is left", is_nothing).await?;
        check_removed(screen, setup, mark, &left, &MachineStates::new()).await?;
    } else {
        screen.part("The load goes");
        scale(setup, few).await?;
        reader.watch(screen, setup, &what, is_less).await?;
        scale(setup, 0).await?;
        reader.watch(screen, setup, "no node is left", is_nothing).await?;
    }
    let reasons =
        ["get", "events", "--output=custom-columns=:.reason", "--no-headers", "--namespace", NAMESPACE];
    let reasons = setup.cluster.kubectl(&reasons).await?;
    screen.say("events", &tally(reasons.lines().map(str::trim).filter(|reason| !reason.is_empty())));
    if options.write_strategy == "lazy" {
        screen.say("lazy", "every conflict threw a whole reconcile away; the table counts them");
    }
    Ok(())
}

async fn scale(setup: &Setup, replicas: usize) -> Result<String> {
    let replicas = format!("--replicas={replicas}");
    setup.cluster.kubectl(&["scale", "deployment/web", "--namespace", NAMESPACE, &replicas]).await
}

fn audit_end(setup: &Setup) -> Result<u64> {
    setup.cluster.audit_log().context("this cluster's audit log cannot be read")?.end()
}

/// Says which machines have gone.
///
/// # Errors
/// When a machine has gone whose node the operator never cordoned since `mark`, or a new one is there.
async fn check_removed(
    screen: &Screen,
    setup: &Setup,
    mark: u64,
    before: &MachineStates,
    after: &MachineStates,
) -> Result<()> {
    let names = |machines: &MachineStates| machines.keys().cloned().collect::<BTreeSet<String>>();
    let (before, after) = (names(before), names(after));
    let audit = setup.cluster.audit_log().context("this cluster's audit log cannot be read")?;
    let lines = audit
        .wait_for(mark, LOGGED, "only machines whose nodes were cordoned have gone", |events| {
            removed(&before, &after, &cordoned(events)).ok()
        })
        .await;
    let lines = match lines {
        Ok(lines) => lines,
        // Again for its error, which says what is wrong.
        Err(_) => removed(&before, &after, &cordoned(&audit.follow_from(mark).read_new()?))?,
    };
    for line in lines {
        screen.say("machines", &line);
    }
    Ok(())
}

/// Which machines have gone and which stay, as two lines.
fn removed(
    before: &BTreeSet<String>,
    after: &BTreeSet<String>,
    cordoned: &BTreeSet<String>,
) -> Result<Vec<String>> {
    let join = |names: Vec<&String>| names.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let undrained: Vec<&String> = before.difference(after).filter(|name| !cordoned.contains(*name)).collect();
    ensure!(
        undrained.is_empty(),
        "gone, although nodepool-operator never began to drain their nodes: {}",
        join(undrained)
    );
    let new: Vec<&String> = after.difference(before).collect();
    ensure!(new.is_empty(), "made, although only the load went: {}", join(new));
    let gone: Vec<&String> = before.difference(after).collect();
    let mut lines = vec![format!("gone, each after its node was drained: {}", join(gone))];
    if !after.is_empty() {
        lines.push(format!("kept: {}", join(after.iter().collect())));
    }
    Ok(lines)
}

/// The machines whose Nodes `nodepool-operator` cordoned: a drain begins with that.
fn cordoned(events: &[Event]) -> BTreeSet<String> {
    let by_operator = events.iter().filter(|event| {
        event.writer().ends_with(NODE_POOL_OPERATOR)
            && event.is_write()
            && event.succeeded()
            && event.object.as_ref().is_some_and(|object| object.resource == "nodes")
    });
    let machine = |event: &Event| {
        let node = event.response.as_ref()?;
        node.pointer("/spec/unschedulable")?.as_bool().filter(|is_cordoned| *is_cordoned)?;
        Some(node.pointer("/metadata/labels")?.get(MACHINE_LABEL)?.as_str()?.to_owned())
    };
    by_operator.filter_map(machine).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::audit::ObjectKey;
    use crate::audit::tests::Wrote;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_machines_that_were_drained_may_have_gone() {
        let (before, after) = (set(&["a", "b", "c"]), set(&["b"]));
        let lines = removed(&before, &after, &set(&["a", "c"])).unwrap();
        assert_eq!(lines, ["gone, each after its node was drained: a, c", "kept: b"]);
        let error = removed(&before, &after, &set(&["a", "b"])).unwrap_err().to_string();
        assert!(error.contains("never began to drain their nodes: c"), "{error}");
        let error = removed(&set(&["a"]), &set(&["a", "d"]), &set(&[])).unwrap_err().to_string();
        assert!(error.ends_with("only the load went: d"), "{error}");
        assert_eq!(removed(&after, &set(&[]), &after).unwrap().len(), 1, "nothing is kept");
    }

    #[test]
    fn a_machine_counts_as_cordoned_when_the_operator_wrote_it_on_its_node() {
        let event = |user: &str, machine: &str, code: u16, unschedulable: Value| {
            let response = json!({
                "metadata": {"labels": {MACHINE_LABEL: machine}}, "spec": {"unschedulable": unschedulable},
            });
            let request = Value::Null;
            let event =
                Wrote { user, verb: "patch", subresource: "", request, code, response, at: 0 }.event();
            let object =
                ObjectKey { group: String::new(), resource: "nodes".into(), ..event.object.clone().unwrap() };
            Event { object: Some(object), ..event }
        };
        let operator = "system:serviceaccount:tandem-system:tandem-nodepool-operator";
        let events = [
            event(operator, "cordoned", 200, json!(true)),
            event(operator, "joined", 200, Value::Null),
            event(operator, "refused", 409, json!(true)),
            event("admin", "by-a-person", 200, json!(true)),
        ];
        assert_eq!(cordoned(&events), set(&["cordoned"]));
    }
}

//! The planner against the real kube-scheduler, on random clusters: pods that fit according to the planner are placed,
//! and the others stay pending.
//!
//! `TANDEM_SEED` selects the clusters, `TANDEM_TRIALS` their number.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::path::Path;
use std::sync::Arc;

use e2e::scheduler_conformance::batch::{self, Dispute, PRIORITIES};
use e2e::scheduler_conformance::blind::BLINDS;
use e2e::scheduler_conformance::dice::Dice;
use e2e::scheduler_conformance::planner::{SimulatedPlanner, list};
use e2e::scheduler_conformance::question::{self, Record};
use e2e::scheduler_conformance::rules::CLASSES;
use e2e::scheduler_conformance::score::Score;
use e2e::scheduler_conformance::stage::SchedulerEnv;
use e2e::scheduler_conformance::world::World;
use futures::{StreamExt as _, stream};
use tokio::sync::Mutex;

/// The clusters of this seed are known to contain every case, so only with it must each class have both answers and
/// must each blind planner be detected.
const SEED: u64 = 1;
/// Number of questions about one cluster. They fill it, so that answers change.
const QUESTIONS: usize = 45;
/// Percentage of pods that may find no place in the first pass although the planner expected one, or the reverse. The
/// scheduler spreads pods over nodes where the planner fills the first, so a large pod may find each of several nodes
/// half full; and it does not wait for the nodes that a topology spread constraint would be measured against. The
/// operator's next pass compensates for it. Measured with four seeds: from 2 to 9, and 6 of all their pods.
const DETOURS: usize = 10;

/// One control plane is enough for two cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap())
}

/// Stores the objects of a disagreement, for `autoscaler-operator simulate -f`.
fn keep(name: &str, record: &Record) -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.json"));
    let mut objects = record.state.clone();
    objects.push(Arc::new(record.pod.clone()));
    std::fs::write(&file, serde_json::to_vec_pretty(&list(&objects)).unwrap()).unwrap();
    file.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_pod_at_a_time_the_planner_and_the_scheduler_never_disagree() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (seed, trials) = (number("TANDEM_SEED", SEED), number("TANDEM_TRIALS", 10));
    println!("TANDEM_SEED={seed} TANDEM_TRIALS={trials}");
    let planner = SimulatedPlanner::build().await.unwrap();
    let mut stage = SchedulerEnv::start().await.unwrap();
    let (mut score, mut records, mut disagreements) = (Score::default(), Vec::new(), Vec::new());
    for trial in seed..seed + trials {
        let mut dice = Dice::new(trial);
        let nodes = 3 + dice.below(5);
        let mut world = World::create(&mut stage, &mut dice, &format!("w{trial}"), nodes, 8).await.unwrap();
        for at in 0..QUESTIONS {
            let (name, about) = (format!("q{at}"), CLASSES[at % CLASSES.len()]);
            let record =
                question::ask(&mut stage, &planner, &mut world, &mut dice, &name, about).await.unwrap();
            if let Some(why) = &record.disagreement {
                let file = keep(&format!("disagreement-w{trial}-{name}"), &record);
                let (classes, spec) = (&record.classes, &record.pod["spec"]);
                disagreements.push(format!(
                    "w{trial}/{name} {classes:?}: {why}\n  {}\n  {file}\n  {spec}",
                    record.warnings
                ));
            }
            score.add(&record);
            records.push(record);
        }
        stage.clear(&world.namespaces).await.unwrap();
    }
    println!("{score}");
    for disagreement in &disagreements {
        println!("{disagreement}\n");
    }
    assert!(disagreements.is_empty(), "{} disagreements of {} questions", disagreements.len(), records.len());
    for class in CLASSES {
        let row = score.row(class);
        let both = row.fits + row.needs_nodes > 0 && row.stays > 0;
        assert!(both || seed != SEED, "{class} has one answer only: {row:?}");
    }
    let unseen = unseen(&planner, &records).await;
    assert!(unseen.is_empty() || seed != SEED, "nobody would notice a planner that is blind to {unseen:?}");
}

/// The features that a planner could ignore without giving a wrong answer to any of these questions.
async fn unseen(planner: &SimulatedPlanner, records: &[Record]) -> Vec<&'static str> {
    let trials = stream::iter(BLINDS).map(|blind| async move {
        let mut asked = 0;
        for record in records {
            match blind.found_out(planner, record).await.unwrap() {
                None => {}
                Some(false) => asked += 1,
                Some(true) => return (blind.to, asked, true),
            }
        }
        (blind.to, asked, false)
    });
    let trials: Vec<_> = trials.buffered(2).collect().await;
    for (to, asked, found) in &trials {
        let verdict = if *found { "is found out" } else { "IS NOT FOUND OUT" };
        println!("a planner blind to {to} {verdict} after {asked} questions that it answers well");
    }
    trials.into_iter().filter(|(_, _, found)| !found).map(|(to, _, _)| to).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_batches_differ_by_no_more_than_the_order_of_placing_explains() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (seed, trials) = (number("TANDEM_SEED", SEED), number("TANDEM_TRIALS", 6));
    println!("TANDEM_SEED={seed} TANDEM_TRIALS={trials}");
    let planner = SimulatedPlanner::build().await.unwrap();
    let mut stage = SchedulerEnv::start().await.unwrap();
    for (name, value) in PRIORITIES {
        stage.create_priority(name, value).await.unwrap();
    }
    let (mut pods, mut detours, mut defects) = (0, 0, 0);
    for trial in seed..seed + trials {
        let mut dice = Dice::new(trial ^ (1 << 40));
        let nodes = 3 + dice.below(6);
        let mut world = World::create(&mut stage, &mut dice, &format!("b{trial}"), nodes, 10).await.unwrap();
        let outcome = batch::run(&mut stage, &planner, &mut world, &mut dice).await.unwrap();
        println!(
            "b{trial}: {} pods, {} placed at once, {} new nodes, {} passes, {} detours, {} defects",
            outcome.pods,
            outcome.placed,
            outcome.nodes,
            outcome.passes,
            outcome.detours.len(),
            outcome.defects.len()
        );
        for (what, disputes) in [("detour", &outcome.detours), ("DEFECT", &outcome.defects)] {
            for Dispute { pod, classes, fate, verdict } in disputes {
                println!("  {what} {classes:?}: {fate:?} / {verdict:?}\n    {pod}");
            }
        }
        pods += outcome.pods;
        detours += outcome.detours.len();
        defects += outcome.defects.len();
        stage.clear(&world.namespaces).await.unwrap();
    }
    println!("{detours} detours and {defects} defects in {pods} pods");
    assert_eq!(defects, 0);
    assert!(detours * 100 <= pods * DETOURS, "{detours} of {pods} pods are more than {DETOURS} %");
}

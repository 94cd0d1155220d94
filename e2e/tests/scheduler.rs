//! The planner against the real kube-scheduler, on random clusters: pods that fit according to the planner are placed,
//! and the others stay pending.
//!
//! `TANDEM_SEED` selects the clusters, `TANDEM_CLUSTERS` their number.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::path::Path;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use testbed::scheduler_conformance::batch::{self, Dispute, PRIORITIES};
use testbed::scheduler_conformance::ignored_feature::{IGNORED_FEATURES, IgnoredFeature, KIND_FEATURES};
use testbed::scheduler_conformance::kind_cluster::KindCluster;
use testbed::scheduler_conformance::kinds::{KINDS, PATIENT, SHARED_VOLUMES};
use testbed::scheduler_conformance::planner::{SimulatedPlanner, list};
use testbed::scheduler_conformance::question::{self, Record};
use testbed::scheduler_conformance::random_cluster::RandomCluster;
use testbed::scheduler_conformance::rules::CLASSES;
use testbed::scheduler_conformance::scheduler_env::SchedulerEnv;
use testbed::scheduler_conformance::score::Score;
use testbed::scheduler_conformance::seeded_rng::SeededRng;
use testbed::scheduler_conformance::sharing;
use testbed::waiting;
use tokio::sync::Mutex;

/// The clusters of this seed are known to contain every case, so only with it must each class have both answers and
/// must each planner that ignores a feature be detected.
const SEED: u64 = 1;
/// Number of questions about one cluster. They fill it, so that answers change.
const QUESTIONS: usize = 45;
/// How often each kind of [`KINDS`] is asked about one cluster.
const TIMES: usize = 4;
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

/// A disagreement as text; its objects are stored under `name`.
fn disagreement(name: &str, record: &Record) -> Option<String> {
    let why = record.disagreement.as_ref()?;
    let file = keep(&format!("disagreement-{name}"), record);
    let (classes, spec) = (&record.classes, &record.pod["spec"]);
    Some(format!("{name} {classes:?}: {why}\n  {}\n  {file}\n  {spec}", record.warnings))
}

/// Prints the counts and the disagreements, of which there must be none.
fn say(score: &Score, disagreements: &[String]) {
    println!("{score}");
    for disagreement in disagreements {
        println!("{disagreement}\n");
    }
    let asked = score.row("all").asked;
    assert!(disagreements.is_empty(), "{} disagreements of {asked} questions", disagreements.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_pod_at_a_time_the_planner_and_the_scheduler_never_disagree() {
    let _alone = waiting::for_others(ONE_AT_A_TIME.lock()).await;
    let (seed, clusters) = (number("TANDEM_SEED", SEED), number("TANDEM_CLUSTERS", 10));
    println!("TANDEM_SEED={seed} TANDEM_CLUSTERS={clusters}");
    let planner = SimulatedPlanner::build().await.unwrap();
    let mut env = SchedulerEnv::start().await.unwrap();
    let (mut score, mut records, mut disagreements) = (Score::default(), Vec::new(), Vec::new());
    for number in seed..seed + clusters {
        let mut rng = SeededRng::new(number);
        let nodes = 3 + rng.below(5);
        let mut cluster =
            RandomCluster::create(&mut env, &mut rng, &format!("w{number}"), nodes, 8).await.unwrap();
        for at in 0..QUESTIONS {
            let (name, about) = (format!("q{at}"), CLASSES[at % CLASSES.len()]);
            let record =
                question::ask(&mut env, &planner, &mut cluster, &mut rng, &name, about).await.unwrap();
            disagreements.extend(disagreement(&format!("w{number}-{name}"), &record));
            score.add(&record);
            records.push(record);
        }
        env.clear(&cluster.namespaces).await.unwrap();
        waiting::gets_on();
    }
    say(&score, &disagreements);
    for class in CLASSES {
        let row = score.row(class);
        let both = row.fits + row.needs_nodes > 0 && row.stays > 0;
        assert!(both || seed != SEED, "{class} has one answer only: {row:?}");
    }
    let undetected = undetected_features(&planner, &records, &IGNORED_FEATURES).await;
    assert!(
        undetected.is_empty() || seed != SEED,
        "no question detects a planner that ignores {undetected:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_each_kind_from_public_reports_the_planner_and_the_scheduler_say_the_same() {
    let _alone = waiting::for_others(ONE_AT_A_TIME.lock()).await;
    let (seed, clusters) = (number("TANDEM_SEED", SEED), number("TANDEM_CLUSTERS", 8));
    println!("TANDEM_SEED={seed} TANDEM_CLUSTERS={clusters}");
    let planner = SimulatedPlanner::build().await.unwrap();
    let mut env = SchedulerEnv::start().await.unwrap();
    env.create_priority(PATIENT.0, PATIENT.1).await.unwrap();
    let (mut score, mut records, mut disagreements) = (Score::default(), Vec::new(), Vec::new());
    for number in seed..seed + clusters {
        let mut rng = SeededRng::new(number ^ (1 << 41));
        let nodes = 2 + rng.below(3);
        let mut cluster =
            KindCluster::create(&mut env, &mut rng, &format!("k{number}"), nodes).await.unwrap();
        for at in 0..KINDS.len() * TIMES {
            let (name, kind) = (format!("q{at}"), KINDS[at % KINDS.len()]);
            // A record of one of several pods says nothing without the others.
            let (asked, alone) = if kind == SHARED_VOLUMES {
                let all = sharing::ask(&mut env, &planner, &mut cluster, &mut rng, &name).await.unwrap();
                (all, false)
            } else {
                (vec![cluster.ask(&mut env, &planner, &mut rng, &name, kind).await.unwrap()], true)
            };
            for record in asked {
                disagreements.extend(disagreement(&format!("k{number}-{name}"), &record));
                score.add(&record);
                if alone {
                    records.push(record);
                }
            }
        }
        env.clear(&cluster.cluster.namespaces).await.unwrap();
        waiting::gets_on();
    }
    // Even when the two disagree, it is said which kinds were asked.
    for kind in KINDS {
        let row = score.row(kind);
        println!("{kind}: {} questions, {} disagreements", row.asked, row.disagreed);
        assert!(row.asked > 0, "{kind} was never asked");
    }
    say(&score, &disagreements);
    for kind in KINDS {
        let row = score.row(kind);
        let both = row.fits + row.needs_nodes > 0 && row.stays > 0;
        assert!(both || seed != SEED, "{kind} has one answer only: {row:?}");
    }
    let undetected = undetected_features(&planner, &records, &KIND_FEATURES).await;
    assert!(
        undetected.is_empty() || seed != SEED,
        "no question detects a planner that ignores {undetected:?}"
    );
}

/// The features that a planner could ignore without giving a wrong answer to any of these questions.
async fn undetected_features(
    planner: &SimulatedPlanner,
    records: &[Record],
    features: &[IgnoredFeature],
) -> Vec<&'static str> {
    let checks = stream::iter(features.iter().copied()).map(|feature| async move {
        waiting::gets_on();
        let mut asked = 0;
        for record in records {
            match feature.is_detected(planner, record).await.unwrap() {
                None => {}
                Some(false) => asked += 1,
                Some(true) => return (feature.name, asked, true),
            }
        }
        (feature.name, asked, false)
    });
    let checked: Vec<_> = checks.buffered(2).collect().await;
    for (feature, asked, detected) in &checked {
        let result = if *detected { "is detected" } else { "IS NOT DETECTED" };
        println!("a planner that ignores {feature} {result} after {asked} correct answers");
    }
    checked.into_iter().filter(|(_, _, detected)| !detected).map(|(feature, _, _)| feature).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_batches_differ_by_no_more_than_the_order_of_placing_explains() {
    let _alone = waiting::for_others(ONE_AT_A_TIME.lock()).await;
    let (seed, clusters) = (number("TANDEM_SEED", SEED), number("TANDEM_CLUSTERS", 6));
    println!("TANDEM_SEED={seed} TANDEM_CLUSTERS={clusters}");
    let planner = SimulatedPlanner::build().await.unwrap();
    let mut env = SchedulerEnv::start().await.unwrap();
    for (name, value) in PRIORITIES {
        env.create_priority(name, value).await.unwrap();
    }
    let (mut pods, mut detours, mut defects) = (0, 0, 0);
    for number in seed..seed + clusters {
        let mut rng = SeededRng::new(number ^ (1 << 40));
        let nodes = 3 + rng.below(6);
        let mut cluster =
            RandomCluster::create(&mut env, &mut rng, &format!("b{number}"), nodes, 10).await.unwrap();
        let outcome = batch::run(&mut env, &planner, &mut cluster, &mut rng).await.unwrap();
        println!(
            "b{number}: {} pods, {} placed at once, {} new nodes, {} passes, {} detours, {} defects",
            outcome.pods,
            outcome.placed,
            outcome.nodes,
            outcome.passes,
            outcome.detours.len(),
            outcome.defects.len()
        );
        for (what, disputes) in [("detour", &outcome.detours), ("DEFECT", &outcome.defects)] {
            for Dispute { pod, classes, prediction, decision } in disputes {
                println!("  {what} {classes:?}: {prediction:?} / {decision:?}\n    {pod}");
            }
        }
        pods += outcome.pods;
        detours += outcome.detours.len();
        defects += outcome.defects.len();
        env.clear(&cluster.namespaces).await.unwrap();
    }
    println!("{detours} detours and {defects} defects in {pods} pods");
    assert_eq!(defects, 0);
    assert!(detours * 100 <= pods * DETOURS, "{detours} of {pods} pods are more than {DETOURS} %");
}

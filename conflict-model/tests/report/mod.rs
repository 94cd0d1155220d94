//! Runs a model check and prints its result.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, Expectation, Model, Path};

/// A model that can be explored by several threads.
pub(crate) trait Explorable:
    Model<State: Hash + Send + Sync + Clone + PartialEq + Debug, Action: Clone + PartialEq + Debug>
    + Send
    + Sync
    + Clone
    + 'static
{
}

impl<M> Explorable for M where
    M: Model<State: Hash + Send + Sync + Clone + PartialEq + Debug, Action: Clone + PartialEq + Debug>
        + Send
        + Sync
        + Clone
        + 'static
{
}

/// Explores every state and prints how many there are.
pub(crate) fn explore<M: Explorable>(name: &str, model: M) -> impl Checker<M> + use<M> {
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!(
        "{name}: {} states, {} of them unique, depth {}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    checker
}

/// No `always` has a counterexample, and each `sometimes` but those in `unreachable` has an example.
pub(crate) fn holds<M: Explorable>(checker: &impl Checker<M>, unreachable: &[&str]) {
    for property in checker.model().properties() {
        let found = checker.discovery(property.name);
        match property.expectation {
            Expectation::Sometimes => {
                assert_eq!(found.is_some(), !unreachable.contains(&property.name), "{}", property.name);
            }
            Expectation::Always | Expectation::Eventually => {
                assert!(found.is_none(), "{}\n{}", property.name, trace(&found.unwrap()));
            }
        }
    }
}

/// `sound` breaks none of `properties`; `flawed`, which has the mistake `name`, breaks each of them within `depth` steps.
/// Prints the shortest counterexample of each.
pub(crate) fn breaks<M: Explorable>(
    name: &str,
    sound: &impl Checker<M>,
    flawed: &M,
    depth: usize,
    properties: &[&'static str],
) {
    for property in properties {
        assert!(sound.discovery(property).is_none(), "{property} is broken without {name}");
        let shortest = (1..=depth).find_map(|depth| {
            let checker = flawed.clone().checker().target_max_depth(depth).spawn_bfs().join();
            checker.discovery(property)
        });
        let found = shortest.unwrap_or_else(|| panic!("{property} does not detect {name}"));
        println!("{name} breaks \"{property}\":\n{}", trace(&found));
    }
}

/// A path, a step a line.
fn trace<S: Clone, A: Clone + Debug>(path: &Path<S, A>) -> String {
    path.clone().into_actions().iter().map(|step| format!("    {step:?}\n")).collect()
}

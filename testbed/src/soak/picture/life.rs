//! The whole life of a pool: how many of its nodes are in each state, one above the other, and where each phase begins.

use super::plot::{Entry, PLOT, Sample, Scale, framed};
use crate::soak::check::PoolSize;
use crate::soak::report::SoakPhase;

/// A state of nodes, drawn up to the number of those in it and in the ones below it.
struct State {
    name: &'static str,
    class: &'static str,
    up_to: fn(&PoolSize) -> usize,
}

/// From below.
const STATES: [State; 4] = [
    State { name: "Ready and in use", class: "used", up_to: PoolSize::in_use },
    State { name: "not Ready yet", class: "coming", up_to: |size| size.in_use() + size.starting },
    State { name: "being removed", class: "going", up_to: |size| size.all.saturating_sub(size.dead) },
    State { name: "without a kubelet", class: "dead", up_to: |size| size.all },
];

/// Draws the sizes of a pool from its first one on, and the beginnings of `phases`.
pub fn svg(sizes: &[PoolSize], phases: &[SoakPhase]) -> String {
    let wanted = sizes.iter().map(|size| size.wanted).max().unwrap_or(0);
    let mut inside = String::new();
    if let Some(scale) = Scale::of(sizes) {
        inside += &scale.axes("seconds since the pool was made");
        // The ones below cover the lower part of those above.
        for state in STATES.iter().rev() {
            let (class, steps) = (state.class, scale.steps(state.up_to));
            inside += &format!("<path class=\"area {class}\" d=\"{steps}V{}H0Z\"/>\n", PLOT.1);
        }
        inside += &format!("<path class=\"line wanted\" d=\"{}\"/>\n", scale.steps(|size| size.wanted));
        inside += &beginnings(&scale, phases);
    }
    let title = format!("The life of a pool of {wanted} nodes");
    framed(&title, "The life of a pool: its nodes over time, by state", &inside, &legend(phases))
}

/// Where each phase begins, by its number. The first one begins shortly before the pool is made.
fn beginnings(scale: &Scale, phases: &[SoakPhase]) -> String {
    let mut text = String::new();
    for (at, phase) in phases.iter().enumerate() {
        let x = scale.x(phase.began).max(0);
        text += &format!(
            "<line class=\"phase\" x1=\"{x}\" x2=\"{x}\" y2=\"{}\"/><text x=\"{}\" y=\"-10\">{}</text>\n",
            PLOT.1,
            x - 3,
            at + 1
        );
    }
    text
}

fn legend(phases: &[SoakPhase]) -> Vec<Entry> {
    let states = STATES.iter().map(|state| (Sample::Area(state.class), state.name));
    let phases = phases.iter().enumerate().map(|(at, phase)| (Sample::Number(at + 1), phase.name));
    states.chain([(Sample::Line("wanted"), "wanted")]).chain(phases).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn size(second: i64, all: usize, states: [usize; 3]) -> PoolSize {
        let [starting, leaving, dead] = states;
        PoolSize { at: at(second), all, starting, leaving, dead, wanted: 10, most: 11, ..PoolSize::EMPTY }
    }

    #[test]
    fn every_node_is_in_one_state_and_the_states_lie_one_above_the_other() {
        let size = size(0, 20, [5, 3, 2]);
        let tops = STATES.map(|state| (state.up_to)(&size));
        assert_eq!(tops, [10, 15, 18, 20]);
    }

    #[test]
    fn every_state_is_an_area_and_every_phase_a_line_with_its_number_and_name() {
        let phase = |name, second| SoakPhase { name, began: at(second), took: Duration::from_secs(5) };
        let sizes = [size(1, 0, [0, 0, 0]), size(3, 10, [10, 0, 0]), size(9, 10, [0, 0, 0])];
        let text = svg(&sizes, &[phase("filled", 0), phase("emptied", 5)]);
        assert_eq!(text.matches("class=\"area ").count(), STATES.len());
        assert_eq!(text.matches("class=\"phase\"").count(), 2);
        assert!(text.contains(">filled</text>") && text.contains(">2</text>"), "{text}");
        assert!(text.contains("x1=\"0\"") && text.contains("a pool of 10 nodes"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn no_recording_draws_no_area() {
        assert!(!svg(&[], &[]).contains("class=\"area "));
    }
}

//! The result: the tables, for a terminal and for a page, and what is wrong.

use std::collections::BTreeMap;

use serde::Serialize;

use super::autoscaler::Autoscaler;
use super::round::{Phase, REST, Round};
use crate::numbers::{figure, percentile, thousands, whole};

/// How many more nodes a round may have than another one: pods that are seen later may be planned apart from the others.
const SPREAD: usize = 1;

/// A run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// The version of each autoscaler, by name.
    pub(crate) versions: BTreeMap<&'static str, String>,
    /// In the order in which they were played.
    pub(crate) rounds: Vec<Round>,
}

/// A figure of a round or a phase: its name, its value and how that is written.
type Figure<T> = (&'static str, fn(&T) -> f64, fn(f64) -> String);

const ROUND: [Figure<Round>; 2] = [
    ("nodes", |round| number(round.nodes), whole),
    ("all pods exist, s", |round| round.created_seconds, figure),
];

const PHASE: [Figure<Phase>; 8] = [
    ("API requests", |phase| number(phase.requests.all), whole),
    ("— writes", |phase| number(phase.requests.writes), whole),
    ("— writes of Events", |phase| number(phase.requests.event_writes), whole),
    ("writes answered 409 Conflict", |phase| number(phase.requests.conflicts), whole),
    ("writes answered 422", |phase| number(phase.requests.failed_tests), whole),
    ("— of both, tried again", |phase| number(phase.requests.tried_again), whole),
    ("answered with another error", |phase| number(phase.requests.other_errors), whole),
    ("CPU, s", |phase| phase.cpu_seconds, figure),
];

#[expect(clippy::cast_precision_loss, reason = "counts of requests and nodes, far below 2^52")]
const fn number(count: usize) -> f64 {
    count as f64
}

/// The name of a figure and the cells of both autoscalers.
type Line = (&'static str, Vec<String>);

impl Report {
    /// What is wrong with the run.
    pub(crate) fn complaints(&self, asked: usize) -> Vec<String> {
        let mut complaints = Vec::new();
        for autoscaler in Autoscaler::BOTH {
            let played = self.of(autoscaler).count();
            if played != asked {
                let name = autoscaler.name();
                complaints.push(format!("{played} rounds of {name} were played, and {asked} were asked for"));
            }
        }
        let nodes = || self.rounds.iter().map(|round| round.nodes);
        let (least, most) = (nodes().min().unwrap_or(0), nodes().max().unwrap_or(0));
        if most - least > SPREAD {
            let each: Vec<String> = self
                .rounds
                .iter()
                .map(|round| format!("{} in round {} of {}", round.nodes, round.number, round.autoscaler))
                .collect();
            complaints.push(format!(
                "the rounds had {least} to {most} nodes for the same pods, and may differ by {SPREAD}: {}",
                each.join(", ")
            ));
        }
        complaints
    }

    fn of(&self, autoscaler: Autoscaler) -> impl Iterator<Item = &Round> {
        self.rounds.iter().filter(move |round| round.autoscaler == autoscaler.name())
    }

    fn head(&self) -> String {
        let pods = self.rounds.first().map_or(0, |round| round.pods);
        let versions: Vec<String> =
            self.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        format!(
            "{} pods, {} rounds of each: {}",
            thousands(pods),
            self.rounds.len() / Autoscaler::BOTH.len(),
            versions.join(" and ")
        )
    }

    /// A line with the median of each autoscaler and all of its values, in the order of its rounds.
    fn line(&self, name: &'static str, value: impl Fn(&Round) -> f64, written: fn(f64) -> String) -> Line {
        let cell = |autoscaler| {
            let values: Vec<f64> = self.of(autoscaler).map(&value).collect();
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let all: Vec<String> = values.into_iter().map(written).collect();
            format!("{} ({})", written(percentile(&sorted, 0.5)), all.join(" · "))
        };
        (name, Autoscaler::BOTH.map(cell).into())
    }

    /// The tables, heads first.
    fn tables(&self) -> [Vec<Line>; 3] {
        let head = |name| (name, Autoscaler::BOTH.map(|one| one.name().to_owned()).into());
        let of_phase = |end, phase: fn(&Round) -> &Phase| {
            let time = self.line(end, |round| phase(round).seconds, figure);
            let rest =
                PHASE.map(|(name, value, written)| self.line(name, |round| value(phase(round)), written));
            std::iter::once(time).chain(rest)
        };
        let mut up = vec![head("up")];
        up.extend(ROUND.map(|(name, value, written)| self.line(name, value, written)));
        up.extend(of_phase("all pods run, s", |round| &round.up));
        let mut down = vec![head("down")];
        down.extend(of_phase("all nodes gone, s", |round| &round.down));
        let peak = |round: &Round| round.processes.iter().map(|process| process.peak_mib).sum();
        let memory = vec![head("whole round"), self.line("peak memory, MiB", peak, figure)];
        [up, down, memory]
    }

    /// The tables for a terminal.
    pub(crate) fn table(&self) -> String {
        let mut text = self.head() + "\n";
        for lines in self.tables() {
            text += "\n";
            for (name, cells) in lines {
                let cells: String = cells.iter().map(|cell| format!("{cell:>36}")).collect();
                text += &format!("{name:<30}{cells}\n");
            }
        }
        text + "\n" + &notes().join("\n")
    }

    /// The tables for a page.
    pub(crate) fn markdown(&self) -> String {
        let mut text = self.head() + ". Medians, and in brackets the values of all rounds:\n";
        for lines in self.tables() {
            text += "\n";
            for (at, (name, cells)) in lines.iter().enumerate() {
                text += &format!("| {name} | {} |\n", cells.join(" | "));
                if at == 0 {
                    text += &format!("|---|{}\n", "---:|".repeat(cells.len()));
                }
            }
        }
        text + "\n" + &notes().map(|note| format!("- {note}\n")).concat()
    }
}

fn notes() -> [String; 5] {
    [
        "all pods exist: made by the controllers of Deployments and ReplicaSets, which no autoscaler has a part in".into(),
        "times: from just before the request for the Deployment, and from just before the request that scales it to none"
            .into(),
        format!(
            "API requests and CPU: of the phase and the {} s after it; requests of the autoscaler's own service accounts, as \
             the audit log has them; CPU in user and kernel mode, of all of its processes",
            REST.as_secs()
        ),
        "409 Conflict: the object had changed since it was read; 422: a `test` of a JSON patch failed, which is Tandem's \
         way to notice the same; tried again: the same user wrote the same object later in the phase"
            .into(),
        "peak memory: the most that was resident, from the start of the process on; of Tandem, both operators' added".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::requests::Requests;
    use super::super::round::Memory;
    use super::*;

    fn phase(seconds: f64) -> Phase {
        let requests = Requests { all: 1200, writes: 1100, conflicts: 7, ..Requests::default() };
        Phase { seconds, requests, cpu_seconds: 3.25 }
    }

    fn round(number: usize, autoscaler: Autoscaler, nodes: usize, seconds: f64) -> Round {
        Round {
            number,
            autoscaler: autoscaler.name(),
            pods: 300,
            nodes,
            created_seconds: 2.5,
            up: phase(seconds),
            down: phase(40.0),
            processes: [1.5, 2.5].map(|peak_mib| Memory { name: "one", peak_mib }).into(),
        }
    }

    fn report(rounds: Vec<Round>) -> Report {
        Report {
            versions: BTreeMap::from([("Karpenter", "v1".to_owned()), ("Tandem", "v2".to_owned())]),
            rounds,
        }
    }

    fn good() -> Report {
        let karpenter = [30.0, 34.0, 31.0].map(|seconds| round(1, Autoscaler::Karpenter, 50, seconds));
        let tandem = [12.0, 14.0, 13.0].map(|seconds| round(1, Autoscaler::Tandem, 51, seconds));
        report(karpenter.into_iter().chain(tandem).collect())
    }

    #[test]
    fn a_round_more_or_less_and_nodes_that_differ_are_named() {
        assert_eq!(good().complaints(3), [""; 0]);
        let mut wrong = good();
        wrong.rounds.pop();
        wrong.rounds[3].nodes = 48;
        let said = wrong.complaints(3).join("\n");
        assert!(said.contains("2 rounds of Tandem were played, and 3"), "{said}");
        assert!(said.contains("had 48 to 51 nodes"), "{said}");
        assert!(said.contains("48 in round 1 of Tandem"), "{said}");
        assert_eq!(report(Vec::new()).complaints(1).len(), 2);
    }

    #[test]
    fn the_tables_have_the_median_and_every_value_of_both() {
        for text in [good().table(), good().markdown()] {
            for word in [
                "300 pods, 3 rounds of each: Karpenter v1 and Tandem v2",
                "31.0 (30.0 · 34.0 · 31.0)",
                "13.0 (12.0 · 14.0 · 13.0)",
                "1,200 (1,200 · 1,200 · 1,200)",
                "4.00 (4.00 · 4.00 · 4.00)",
                "the 10 s after it",
            ] {
                assert!(text.contains(word), "{word} in\n{text}");
            }
        }
    }
}

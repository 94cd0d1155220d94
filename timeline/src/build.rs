//! Builds the page's model from a log.

use std::collections::HashMap;

use jiff::Timestamp;

use crate::line::{Base, Left, Level, LoggedRequest};
use crate::model::{Drawn, DrawnPhase, Model, Object, RequestOutcome, Shown, Writer};
use crate::read::Log;
use crate::spans::GAP;
use crate::{Phase, aid, cost, names};

impl RequestOutcome {
    fn of(request: &LoggedRequest) -> Self {
        match request.code {
            409 => Self::Conflict,
            200..300 if request.is_read() => Self::Read,
            200..300 => Self::Granted,
            _ => Self::Refused,
        }
    }
}

impl Model {
    /// The model of a log with at least one request. `setup_user` is the user whose requests prepare the scenario; `phases`
    /// are marked in the drawing.
    pub(crate) fn of(log: Log, setup_user: Option<&str>, phases: &[Phase]) -> Self {
        let Log { mut requests, spans, counts, left_out, mut warnings, .. } = log;
        // A stable sort: lines of one moment stay in the order of the log.
        requests.sort_by_key(|request| request.completed);
        let start = requests.iter().map(|request| request.received).min().unwrap_or_default();
        let clock = Clock { start };
        let end = requests.iter().map(|request| request.completed).max().map_or(0.0, |end| clock.at(end));
        let (keys, mut writers) = names::writers(&requests, setup_user);
        let mut objects = Vec::new();
        let mut known = HashMap::new();
        let of: Vec<(usize, usize)> = requests
            .iter()
            .map(|request| {
                let writer = keys.get(&names::key(request)).copied().unwrap_or_default();
                (writer, names::object(request, &mut objects, &mut known))
            })
            .collect();
        let mut shown: Vec<Shown> =
            requests.iter().zip(&of).map(|(request, of)| clock.shown(request, *of)).collect();
        cost::add_costs(&requests, &mut shown);
        let aids = aid::add_aids(&requests, &mut shown);
        tally(&shown, &mut writers, &mut objects);
        if left_out > 0 {
            warnings.push(format!(
                "{left_out} requests that came later are left out: a page shows {} at most; ask for fewer objects",
                shown.len()
            ));
        }
        let mut drawn: Vec<Drawn> = spans
            .finish()
            .into_iter()
            .filter_map(|(key, spans)| Some((*keys.get(&key)?, spans)))
            .flat_map(|(writer, spans)| spans.into_iter().map(move |span| (writer, span)))
            .map(|(writer, span)| Drawn {
                writer,
                start: clock.at(span.start),
                end: clock.at(span.end),
                requests: span.requests,
            })
            .collect();
        drawn.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.writer.cmp(&b.writer)));
        let curve =
            |points: Vec<(Timestamp, usize)>| points.into_iter().map(|(at, n)| (clock.at(at), n)).collect();
        Self {
            start,
            end,
            gap: i64::try_from(GAP.as_millis()).unwrap_or_default(),
            unknown: shown
                .iter()
                .filter(|one| one.outcome == RequestOutcome::Granted && one.left_unknown)
                .count(),
            writers,
            objects,
            requests: shown,
            aids,
            spans: drawn,
            phases: phases.iter().map(|phase| clock.phase(phase)).collect(),
            nodes: curve(counts.node_curve.points),
            pods: curve(counts.pod_curve.points),
            notes: warnings,
        }
    }
}

/// Converts times to milliseconds since the first request.
#[derive(Clone, Copy)]
struct Clock {
    start: Timestamp,
}

impl Clock {
    fn at(self, time: Timestamp) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "microseconds of a log are far below 2^52")]
        let micros = time.duration_since(self.start).as_micros() as f64;
        micros / 1000.0
    }

    fn phase(self, phase: &Phase) -> DrawnPhase {
        DrawnPhase { name: phase.name.clone(), start: self.at(phase.began), end: self.at(phase.ended) }
    }

    fn shown(self, request: &LoggedRequest, (writer, object): (usize, usize)) -> Shown {
        let outcome = RequestOutcome::of(request);
        let is_write = !request.is_read();
        let version = |left: &Left| match left {
            Left::Version(version) => Some(version.clone()),
            Left::Nothing | Left::Unknown => None,
        };
        Shown {
            writer,
            object,
            outcome,
            received: self.at(request.received),
            completed: self.at(request.completed),
            verb: request.verb.clone(),
            how: request.how,
            subresource: request.object.subresource.clone(),
            code: request.code,
            reason: request.reason.clone(),
            message: request.message.clone(),
            base: match &request.base {
                Base::Version(version) if is_write => Some(version.clone()),
                Base::Version(_) | Base::Any | Base::Unknown => None,
            },
            base_unknown: is_write && request.base == Base::Unknown,
            // A refused write leaves no version, and the level at which reads are logged has no body.
            left: version(&request.left).filter(|_| request.succeeded()),
            left_unknown: request.succeeded() && request.left == Left::Unknown,
            generation: request.generation.filter(|_| request.succeeded()),
            field_manager: request.field_manager.clone(),
            dry_run: request.dry_run,
            no_op: false,
            beaten_by: None,
            cost: None,
            aid: None,
            level: match request.level {
                Level::None => "None",
                Level::Metadata => "Metadata",
                Level::Request => "Request",
                Level::RequestResponse => "RequestResponse",
            },
        }
    }
}

fn tally(shown: &[Shown], writers: &mut [Writer], objects: &mut [Object]) {
    for request in shown {
        if let Some(object) = objects.get_mut(request.object) {
            object.requests += 1;
            object.conflicts += usize::from(request.outcome == RequestOutcome::Conflict);
        }
        let Some(writer) = writers.get_mut(request.writer) else { continue };
        writer.requests += 1;
        match request.outcome {
            RequestOutcome::Granted => writer.granted += 1,
            RequestOutcome::Conflict => writer.conflicts += 1,
            RequestOutcome::Refused => writer.refused += 1,
            RequestOutcome::Read => writer.reads += 1,
        }
        // Of several refusals before one granted write, the first has the cost of all.
        if let Some(cost) = request.cost.as_ref().filter(|cost| cost.is_first) {
            writer.extra += cost.requests;
            writer.waited += cost.millis.unwrap_or_default();
            writer.unsettled += usize::from(cost.settled_by.is_none());
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;
    use crate::line::tests::{line, request};
    use crate::select::Selection;

    #[test]
    fn phases_are_on_the_clock_of_the_first_request() {
        let lines = [0, 100, 900].map(|at| line(at, "u", "update", 200, json!({})));
        let began = request(&lines[1]).received;
        let ended = began + SignedDuration::from_millis(750);
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let selection = Selection { objects: vec!["nodepools".parse().unwrap()], ..Selection::default() };
        let mut log = Log::default();
        log.read(text.as_bytes(), "test", &selection).unwrap();
        let model = Model::of(log, None, &[Phase { name: "lazy".to_owned(), began, ended }]);
        assert_eq!(model.phases, [DrawnPhase { name: "lazy".to_owned(), start: 100.0, end: 850.0 }]);
    }
}

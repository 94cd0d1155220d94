//! A long sequence of similar requests: the first and the last ones, as a table.

use crate::context::ScenarioContext;
use crate::event::{RecordedRequest, Table, What, version};

/// Number of requests of one attempt with a conflict: Alice's read, Bob's write, her write.
const EACH: usize = 3;

/// The beginning of a sequence of requests.
pub(super) struct Excerpt(usize);

impl Excerpt {
    /// A sequence that begins with the next request.
    pub(super) fn begin(ctx: &ScenarioContext) -> Self {
        Self(ctx.events().len())
    }

    /// The first three attempts so far, and the last.
    pub(super) fn show(self, ctx: &ScenarioContext) {
        let requests: Vec<RecordedRequest> = ctx
            .events()
            .into_iter()
            .skip(self.0)
            .filter_map(|event| if let What::Request(request) = event.what { Some(*request) } else { None })
            .collect();
        let mut table = Table::new(&["attempt", "who", "sends", "to", "from", "answer"]);
        for (place, request) in requests.iter().enumerate() {
            let attempt = place / EACH + 1;
            if attempt <= 3 || place + EACH >= requests.len() {
                row(&mut table, attempt, request);
            } else if attempt == 4 && place % EACH == 0 {
                table.row(&[&"…"]);
            }
        }
        ctx.table(table);
    }
}

fn row(table: &mut Table, attempt: usize, request: &RecordedRequest) {
    let RecordedRequest { actor, verb, target, from, code, reason, version: stored, .. } = request;
    let from = from.as_deref().map(version).unwrap_or_default();
    let stored = stored.as_deref().map(version).unwrap_or_default();
    let answer = format!("{code} {reason}{stored}");
    table.row(&[&attempt, actor, verb, target, &from, &answer]);
}

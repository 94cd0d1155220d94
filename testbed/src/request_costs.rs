//! The cost of writing: the requests and their effects per writer and subresource, counted from the audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;

use serde::Serialize;

use crate::audit::{Event, ObjectKey};
use crate::history;
use crate::history::Effect;

/// The counts of one writer on one subresource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CostRow {
    /// The service account as `namespace:name`, or the user.
    pub writer: String,
    /// The resource and subresource, as in `nodepools/status`; `all` in a writer's total.
    pub target: String,
    /// Reads of single objects: a retry costs one.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Granted writes.
    pub succeeded: u64,
    /// Granted writes that changed nothing.
    pub no_ops: u64,
    /// Writes answered with 409.
    pub conflicts: u64,
    /// Writes answered with 422: a failed guard, or validation.
    pub invalid: u64,
    /// Writes answered with any other error.
    pub other_errors: u64,
    /// How often `metadata.generation` moved.
    pub generation_moved: u64,
    /// How often `metadata.resourceVersion` moved.
    pub resource_version_moved: u64,
}

impl CostRow {
    /// Requests, reads included, per granted write; `None` when no write was granted.
    #[expect(clippy::cast_precision_loss, reason = "a run has far fewer than 2^52 requests")]
    pub fn requests_per_write(&self) -> Option<f64> {
        (self.succeeded > 0).then(|| (self.reads + self.writes) as f64 / self.succeeded as f64)
    }

    fn add(&mut self, other: &Self) {
        let Self {
            writer: _,
            target: _,
            reads,
            writes,
            succeeded,
            no_ops,
            conflicts,
            invalid,
            other_errors,
            generation_moved,
            resource_version_moved,
        } = other;
        self.reads += reads;
        self.writes += writes;
        self.succeeded += succeeded;
        self.no_ops += no_ops;
        self.conflicts += conflicts;
        self.invalid += invalid;
        self.other_errors += other_errors;
        self.generation_moved += generation_moved;
        self.resource_version_moved += resource_version_moved;
    }
}

/// The counts of all writers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RequestCosts {
    /// One row for each writer and subresource, sorted by writer.
    pub rows: Vec<CostRow>,
    /// One row for each writer: reads are of the object, whichever subresource they are for.
    pub totals: Vec<CostRow>,
}

impl RequestCosts {
    /// Counts the reads and writes of the objects selected by `wanted`.
    pub fn of(events: &[Event], wanted: impl Fn(&ObjectKey) -> bool) -> Self {
        let chosen: Vec<(&Event, &ObjectKey)> = events
            .iter()
            .filter_map(|event| Some((event, event.object.as_ref()?)))
            .filter(|(_, object)| wanted(object))
            .collect();
        let mut rows: BTreeMap<(String, String), CostRow> = BTreeMap::new();
        for (event, _) in chosen.iter().filter(|(event, _)| event.is_write() || event.verb == "get") {
            let row = row_of(&mut rows, event);
            if event.verb == "get" {
                row.reads += 1;
                continue;
            }
            row.writes += 1;
            match event.code {
                200..300 => row.succeeded += 1,
                409 => row.conflicts += 1,
                422 => row.invalid += 1,
                _ => row.other_errors += 1,
            }
        }
        let objects: BTreeSet<&ObjectKey> = chosen.iter().map(|(_, object)| *object).collect();
        for write in objects.into_iter().flat_map(|object| history::of_object(events, object)) {
            let row = row_of(&mut rows, write.event);
            match write.effect {
                Effect::Moved { generation_moved } => {
                    row.resource_version_moved += 1;
                    row.generation_moved += u64::from(generation_moved);
                }
                Effect::NoOp => row.no_ops += 1,
                Effect::Removed => {}
            }
        }
        let rows: Vec<CostRow> = rows.into_values().collect();
        let mut totals: BTreeMap<String, CostRow> = BTreeMap::new();
        for row in &rows {
            let total = totals.entry(row.writer.clone()).or_insert_with(|| CostRow {
                writer: row.writer.clone(),
                target: "all".into(),
                ..CostRow::default()
            });
            total.add(row);
        }
        Self { rows, totals: totals.into_values().collect() }
    }

    /// The row of one writer and one target, as in `("tandem:nodepool-operator", "nodepools/status")`; `None` when
    /// there is none.
    pub fn row(&self, writer: &str, target: &str) -> Option<&CostRow> {
        self.rows.iter().chain(&self.totals).find(|row| row.writer == writer && row.target == target)
    }

    /// Number of requests answered with 409, over all writers.
    pub fn conflicts(&self) -> u64 {
        self.totals.iter().map(|row| row.conflicts).sum()
    }
}

fn row_of<'a>(rows: &'a mut BTreeMap<(String, String), CostRow>, event: &Event) -> &'a mut CostRow {
    let resource = event.object.as_ref().map_or("", |object| object.resource.as_str());
    let target = match event.subresource.as_str() {
        "" => resource.to_owned(),
        subresource => format!("{resource}/{subresource}"),
    };
    let writer = event.writer().to_owned();
    rows.entry((writer.clone(), target.clone())).or_insert_with(|| CostRow {
        writer,
        target,
        ..CostRow::default()
    })
}

/// The table, with aligned columns; a writer's total follows its rows when there is more than one.
impl fmt::Display for RequestCosts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEAD: [&str; 12] = [
            "WRITER",
            "TARGET",
            "READS",
            "WRITES",
            "OK",
            "NO-OP",
            "409",
            "422",
            "OTHER",
            "REQ/OK",
            "GENERATION",
            "RESOURCEVERSION",
        ];
        let mut lines: Vec<[String; 12]> = vec![HEAD.map(String::from)];
        for total in &self.totals {
            let own: Vec<&CostRow> = self.rows.iter().filter(|row| row.writer == total.writer).collect();
            lines.extend(own.iter().map(|row| cells(row)));
            if own.len() > 1 {
                lines.push(cells(total));
            }
        }
        let width = |column: usize| {
            lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..HEAD.len()).filter_map(width).collect();
        for line in &lines {
            let mut text = String::new();
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                // Text is left-aligned, numbers are right-aligned.
                if column < 2 {
                    write!(text, "{cell:<width$}  ")?;
                } else {
                    write!(text, "{cell:>width$}  ")?;
                }
            }
            writeln!(formatter, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

fn cells(row: &CostRow) -> [String; 12] {
    [
        row.writer.clone(),
        row.target.clone(),
        row.reads.to_string(),
        row.writes.to_string(),
        row.succeeded.to_string(),
        row.no_ops.to_string(),
        row.conflicts.to_string(),
        row.invalid.to_string(),
        row.other_errors.to_string(),
        row.requests_per_write().map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
        format!("+{}", row.generation_moved),
        format!("+{}", row.resource_version_moved),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::audit::tests::Wrote;

    fn object(version: &str, generation: i64, replicas: i64) -> Value {
        json!({
            "metadata": {"resourceVersion": version, "generation": generation},
            "spec": {"replicas": replicas},
        })
    }

    fn event(
        user: &str,
        verb: &str,
        subresource: &str,
        request: Value,
        code: u16,
        response: Value,
        at: i64,
    ) -> Event {
        Wrote { user, verb, subresource, request, code, response, at }.event()
    }

    /// A create; a status write that fails once and succeeds after a read; a scale; a status write that changes
    /// nothing.
    fn sample_events() -> Vec<Event> {
        let based = |base: &str| json!({"metadata": {"resourceVersion": base}});
        vec![
            event("admin", "create", "", Value::Null, 201, object("10", 1, 1), 0),
            event(
                "auto",
                "patch",
                "scale",
                json!([]),
                200,
                json!({"metadata": {"resourceVersion": "11"}, "spec": {"replicas": 3}}),
                1,
            ),
            event("pool", "update", "status", based("10"), 409, Value::Null, 2),
            event("pool", "get", "", Value::Null, 200, Value::Null, 3),
            event("pool", "update", "status", based("11"), 200, object("12", 2, 3), 4),
            event("pool", "update", "status", based("12"), 200, object("12", 2, 3), 5),
            event("auto", "patch", "scale", json!([]), 422, Value::Null, 6),
        ]
    }

    #[test]
    fn requests_conflicts_and_movements_are_counted_per_writer_and_subresource() {
        let costs = RequestCosts::of(&sample_events(), |_| true);
        let status = costs.row("pool", "nodepools/status").unwrap();
        assert_eq!((status.writes, status.succeeded, status.conflicts, status.no_ops), (3, 2, 1, 1));
        assert_eq!((status.resource_version_moved, status.generation_moved), (1, 0));
        let scale = costs.row("auto", "nodepools/scale").unwrap();
        assert_eq!((scale.writes, scale.succeeded, scale.invalid), (2, 1, 1));
        assert_eq!((scale.resource_version_moved, scale.generation_moved), (1, 1));
        let created = costs.row("admin", "nodepools").unwrap();
        assert_eq!((created.resource_version_moved, created.generation_moved), (1, 1));
        assert_eq!(costs.conflicts(), 1);
    }

    #[test]
    fn a_writers_total_counts_the_reads_that_its_retries_cost() {
        let costs = RequestCosts::of(&sample_events(), |_| true);
        let total = costs.row("pool", "all").unwrap();
        assert_eq!((total.reads, total.writes, total.succeeded), (1, 3, 2));
        assert_eq!(total.requests_per_write(), Some(2.0));
    }

    #[test]
    fn a_scale_to_the_same_count_does_not_move_the_generation() {
        let scaled = |version: &str, at| {
            let response = json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": 3}});
            event("auto", "patch", "scale", json!([]), 200, response, at)
        };
        let events = [
            event("admin", "create", "", Value::Null, 201, object("10", 1, 1), 0),
            scaled("11", 1),
            scaled("12", 2),
        ];
        let costs = RequestCosts::of(&events, |_| true);
        let row = costs.row("auto", "nodepools/scale").unwrap();
        assert_eq!((row.resource_version_moved, row.generation_moved), (2, 1));
    }

    #[test]
    fn the_table_is_aligned() {
        let table = RequestCosts::of(&sample_events(), |_| true).to_string();
        let expected = "\
WRITER  TARGET            READS  WRITES  OK  NO-OP  409  422  OTHER  REQ/OK  GENERATION  RESOURCEVERSION
admin   nodepools             0       1   1      0    0    0      0    1.00          +1               +1
auto    nodepools/scale       0       2   1      0    0    1      0    2.00          +1               +1
pool    nodepools             1       0   0      0    0    0      0       -          +0               +0
pool    nodepools/status      0       3   2      1    1    0      0    1.50          +0               +1
pool    all                   1       3   2      1    1    0      0    2.00          +0               +1
";
        assert_eq!(table, expected);
    }
}

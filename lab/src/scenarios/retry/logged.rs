//! Captures the log events of `conflict_retry`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// One event.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// `DEBUG`, `WARN`, …
    pub(super) level: String,
    /// Its fields.
    pub(super) fields: BTreeMap<&'static str, String>,
}

/// A layer that stores the events of `conflict_retry`.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<Line>>>);

impl Log {
    /// The events so far.
    pub(super) fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if !event.metadata().target().starts_with("conflict_retry") {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let line = Line { level: event.metadata().level().to_string(), fields: fields.0 };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

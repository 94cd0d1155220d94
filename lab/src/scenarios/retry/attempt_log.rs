//! An observer that writes down what `conflict_retry` tells of each request.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use conflict_retry::{AttemptEvent, FinishedEvent, Observer};

/// What was told of a request.
#[derive(Clone, Debug)]
pub(super) struct Note {
    /// What it failed of.
    pub(super) class: Option<&'static str>,
    /// The pause that follows.
    pub(super) pause: Option<Duration>,
}

/// Everything that was told.
#[derive(Default)]
pub(super) struct Notebook {
    notes: Mutex<Vec<Note>>,
    queued: Mutex<Duration>,
}

impl Notebook {
    /// The requests so far.
    pub(super) fn notes(&self) -> Vec<Note> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The pauses so far.
    pub(super) fn pauses(&self) -> Vec<Duration> {
        self.notes().iter().filter_map(|note| note.pause).collect()
    }

    /// How long writes that have ended waited for leave to send.
    pub(super) fn queued(&self) -> Duration {
        *self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Notebook {
    fn attempt(&self, event: &AttemptEvent<'_>) {
        let class = event.class.map(conflict_retry::Class::label);
        let note = Note { class, pause: event.delay };
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    fn finished(&self, event: &FinishedEvent<'_>) {
        *self.queued.lock().unwrap_or_else(PoisonError::into_inner) += event.queued;
    }
}

//! Spans: requests of one writer in quick succession, which a reconcile usually is.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

/// The longest pause within a span.
pub(crate) const GAP: SignedDuration = SignedDuration::from_millis(50);

/// Requests of one writer without a pause between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    /// Number of requests in it, about any object.
    pub(crate) requests: usize,
}

/// Collects spans while the log is read: those with a shown request, and one open span per writer.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    open: HashMap<(String, String), (Span, bool)>,
    kept: HashMap<(String, String), Vec<Span>>,
}

impl Spans {
    /// Adds a request of `writer`; `shown` if it is on the page.
    pub(crate) fn add(&mut self, writer: (String, String), start: Timestamp, end: Timestamp, shown: bool) {
        let fresh = Span { start, end, requests: 1 };
        let Some((open, has_shown)) = self.open.get_mut(&writer) else {
            self.open.insert(writer, (fresh, shown));
            return;
        };
        // Lines are in the order of the answers, so a request may have begun before the previous one.
        if start <= open.end + GAP && end + GAP >= open.start {
            open.start = open.start.min(start);
            open.end = open.end.max(end);
            open.requests += 1;
            *has_shown |= shown;
            return;
        }
        let (done, keep) = (std::mem::replace(open, fresh), std::mem::replace(has_shown, shown));
        if keep {
            self.kept.entry(writer).or_default().push(done);
        }
    }

    /// All spans, by writer.
    pub(crate) fn finish(mut self) -> HashMap<(String, String), Vec<Span>> {
        for (writer, (span, shown)) in self.open {
            if shown {
                self.kept.entry(writer).or_default().push(span);
            }
        }
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + millis).unwrap()
    }

    fn writer(name: &str) -> (String, String) {
        (name.to_owned(), String::new())
    }

    #[test]
    fn requests_closer_than_the_gap_are_one_span() {
        let mut spans = Spans::default();
        for (start, end) in [(0, 10), (60, 70), (121, 130)] {
            spans.add(writer("a"), at(start), at(end), true);
        }
        let found = spans.finish().remove(&writer("a")).unwrap();
        assert_eq!(
            found,
            [
                Span { start: at(0), end: at(70), requests: 2 },
                Span { start: at(121), end: at(130), requests: 1 }
            ]
        );
    }

    #[test]
    fn requests_about_other_objects_count_but_a_span_without_a_shown_one_is_dropped() {
        let mut spans = Spans::default();
        spans.add(writer("a"), at(0), at(10), false);
        spans.add(writer("a"), at(1000), at(1010), false);
        spans.add(writer("a"), at(1020), at(1030), true);
        spans.add(writer("b"), at(1020), at(1030), false);
        let found = spans.finish();
        assert_eq!(found.len(), 1);
        assert_eq!(found[&writer("a")], [Span { start: at(1000), end: at(1030), requests: 2 }]);
    }

    #[test]
    fn a_request_that_began_earlier_but_ended_later_belongs_to_the_same_span() {
        let mut spans = Spans::default();
        spans.add(writer("a"), at(100), at(110), true);
        spans.add(writer("a"), at(20), at(120), true);
        let found = spans.finish().remove(&writer("a")).unwrap();
        assert_eq!(found, [Span { start: at(20), end: at(120), requests: 2 }]);
    }
}

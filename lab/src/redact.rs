//! Replaces what differs from run to run without a meaning: versions become `v1`, `v2`, … in their order, UIDs `uid-1`,
//! `uid-2`, … in the order of their appearance, and the namespace `lab`.

use std::collections::BTreeSet;

use crate::event::{RecordedRequest, TranscriptEvent, What};

/// The replacements of one scenario.
pub struct Redactions {
    versions: Vec<u128>,
    uids: Vec<String>,
    namespace: String,
}

impl Redactions {
    /// The replacements for everything that the page of these events shows.
    pub fn of(events: &[TranscriptEvent], namespace: &str) -> Self {
        let mut versions = BTreeSet::new();
        let mut uids = Vec::new();
        for event in events.iter().filter(|event| !event.live) {
            if let What::Request(request) = &event.what {
                versions.extend(
                    request.version.iter().chain(&request.from).filter_map(|text| text.parse::<u128>().ok()),
                );
            }
            for text in texts(&event.what) {
                versions.extend(marked(text).filter_map(|marked| marked.parse::<u128>().ok()));
                for uid in uids_in(text) {
                    if !uids.iter().any(|known| known == uid) {
                        uids.push(uid.to_owned());
                    }
                }
            }
        }
        Self { versions: versions.into_iter().collect(), uids, namespace: namespace.to_owned() }
    }

    /// The replacement of `version`, or the text itself if it is not a known version.
    pub fn version(&self, version: &str) -> String {
        let number = version.parse().ok();
        let place = number.and_then(|number: u128| self.versions.binary_search(&number).ok());
        place.map_or_else(|| version.to_owned(), |place| format!("v{}", place + 1))
    }

    /// `text` with marked versions, UIDs and the namespace replaced.
    pub fn text(&self, text: &str) -> String {
        let mut named = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(OPEN) {
            named.push_str(before);
            match after.split_once(CLOSE) {
                Some((version, after)) => {
                    named.push_str(&self.version(version));
                    rest = after;
                }
                None => rest = after,
            }
        }
        named.push_str(rest);
        for (place, uid) in self.uids.iter().enumerate() {
            named = named.replace(uid, &format!("uid-{}", place + 1));
        }
        named.replace(&self.namespace, "lab")
    }

    /// A server's message with the same replaced. Its versions are not marked, so if it contains the word "version",
    /// every whole number that equals a known version is replaced.
    pub fn message(&self, message: &str) -> String {
        let message = self.text(message);
        if !message.to_lowercase().contains("version") {
            return message;
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let mut named = String::with_capacity(message.len());
        for word in message.split_inclusive(|c: char| !is_word(c)) {
            let whole = word.trim_end_matches(|c: char| !is_word(c));
            named.push_str(&self.version(whole));
            named.push_str(&word[whole.len()..]);
        }
        named
    }
}

const OPEN: char = '\u{2039}';
const CLOSE: char = '\u{203a}';

/// `text` without the marks around versions.
pub fn plain(text: &str) -> String {
    text.replace([OPEN, CLOSE], "")
}

fn marked(text: &str) -> impl Iterator<Item = &str> {
    text.split(OPEN).skip(1).filter_map(|after| after.split_once(CLOSE)).map(|(version, _)| version)
}

fn texts(what: &What) -> Vec<&str> {
    match what {
        What::Say { text } | What::Act { text, .. } | What::Quote { text } => vec![text],
        What::Check { claim, .. } => vec![claim],
        What::Costs { .. } => Vec::new(),
        What::Table(table) => table.rows.iter().flatten().map(String::as_str).collect(),
        What::Request(request) => {
            let RecordedRequest { message, from, .. } = &**request;
            [Some(message), from.as_ref()].into_iter().flatten().map(String::as_str).collect()
        }
    }
}

/// All words of `text` that have the form of a UID: 8-4-4-4-12 hexadecimal digits.
fn uids_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !(character.is_ascii_hexdigit() || character == '-')).filter(|word| {
        let lengths: Vec<usize> = word.split('-').map(str::len).collect();
        lengths == [8, 4, 4, 4, 12]
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::version;

    fn event(what: What) -> TranscriptEvent {
        TranscriptEvent { at: Duration::ZERO, live: false, what }
    }

    #[test]
    fn versions_are_numbered_in_their_order_and_not_in_that_of_their_appearance() {
        let request = RecordedRequest {
            version: Some("1200".into()),
            from: Some("998".into()),
            ..RecordedRequest::default()
        };
        let said = What::Say { text: format!("it moved to {}", version("1300")) };
        let events = [event(What::Request(Box::new(request))), event(said)];
        let names = Redactions::of(&events, "tandem-lab-x");
        assert_eq!([names.version("998"), names.version("1200"), names.version("1300")], ["v1", "v2", "v3"]);
        assert_eq!(names.text(&format!("it moved to {}", version("1300"))), "it moved to v3");
        assert_eq!(
            names.message("too old resource version: 998 (1200), x998"),
            "too old resource version: v1 (v2), x998"
        );
    }

    #[test]
    fn versions_that_the_page_leaves_out_get_no_number() {
        let mut hidden = event(What::Request(Box::new(RecordedRequest {
            version: Some("1".into()),
            ..RecordedRequest::default()
        })));
        hidden.live = true;
        let shown = event(What::Request(Box::new(RecordedRequest {
            version: Some("2".into()),
            ..RecordedRequest::default()
        })));
        assert_eq!(Redactions::of(&[hidden, shown], "tandem-lab-x").version("2"), "v1");
    }

    #[test]
    fn uids_and_the_namespace_are_replaced() {
        let text =
            "n/p has UID 0d9f0c5e-5d0c-4a0e-9d2b-0a3b6f7c8d9e, not 1d9f0c5e-5d0c-4a0e-9d2b-0a3b6f7c8d9e";
        let names = Redactions::of(&[event(What::Quote { text: text.into() })], "tandem-lab-x");
        assert_eq!(names.text(text), "n/p has UID uid-1, not uid-2");
        assert_eq!(names.text("in tandem-lab-x"), "in lab");
    }
}

//! First aid for write conflicts: the error texts that people meet, and for each its case, cause and cure. Pure: the data
//! (`cases.toml`) is in the binary. The documentation's front page, the timeline of an audit log and the lab's own tests
//! read the same cases.

pub mod page;

use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

/// Everything that is known.
#[derive(Debug, Deserialize, Serialize)]
pub struct FirstAid {
    /// The cases. The first one that matches a text is its case.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
    /// For a reader without a text: at most three questions lead to a case. The first one is the start.
    #[serde(rename = "question")]
    pub questions: Vec<Question>,
}

/// One kind of error.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name in links.
    pub id: String,
    /// What happened, in the words that people search for.
    pub title: String,
    /// Regular expressions, of which one is in the text; upper and lower case are the same. Rust's and JavaScript's
    /// syntax.
    pub matches: Vec<String>,
    /// Examples, as programs print them.
    pub texts: Vec<String>,
    /// Why it happened.
    pub cause: String,
    /// What to do.
    pub fix: String,
    /// Whether it is a conflict of resourceVersions.
    pub is_conflict: bool,
    /// Whether to send it again, and how.
    pub retry: String,
    /// The cure with code to copy.
    pub cure: Option<String>,
    /// The lab's scenario that shows it.
    pub scenario: Option<String>,
    /// What public pages recommend, and why it hurts.
    #[serde(default)]
    pub wrong_advice: Vec<WrongAdvice>,
    /// Where Kubernetes documents it.
    #[serde(default)]
    pub sources: Vec<Link>,
}

/// Advice that does not help.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WrongAdvice {
    /// What is advised.
    pub advice: String,
    /// Why it hurts.
    pub why: String,
}

/// A link.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its text.
    pub title: String,
    /// Its address.
    pub url: String,
}

/// One question.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Its name.
    pub id: String,
    /// The question.
    pub ask: String,
    /// What can be answered.
    pub answers: Vec<Answer>,
}

/// One answer.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The answer.
    pub say: String,
    /// The question or case that it leads to.
    pub to: String,
}

static FIRST_AID: LazyLock<FirstAid> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the file is part of the binary, and a test reads it")]
    toml::from_str(include_str!("../cases.toml")).expect("cases.toml is as its types")
});

static PATTERNS: LazyLock<Vec<(Regex, &'static Case)>> = LazyLock::new(|| {
    let of_case = |case: &'static Case| {
        let compiled = |pattern: &String| RegexBuilder::new(pattern).case_insensitive(true).build();
        #[expect(clippy::expect_used, reason = "the file is part of the binary, and a test compiles each")]
        case.matches.iter().map(move |pattern| (compiled(pattern).expect("a regular expression"), case))
    };
    FIRST_AID.cases.iter().flat_map(of_case).collect()
});

impl FirstAid {
    /// What is in the binary.
    pub fn get() -> &'static Self {
        &FIRST_AID
    }

    /// The case of this name.
    pub fn case(&self, id: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.id == id)
    }
}

/// The case of an error text, which may stand within other text; `None` if it is none of these.
pub fn diagnose(text: &str) -> Option<&'static Case> {
    PATTERNS.iter().find(|(pattern, _)| pattern.is_match(text)).map(|(_, case)| *case)
}

/// Where in an error text that begins which leads to its case.
pub(crate) fn found_at(text: &str) -> Option<usize> {
    PATTERNS.iter().find_map(|(pattern, _)| pattern.find(text)).map(|found| found.start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Heard {
        heard: Vec<HeardText>,
        none: Vec<NoCase>,
    }

    #[derive(Deserialize)]
    struct HeardText {
        text: String,
        from: String,
        case: String,
    }

    #[derive(Deserialize)]
    struct NoCase {
        text: String,
    }

    #[test]
    fn each_example_leads_to_its_own_case() {
        for case in &FirstAid::get().cases {
            assert!(case.texts.len() >= 2, "{}", case.id);
            for text in &case.texts {
                assert_eq!(diagnose(text).map(|found| found.id.as_str()), Some(case.id.as_str()), "{text}");
            }
        }
    }

    #[test]
    fn texts_from_issue_trackers_lead_to_their_case() {
        let heard: Heard = toml::from_str(include_str!("../heard.toml")).unwrap();
        assert!(heard.heard.len() >= 40 && heard.none.len() >= 6);
        for HeardText { text, from, case } in &heard.heard {
            assert_eq!(diagnose(text).map(|found| found.id.as_str()), Some(case.as_str()), "{from}: {text}");
        }
        for NoCase { text } in &heard.none {
            assert_eq!(diagnose(text).map(|found| found.id.as_str()), None, "{text}");
        }
    }

    #[test]
    fn a_text_within_a_log_line_and_in_other_letters_is_found() {
        let line = "E0102 controller.go:329 \"Reconciler error\" err=\"OPERATION cannot be fulfilled on widgets.example.com \\\"a\\\": the object has been modified; please apply your changes to the latest version and try again\"";
        assert!(diagnose(line).is_some_and(|case| case.is_conflict));
        assert!(diagnose("").is_none());
    }

    #[test]
    fn every_case_is_reached_by_at_most_three_questions_or_by_its_text() {
        let all = FirstAid::get();
        let ids: Vec<&str> = all.cases.iter().map(|case| case.id.as_str()).collect();
        for (place, id) in ids.iter().enumerate() {
            assert!(!ids[..place].contains(id), "{id} twice");
        }
        let mut open = vec![(&all.questions[0], 1)];
        let mut asked = 0;
        while let Some((question, depth)) = open.pop() {
            assert!(depth <= 3, "{} is the question number {depth}", question.id);
            asked += 1;
            for answer in &question.answers {
                match all.questions.iter().find(|next| next.id == answer.to) {
                    Some(next) => open.push((next, depth + 1)),
                    None => assert!(ids.contains(&answer.to.as_str()), "{}: {}", question.id, answer.to),
                }
            }
        }
        assert!(asked >= all.questions.len(), "a question that is never asked");
    }

    #[test]
    fn patterns_are_within_what_rust_and_javascript_share() {
        for pattern in FirstAid::get().cases.iter().flat_map(|case| &case.matches) {
            for not_shared in ["(?", "\\A", "\\z", "\\h", "[[:", "\\p"] {
                assert!(!pattern.replace("(?:", "(").contains(not_shared), "{pattern}");
            }
            assert!(Regex::new(pattern).is_ok(), "{pattern}");
            assert!(!Regex::new(pattern).unwrap().is_match(""), "{pattern} matches everything");
        }
    }
}

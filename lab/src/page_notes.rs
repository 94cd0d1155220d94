//! What a scenario's page says beside its run: search words, the reason, sources, and what to read next (`pages.toml`).

use std::sync::LazyLock;

use first_aid::Link;
use serde::Deserialize;

/// The notes of one page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageNotes {
    /// The scenario.
    pub name: String,
    /// What people type into a search box and is answered here.
    pub search: Vec<String>,
    /// Why the API server behaves so.
    pub why: String,
    /// Where Kubernetes says it.
    pub sources: Vec<Link>,
    /// The cure with code to copy.
    pub cure: Option<String>,
    /// Scenarios to read next.
    pub next: Vec<String>,
    /// Other documents to read next, with paths from `docs/conflicts`.
    #[serde(default)]
    pub documents: Vec<Link>,
    /// The narrated part at which the picture begins; 1 is the first.
    #[serde(default = "first")]
    pub picture: usize,
    /// Why it has no picture, if it has none.
    pub no_picture: Option<String>,
}

const fn first() -> usize {
    1
}

#[derive(Deserialize)]
struct Pages {
    page: Vec<PageNotes>,
}

static PAGES: LazyLock<Vec<PageNotes>> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the file is part of the binary, and a test reads it")]
    let pages: Pages = toml::from_str(include_str!("pages.toml")).expect("pages.toml is as its types");
    pages.page
});

/// All notes.
pub fn all() -> &'static [PageNotes] {
    &PAGES
}

/// The notes of a scenario.
pub fn of(name: &str) -> Option<&'static PageNotes> {
    PAGES.iter().find(|notes| notes.name == name)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cures::task::task;
    use crate::scenarios;

    #[test]
    fn every_scenario_has_notes_that_name_what_is_there() {
        let names: Vec<&str> = scenarios::all().iter().map(|scenario| scenario.name).collect();
        for name in &names {
            assert!(of(name).is_some(), "{name} has no notes in pages.toml");
        }
        for notes in all() {
            let name = &notes.name;
            assert!(names.contains(&name.as_str()), "{name} is no scenario");
            assert!(!notes.search.is_empty() && !notes.why.is_empty() && notes.picture > 0, "{name}");
            assert!(
                notes.next.iter().all(|next| names.contains(&next.as_str()) && next != name),
                "{name}: {:?}",
                notes.next
            );
            assert!(notes.cure.iter().all(|cure| task(cure).is_some()), "{name}: {:?}", notes.cure);
            let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/conflicts"));
            for Link { url, .. } in &notes.documents {
                assert!(directory.join(url).is_file(), "{name}: {url}");
            }
        }
    }

    #[test]
    fn every_page_has_a_picture_or_says_why_it_has_none() {
        let pictures = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/conflicts/pictures");
        for PageNotes { name, no_picture, .. } in all() {
            let has_one = Path::new(pictures).join(format!("{name}.svg")).exists();
            assert!(has_one != no_picture.is_some(), "{name}: picture {has_one}, reason {no_picture:?}");
        }
    }

    #[test]
    fn first_aid_names_scenarios_and_cures_that_are_there() {
        for case in &first_aid::FirstAid::get().cases {
            assert!(case.cure.iter().all(|cure| task(cure).is_some()), "{}: {:?}", case.id, case.cure);
            let is_there = |name: &String| scenarios::all().iter().any(|scenario| scenario.name == name);
            assert!(case.scenario.iter().all(is_there), "{}: {:?}", case.id, case.scenario);
        }
    }
}

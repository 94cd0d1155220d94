//! Links between documents, as they are in the repository, made to hold on the site.

use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Result, bail};
use regex::{Captures, Regex};

use crate::contents::Document;

/// Where files are that are not on the site.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Targets of links: `](target)`, `](target "title")`, and attributes of raw HTML.
#[expect(clippy::expect_used, reason = "a constant, which a test compiles")]
static TARGET: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(\]\()([^)\s]+)|((?:href|src)=")([^"]+)"#).expect("a regular expression"));

/// `text` with links that hold on the site. Files that a link shows, such as pictures, are added to `assets`.
///
/// # Errors
/// When a link leads nowhere.
pub(crate) fn rewritten(
    root: &Path,
    documents: &[Document],
    document: &Document,
    text: &str,
    assets: &mut Vec<PathBuf>,
) -> Result<String> {
    let mut result = String::with_capacity(text.len());
    let mut broken = Vec::new();
    let mut is_code = false;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            result.push_str(line);
            continue;
        }
        let replaced = TARGET.replace_all(line, |found: &Captures<'_>| {
            let whole = found.get_match();
            if is_within_code(&line[..whole.start()]) {
                return whole.as_str().to_owned();
            }
            let (before, target) = match (found.get(1), found.get(2), found.get(3), found.get(4)) {
                (Some(before), Some(target), ..) | (.., Some(before), Some(target)) => {
                    (before.as_str(), target.as_str())
                }
                _ => return String::new(),
            };
            let on_site = on_site(root, documents, document, target, assets);
            if on_site.is_none() {
                broken.push(target.to_owned());
            }
            format!("{before}{}", on_site.unwrap_or_default())
        });
        result.push_str(&replaced);
    }
    if broken.is_empty() { Ok(result) } else { bail!("links that lead nowhere: {}", broken.join(", ")) }
}

/// Whether code has begun in the line and not ended, such as a regular expression, which may look like a link.
fn is_within_code(before: &str) -> bool {
    before.matches('`').count() % 2 == 1
}

fn on_site(
    root: &Path,
    documents: &[Document],
    document: &Document,
    target: &str,
    assets: &mut Vec<PathBuf>,
) -> Option<String> {
    if target.contains("://") || target.starts_with('#') || target.starts_with("mailto:") {
        return Some(target.to_owned());
    }
    let (path, fragment) =
        target.split_once('#').map_or((target, None), |(path, fragment)| (path, Some(fragment)));
    let fragment = fragment.map(|fragment| format!("#{fragment}")).unwrap_or_default();
    let file = normal(&document.source.parent().unwrap_or(Path::new("")).join(path))?;
    let here = document.page.parent().unwrap_or(Path::new(""));
    if let Some(to) = documents.iter().find(|other| other.source == file) {
        return Some(format!("{}{fragment}", relative(here, &to.page)));
    }
    let full = root.join(&file);
    if full.is_dir() {
        let index = file.join("README.md");
        if let Some(to) = documents.iter().find(|other| other.source == index) {
            return Some(format!("{}{fragment}", relative(here, &to.page)));
        }
        return Some(format!("{REPOSITORY}/tree/main/{}", file.display()));
    }
    let is_shown = file.extension().is_some_and(|kind| kind == "svg" || kind == "png");
    if is_shown && full.is_file() {
        let shown = relative(here, &file);
        assets.push(file);
        return Some(shown);
    }
    full.is_file().then(|| format!("{REPOSITORY}/blob/main/{}{fragment}", file.display()))
}

/// A path without `.` and `..`; `None` if it leaves the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::ParentDir => parts.pop().then_some(())?,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts)
}

/// The path from the directory `here` to `to`, both from the site's root.
fn relative(here: &Path, to: &Path) -> String {
    let shared = here.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = here.components().count() - shared;
    let down: PathBuf = to.components().skip(shared).collect();
    format!("{}{}", "../".repeat(up), down.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_from_one_page_to_another() {
        assert_eq!(relative(Path::new("docs/conflicts"), Path::new("index.md")), "../../index.md");
        assert_eq!(relative(Path::new("docs/conflicts"), Path::new("docs/conflicts/a.md")), "a.md");
        assert_eq!(relative(Path::new(""), Path::new("docs/a.md")), "docs/a.md");
        assert_eq!(normal(Path::new("docs/a/../b.md")), Some(PathBuf::from("docs/b.md")));
        assert_eq!(normal(Path::new("../x")), None);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_an_error_and_code_is_left_alone() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let documents = crate::documents(root).unwrap();
        let readme = documents.iter().find(|document| document.source == Path::new("README.md")).unwrap();
        let mut assets = Vec::new();
        let text = "[a](docs/README.md#x) [b](lab/src/lib.rs) [c](https://example.com) `([x](nowhere)` [`e`](docs/README.md)\n```\n[d](nowhere)\n```\n";
        let text = rewritten(root, &documents, readme, text, &mut assets).unwrap();
        assert!(text.contains("[a](docs/README.md#x)") && text.contains("[d](nowhere)"), "{text}");
        assert!(text.contains("`([x](nowhere)` [`e`](docs/README.md)"), "{text}");
        assert!(text.contains(&format!("[b]({REPOSITORY}/blob/main/lab/src/lib.rs)")), "{text}");
        let error = rewritten(root, &documents, readme, "[d](nowhere.md)", &mut assets).unwrap_err();
        assert!(error.to_string().contains("nowhere.md"), "{error}");
    }
}

//! Every link of the built site leads to a file, and to a place in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context as _, Result, bail};
use regex::Regex;

/// Most broken links in a message.
const SHOWN: usize = 20;

#[expect(clippy::expect_used, reason = "a constant, which a test compiles")]
static LINK: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(?:href|src)="([^"]*)""#).expect("a regular expression"));
#[expect(clippy::expect_used, reason = "a constant, which a test compiles")]
static ID: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"\sid="([^"]*)""#).expect("a regular expression"));

/// The number of links within the site.
///
/// # Errors
/// When one leads nowhere, or a page loads something from another host.
pub(crate) fn links(site: &Path) -> Result<usize> {
    let mut pages = BTreeMap::new();
    read(site, &mut pages)?;
    let ids: BTreeMap<&PathBuf, BTreeSet<&str>> =
        pages.iter().map(|(page, text)| (page, captures(&ID, text).collect())).collect();
    let mut count = 0;
    let mut broken = Vec::new();
    for (page, text) in &pages {
        let here = page.parent().context("a page is in a directory")?;
        for target in captures(&LINK, text) {
            let target = target.replace("&amp;", "&");
            if target.contains(':') || target.starts_with("//") {
                continue;
            }
            count += 1;
            let (path, fragment) = target.split_once('#').unwrap_or((&target, ""));
            let path = path.split('?').next().unwrap_or_default();
            let file = if path.is_empty() { page.clone() } else { here.join(path) };
            let Ok(file) = file.canonicalize() else {
                broken.push(format!("{} → {target}", page.display()));
                continue;
            };
            let is_there = ids.get(&file).is_none_or(|ids| fragment.is_empty() || ids.contains(fragment));
            if !is_there {
                broken.push(format!("{} → {target} (no such place)", page.display()));
            }
        }
    }
    let loaded = Regex::new(r#"<(?:script|img|iframe)[^>]*src="https?:|<link[^>]*href="https?:"#)?;
    for (page, _) in pages.iter().filter(|(_, text)| loaded.is_match(text)) {
        broken.push(format!("{} loads something from another host", page.display()));
    }
    if broken.is_empty() {
        return Ok(count);
    }
    let more = broken.len().saturating_sub(SHOWN);
    broken.truncate(SHOWN);
    bail!(
        "{} links lead nowhere:\n  {}{}",
        broken.len() + more,
        broken.join("\n  "),
        if more > 0 { "\n  …" } else { "" }
    )
}

fn captures<'t>(of: &'static Regex, text: &'t str) -> impl Iterator<Item = &'t str> {
    of.captures_iter(text).filter_map(|found| found.get(1)).map(|found| found.as_str())
}

fn read(directory: &Path, pages: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, pages)?;
        } else if path.extension().is_some_and(|kind| kind == "html") {
            let text = std::fs::read_to_string(&path)?;
            pages.insert(path.canonicalize()?, text);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_links_missing_places_and_other_hosts_are_found() {
        let site = tempfile::tempdir().unwrap();
        let page = |name: &str, text: &str| std::fs::write(site.path().join(name), text).unwrap();
        page("a.html", "<h1 id=\"top\"></h1><a href=\"b.html#x\">b</a><a href=\"#top\">t</a>");
        page("b.html", "<p id=\"x\"></p><a href=\"https://example.com\">e</a>");
        assert_eq!(links(site.path()).unwrap(), 2);
        page("b.html", "<p id=\"y\"></p><a href=\"c.html\">c</a>");
        let error = links(site.path()).unwrap_err().to_string();
        assert!(error.contains("c.html") && error.contains("b.html#x (no such place)"), "{error}");
        page("b.html", "<p id=\"x\"></p><script src=\"https://example.com/x.js\"></script>");
        assert!(links(site.path()).unwrap_err().to_string().contains("another host"));
    }
}

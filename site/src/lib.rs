//! The documentation site. [`build`] makes it from the documents in the repository with mdBook: one directory of static
//! files, which needs no server and no network.

mod check;
mod contents;
mod inline;
mod links;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use mdbook_driver::MDBook;
use mdbook_driver::config::{Config, HtmlConfig};

pub use contents::{Document, documents};

/// The style and the script of the site's own parts.
const STYLE: &str = include_str!("../assets/site.css");
const SCRIPT: &str = include_str!("../assets/site.js");
/// The script of the bars over tables of figures.
const BILL: &str = include_str!("../assets/bill.js");

/// The file by which a site of this crate is known: another book is not to be replaced.
const MARK: &str = ".tandem-site";

/// What was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// Pages.
    pub pages: usize,
    /// Links that were checked.
    pub links: usize,
}

/// Builds the site of the repository at `root` in `out`, which must be empty or a site that was built before.
///
/// # Errors
/// When `out` holds something else, a document or link leads nowhere, or a file cannot be written.
pub fn build(root: &Path, out: &Path) -> Result<Built> {
    clear(out)?;
    let documents = documents(root)?;
    let place =
        tempfile::Builder::new().prefix("tandem-site-").tempdir().context("no temporary directory")?;
    let source = place.path().join("src");
    let mut assets = Vec::new();
    for document in &documents {
        let file = root.join(&document.source);
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let text = inline::expanded(root, document, &text)?;
        let text = links::rewritten(root, &documents, document, &text, &mut assets)
            .with_context(|| format!("in {}", document.source.display()))?;
        write(&source.join(&document.page), &text)?;
    }
    assets.sort();
    assets.dedup();
    for asset in assets {
        let to = source.join(&asset);
        std::fs::create_dir_all(to.parent().context("a file is in a directory")?)?;
        std::fs::copy(root.join(&asset), &to).with_context(|| format!("cannot copy {}", asset.display()))?;
    }
    write(&source.join("SUMMARY.md"), &contents::summary(&documents))?;
    write(&place.path().join("site.css"), STYLE)?;
    write(&place.path().join("site.js"), SCRIPT)?;
    write(&place.path().join("bill.js"), BILL)?;
    let cases = serde_json::to_string(&inline::data(root)?)?;
    write(&place.path().join("first-aid.js"), &format!("window.firstAid = {cases};\n"))?;
    let book =
        MDBook::load_with_config(place.path(), config(out)?).context("mdBook cannot read the documents")?;
    book.build().context("mdBook cannot build the site")?;
    write(&out.join(MARK), "")?;
    let links = check::links(out)?;
    Ok(Built { pages: documents.len(), links })
}

fn config(out: &Path) -> Result<Config> {
    let mut config = Config::default();
    config.book.title = Some("Tandem".to_owned());
    config.book.description = Some(
        "Kubernetes write conflicts explained, and a node autoscaler for clusters without a cloud".to_owned(),
    );
    config.book.language = Some("en".to_owned());
    config.build.build_dir = std::path::absolute(out)?;
    config.build.use_default_preprocessors = false;
    config.build.create_missing = false;
    let mut html = HtmlConfig::default();
    html.default_theme = Some("light".to_owned());
    html.preferred_dark_theme = Some("navy".to_owned());
    html.no_section_label = true;
    html.additional_css = vec![PathBuf::from("site.css")];
    html.additional_js = ["first-aid.js", "site.js", "bill.js"].map(PathBuf::from).to_vec();
    html.fold.enable = true;
    // Each page prints by itself; the print of all of them is as long as a book.
    html.print.enable = false;
    html.playground.runnable = false;
    config.set("output.html", html)?;
    Ok(config)
}

/// Empties `out` if it is a site that was built before.
fn clear(out: &Path) -> Result<()> {
    let Ok(mut entries) = std::fs::read_dir(out) else { return Ok(()) };
    if entries.next().is_none() {
        return Ok(());
    }
    if !out.join(MARK).is_file() {
        bail!("{} is not empty, and not a site that was built before; name another directory", out.display());
    }
    std::fs::remove_dir_all(out).with_context(|| format!("cannot empty {}", out.display()))
}

fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::create_dir_all(file.parent().context("a file is in a directory")?)?;
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_is_built_from_this_repository_and_every_link_holds() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let out = tempfile::tempdir().unwrap();
        let built = build(root, out.path()).unwrap();
        assert!(built.pages > 100 && built.links > 1000, "{built:?}");
        let front = std::fs::read_to_string(out.path().join("index.html")).unwrap();
        assert!(front.contains("id=\"error-text\""), "the front page has no field for the error text");
        let page = std::fs::read_to_string(out.path().join("docs/conflicts/conflict.html")).unwrap();
        for part in ["<svg", "class=\"step refused\"", "class=\"cure\"", "RetryOnConflict"] {
            assert!(page.contains(part), "{part}");
        }
        // Built before, so it is built again.
        assert_eq!(build(root, out.path()).unwrap(), built);
    }

    #[test]
    fn a_directory_of_something_else_is_left_alone() {
        let out = tempfile::tempdir().unwrap();
        std::fs::write(out.path().join("thesis.txt"), "mine").unwrap();
        std::fs::write(out.path().join("searchindex.js"), "another book").unwrap();
        let error = build(Path::new("."), out.path()).unwrap_err().to_string();
        assert!(error.contains("not a site that was built before"), "{error}");
        assert!(out.path().join("thesis.txt").is_file());
    }
}

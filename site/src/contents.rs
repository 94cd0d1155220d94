//! Which documents are on the site, and in which order.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A document.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its file, from the repository's root.
    pub source: PathBuf,
    /// Its Markdown on the site, from the site's root.
    pub page: PathBuf,
    /// Its first heading.
    pub title: String,
    /// How deep it is in the list: 0 or 1.
    depth: usize,
    /// The heading of the list above it.
    part: Option<&'static str>,
}

/// The front page: first aid.
const FRONT: &str = "docs/first-aid/README.md";

/// Groups of the list: heading, the document that stands above the others, and the directory of the others.
const DIRECTORIES: [(&str, Option<&str>, &str); 7] = [
    ("Code to copy", Some("docs/cures/README.md"), "docs/cures"),
    ("The conflict lab", Some("docs/conflicts/README.md"), "docs/conflicts"),
    ("Guides", Some("docs/guides/conflicts.md"), "docs/guides"),
    ("Machine providers", Some("docs/providers/README.md"), "docs/providers"),
    ("Benchmarks", None, "docs/benchmarks"),
    ("Reference", None, "docs/reference"),
    ("Decisions", Some("docs/adr/README.md"), "docs/adr"),
];

/// Documents outside the directories, with their titles in the list.
const OTHERS: [(&str, &str); 8] = [
    ("README.md", "What Tandem is"),
    ("docs/README.md", "Documentation by task"),
    ("conflict-retry/README.md", "The crate conflict-retry"),
    ("charts/tandem/README.md", "The Helm chart"),
    ("ARCHITECTURE.md", "Architecture"),
    ("CONTRIBUTING.md", "Contributing"),
    ("SECURITY.md", "Security"),
    ("CHANGELOG.md", "Changelog"),
];

/// All documents of the repository at `root`.
///
/// # Errors
/// When one cannot be read.
pub fn documents(root: &Path) -> Result<Vec<Document>> {
    let mut all = vec![document(root, FRONT, "index.md", 0, None)?];
    for file in files(root, "docs/first-aid", &[FRONT]) {
        all.push(document(root, &file, &file, 1, None)?);
    }
    let mut part = Some("Tandem");
    for (other, title) in OTHERS {
        let of = document(root, other, other, 0, part.take())?;
        all.push(Document { title: title.to_owned(), ..of });
    }
    for (part, above, directory) in DIRECTORIES {
        let mut part = Some(part);
        if let Some(above) = above {
            all.push(document(root, above, above, 0, part.take())?);
        }
        for file in files(root, directory, above.as_slice()) {
            all.push(document(root, &file, &file, usize::from(above.is_some()), part.take())?);
        }
    }
    Ok(all)
}

/// The documents of a directory by name, without these.
fn files(root: &Path, directory: &str, without: &[&str]) -> Vec<String> {
    let mut files: Vec<String> = std::fs::read_dir(root.join(directory))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| Path::new(name).extension().is_some_and(|kind| kind == "md"))
        .map(|name| format!("{directory}/{name}"))
        .filter(|path| !without.contains(&path.as_str()))
        .collect();
    files.sort();
    files
}

fn document(
    root: &Path,
    source: &str,
    page: &str,
    depth: usize,
    part: Option<&'static str>,
) -> Result<Document> {
    let file = root.join(source);
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let heading = text.lines().find_map(|line| line.strip_prefix("# "));
    let title = heading.with_context(|| format!("{source} has no heading"))?.trim().to_owned();
    Ok(Document { source: source.into(), page: page.into(), title, depth, part })
}

/// The list of contents, as mdBook reads it.
pub(crate) fn summary(documents: &[Document]) -> String {
    let mut text = String::from("# Summary\n\n");
    for document in documents {
        if let Some(part) = document.part {
            writeln!(text, "\n# {part}\n").ok();
        }
        let title = document.title.replace(['[', ']', '`'], "");
        let page = document.page.display();
        writeln!(text, "{}- [{title}]({page})", "    ".repeat(document.depth)).ok();
    }
    text
}

//! Makes one HTML page from an API server's audit log: who wrote an object and when, which writes met a 409, and what
//! that cost. It works with the log of any kube-apiserver; what the audit policy left out is shown as unknown.

mod aid;
mod build;
mod cost;
mod counts;
mod line;
mod model;
mod names;
mod page;
mod read;
mod seen;
mod select;
mod spans;

use std::fmt;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use model::Model;
use read::Log;
use select::{Selection, Wanted};

/// Prefix of an audit id that names the request's sender: `tandem-lab/RANDOM/NAME`, in the header `Audit-ID`. With it,
/// a program whose parts send requests as one user gets a lane for each part. A user agent could distinguish them too,
/// but the API server uses it as the name of the field manager.
pub const AUDIT_PREFIX: &str = "tandem-lab/";

/// The arguments of a command that makes a page of some objects.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The API server's audit log: JSON lines of audit.k8s.io/v1
    #[arg(value_name = "AUDIT_LOG")]
    log: PathBuf,
    /// What to show, as in the log's objectRef: nodepools/workers, or nodepools for all of them; may be repeated
    #[arg(long = "object", value_name = "RESOURCE[/NAME]")]
    objects: Vec<Wanted>,
    /// Only objects in this namespace; may be repeated
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Vec<String>,
    /// The page to write
    #[arg(long, value_name = "FILE", default_value = "timeline.html")]
    out: PathBuf,
}

/// A page of everything in some namespaces.
#[derive(Clone, Debug)]
pub struct NamespacePage<'a> {
    /// The audit logs of the API servers that the namespaces are on.
    pub logs: Vec<ServerLog>,
    /// The namespaces.
    pub namespaces: Vec<String>,
    /// The page's title.
    pub title: &'a str,
    /// The name of the logs on the page.
    pub source: &'a str,
    /// The user whose requests without a user agent only prepare the scenario; they are hidden at first.
    pub setup_user: &'a str,
    /// Named stretches of time, which are marked in the drawing.
    pub phases: Vec<Phase>,
}

/// A named stretch of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What was done in it, in a word or two.
    pub name: String,
    /// Its beginning.
    pub began: Timestamp,
    /// Its end.
    pub ended: Timestamp,
}

/// The audit log of an API server.
#[derive(Clone, Debug)]
pub struct ServerLog {
    /// The file.
    pub path: PathBuf,
    /// Whether its Nodes, which are in no namespace, are shown as well.
    pub has_nodes: bool,
}

/// A written page. Its text is the path and a summary.
#[derive(Clone, Debug)]
pub struct PageFile {
    /// The file.
    pub path: PathBuf,
    /// What is missing from the page, and why.
    pub warnings: Vec<String>,
    summary: String,
}

impl fmt::Display for PageFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path.display(), self.summary)
    }
}

/// Makes the page that `args` ask for.
///
/// # Errors
/// When the log cannot be read, or has nothing about the objects; then the error names what it has.
pub fn page_of_objects(args: Args) -> Result<PageFile> {
    let Args { log: path, objects, namespace, out } = args;
    let selection = Selection { objects, namespaces: namespace, whole_namespaces: false };
    let is_log = matches!((path.canonicalize(), out.canonicalize()), (Ok(log), Ok(out)) if log == out);
    ensure!(!is_log, "the page would take the place of the log; give another file with --out");
    check_writable(&out)?;
    let mut log = Log::default();
    log.read_file(&path, &selection)?;
    if selection.objects.is_empty() {
        bail!("say what to show with --object RESOURCE/NAME; {}", log.suggest());
    }
    log.check_found(&selection)?;
    let source = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    write(log, &selection.text(), &source, None, &[], &out)
}

/// Makes the page of some namespaces.
///
/// # Errors
/// When a log cannot be read, or has nothing of them.
pub fn page_of_namespaces(wanted: NamespacePage<'_>, out: &Path) -> Result<PageFile> {
    let NamespacePage { logs, namespaces, title, source, setup_user, phases } = wanted;
    let mut log = Log::default();
    let mut selection = Selection { objects: Vec::new(), namespaces, whole_namespaces: true };
    for ServerLog { path, has_nodes } in logs {
        selection.objects =
            if has_nodes { vec!["nodes".parse().map_err(anyhow::Error::msg)?] } else { Vec::new() };
        log.read_file(&path, &selection)?;
    }
    log.check_found(&selection)?;
    write(log, title, source, Some(setup_user), &phases, out)
}

/// Checks that a file can be created there.
///
/// # Errors
/// When the directory is missing or not writable.
pub fn check_writable(out: &Path) -> Result<()> {
    ensure!(!out.is_dir(), "{} is a directory; name a file", out.display());
    temporary(out).map(drop)
}

/// A file beside `out` that can take its place.
fn temporary(out: &Path) -> Result<tempfile::NamedTempFile> {
    let beside = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::NamedTempFile::new_in(beside).with_context(|| format!("cannot write {}", out.display()))
}

fn write(
    log: Log,
    title: &str,
    source: &str,
    setup_user: Option<&str>,
    phases: &[Phase],
    out: &Path,
) -> Result<PageFile> {
    let model = Model::of(log, setup_user, phases);
    let text = page::render(&model, title, source)?;
    // In one step, so that an existing page is not replaced by a half-written one.
    let mut file = temporary(out)?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", out.display()))?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.persist(out).with_context(|| format!("cannot write {}", out.display()))?;
    let path = std::fs::canonicalize(out).unwrap_or_else(|_| out.to_owned());
    Ok(PageFile { path, summary: page::summary(&model), warnings: model.notes })
}

//! The picture: who wrote an object and when, which writes met a 409 and what that cost, as one HTML page made from an API
//! server's audit log. It reads anybody's log; what the audit policy left out is shown as unknown.

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

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use model::Model;
use read::Log;
use select::{Selection, Wanted};

use crate::cluster_pool::AuditLogs;

/// `cargo lab timeline`.
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

/// Makes the page that `args` ask for.
///
/// # Errors
/// When the log cannot be read or has nothing about the objects: says what it has.
pub fn run(args: Args) -> Result<()> {
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
    writeln!(std::io::stdout(), "{}", write(log, &selection.text(), &source, None, &out)?)?;
    Ok(())
}

/// Makes the page of scenarios that were played, from the logs of the control planes that they were played on.
///
/// # Errors
/// When a log cannot be read, or has nothing of them.
pub fn report(logs: &AuditLogs, namespaces: Vec<String>, title: &str, out: &Path) -> Result<()> {
    let mut log = Log::default();
    let mut selection = Selection { objects: Vec::new(), namespaces, whole_namespaces: true };
    for path in [&logs.small, &logs.large].into_iter().flatten() {
        let nodes = logs.large.as_ref() == Some(path);
        selection.objects =
            if nodes { vec!["nodes".parse().map_err(anyhow::Error::msg)?] } else { Vec::new() };
        log.read_file(path, &selection)?;
    }
    log.check_found(&selection)?;
    let source = "the embedded control plane's audit log";
    // Standard output may be the JSON of the run.
    writeln!(std::io::stderr(), "{}", write(log, title, source, Some(logs.admin), out)?)?;
    Ok(())
}

/// Fails when no file can be made there.
///
/// # Errors
/// When the directory is missing, or may not be written to.
pub fn check_writable(out: &Path) -> Result<()> {
    ensure!(!out.is_dir(), "{} is a directory; name a file", out.display());
    temporary(out).map(drop)
}

/// A file beside `out` that can take its place.
fn temporary(out: &Path) -> Result<tempfile::NamedTempFile> {
    let beside = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::NamedTempFile::new_in(beside).with_context(|| format!("cannot write {}", out.display()))
}

fn write(log: Log, title: &str, source: &str, backstage: Option<&str>, out: &Path) -> Result<String> {
    let model = Model::of(log, backstage);
    let text = page::render(&model, title, source)?;
    // In one step, so that a page that was there is not lost to one that is half written.
    let mut file = temporary(out)?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", out.display()))?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.persist(out).with_context(|| format!("cannot write {}", out.display()))?;
    for warning in &model.notes {
        writeln!(std::io::stderr(), "warning: {warning}")?;
    }
    let whole = std::fs::canonicalize(out).unwrap_or_else(|_| out.to_owned());
    Ok(format!("{}: {}", whole.display(), page::summary(&model)))
}

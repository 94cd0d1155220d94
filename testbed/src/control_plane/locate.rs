//! Decides which cluster a run uses. It never uses the ambient `KUBECONFIG`: a production cluster must not become a
//! test cluster.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Environment variable with the kubeconfig of a cluster that tests may use.
pub const KUBECONFIG_VARIABLE: &str = "TANDEM_KUBECONFIG";

/// Where the cluster comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BinarySource {
    /// A cluster that this harness does not run, by its kubeconfig.
    Foreign(PathBuf),
    /// A private control plane, started for this run.
    Private,
}

/// An explicit kubeconfig wins over [`KUBECONFIG_VARIABLE`]; without either the control plane is private.
///
/// # Errors
/// When the named file does not exist: a typo must not start a cluster other than the intended one.
pub fn locate(explicit: Option<&Path>, variable: impl Fn(&str) -> Option<OsString>) -> Result<BinarySource> {
    let (path, origin) = match explicit {
        Some(path) => (path.to_owned(), "--kubeconfig"),
        None => match variable(KUBECONFIG_VARIABLE).filter(|value| !value.is_empty()) {
            Some(value) => (PathBuf::from(value), KUBECONFIG_VARIABLE),
            None => return Ok(BinarySource::Private),
        },
    };
    if !path.is_file() {
        bail!("{origin} names {}, which is not a file", path.display());
    }
    Ok(BinarySource::Foreign(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_kubeconfig_wins_over_the_variable() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let source = locate(Some(file.path()), |_| Some("/nowhere".into())).unwrap();
        assert_eq!(source, BinarySource::Foreign(file.path().to_owned()));
    }

    #[test]
    fn a_named_file_that_is_missing_is_an_error_and_not_a_private_cluster() {
        let error = locate(None, |_| Some("/nowhere/config".into())).unwrap_err().to_string();
        assert_eq!(error, "TANDEM_KUBECONFIG names /nowhere/config, which is not a file");
    }

    #[test]
    fn the_ambient_kubeconfig_is_not_even_asked_for() {
        let source = locate(None, |name| {
            assert_eq!(name, KUBECONFIG_VARIABLE);
            None
        });
        assert_eq!(source.unwrap(), BinarySource::Private);
    }
}

//! The four ways to write a field of an object that others write too.
#![expect(clippy::doc_markdown, reason = "doc comments of flags are help texts, which show no backticks")]

/// How status and replicas are written. All four end in the same object; they differ in what a race costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum WriteStrategy {
    /// PUT of the whole cached object; a conflict gives up and the reconcile runs again
    Lazy,
    /// Live GET, change, PUT, again after each conflict: client-go's RetryOnConflict
    Retry,
    /// Merge patch that carries the resourceVersion, decided again after each conflict
    Patch,
    /// Server-side apply of the own status fields; replicas guarded by the generation they were decided from
    #[default]
    Guarded,
}

impl WriteStrategy {
    /// The name, as the flag and the metrics spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lazy => "lazy",
            Self::Retry => "retry",
            Self::Patch => "patch",
            Self::Guarded => "guarded",
        }
    }
}

impl std::fmt::Display for WriteStrategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

//! The cures: small programs as a reader would write them, naive and right, in Go, Rust and for kubectl. They are on the
//! pages, and each runs against a real API server beside a rival ([`rival`]); what it leaves behind is judged ([`judge`]).

pub mod judge;
pub mod page;
pub mod play;
pub mod regions;
pub mod rival;
pub mod rust;
pub mod task;

/// The naive way, or the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// As one writes it first.
    Naive,
    /// As it keeps.
    Right,
}

impl Form {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Naive, Self::Right];

    /// Its name in commands and in the sources.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Right => "right",
        }
    }
}

/// What a program is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// client-go.
    ClientGo,
    /// controller-runtime.
    ControllerRuntime,
    /// kube alone for the naive form, kube with conflict-retry for the right one.
    Rust,
    /// kubectl in a shell.
    Kubectl,
}

impl Language {
    /// All, in the order of the pages.
    pub const ALL: [Self; 4] = [Self::ClientGo, Self::ControllerRuntime, Self::Rust, Self::Kubectl];

    /// Its name in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClientGo => "client-go",
            Self::ControllerRuntime => "controller-runtime",
            Self::Rust => "rust",
            Self::Kubectl => "kubectl",
        }
    }

    /// Its name on pages.
    pub const fn title(self) -> &'static str {
        match self {
            Self::ClientGo => "Go: client-go",
            Self::ControllerRuntime => "Go: controller-runtime",
            Self::Rust => "Rust: kube",
            Self::Kubectl => "kubectl",
        }
    }

    /// The language of its code blocks.
    pub const fn fence(self) -> &'static str {
        match self {
            Self::ClientGo | Self::ControllerRuntime => "go",
            Self::Rust => "rust",
            Self::Kubectl => "sh",
        }
    }
}

//! One module, as the check sees it.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Attribute, Meta};

/// An imported name: the path it stands for.
pub(super) type Import = Vec<String>;

/// Where a module is: the names from the root of the crate, which is empty.
pub(super) type ModulePath = Vec<String>;

/// One module.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// The modules in it.
    pub(super) children: BTreeSet<String>,
    /// What it imports or re-exports, by the name it has here.
    pub(super) imports: BTreeMap<String, Import>,
    /// Every path that it names, as written.
    pub(super) paths: BTreeSet<Vec<String>>,
}

/// Whether what has these attributes is there for tests only.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let text = list.tokens.to_string();
            text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test") && !text.contains("not")
        }
        _ => false,
    })
}

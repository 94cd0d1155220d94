//! The data of one module.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Attribute, Meta};

/// An imported name: the path it stands for.
pub(super) type Import = Vec<String>;

/// The path of a module from the crate's root, whose path is empty.
pub(super) type ModulePath = Vec<String>;

/// One module.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// The modules in it.
    pub(super) children: BTreeSet<String>,
    /// What it imports or re-exports, by the name it has here.
    pub(super) imports: BTreeMap<String, Import>,
    /// Every path in its code, as written.
    pub(super) paths: BTreeSet<Vec<String>>,
}

/// Whether an item with these attributes exists only for tests.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let text = list.tokens.to_string();
            text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test") && !text.contains("not")
        }
        _ => false,
    })
}

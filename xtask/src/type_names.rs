//! Checks that each name of a public type is used for one type only.

use std::collections::BTreeMap;

use anyhow::Context as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, ItemEnum, ItemMod, ItemStruct, ItemTrait, ItemType, ItemUnion, Visibility};

/// Names that several public types may have, with the reason.
const SHARED: &[(&str, &str)] = &[
    ("Failure", "the operators are twins: how either process ends"),
    ("Observed", "the crates that only compute are twins: what either decides from"),
];

/// Where each public type is defined, by name.
#[derive(Default)]
pub(crate) struct TypeNames(BTreeMap<String, Vec<String>>);

impl TypeNames {
    /// Adds the public types of a file, without tests.
    pub(crate) fn read(&mut self, file: &str, text: &str) -> anyhow::Result<()> {
        let parsed = syn::parse_file(text).with_context(|| format!("cannot parse {file}"))?;
        Reader { file, names: &mut self.0 }.visit_file(&parsed);
        Ok(())
    }

    /// Names of several types without an entry in the list, and entries without such a name.
    pub(crate) fn complaints(&self) -> Vec<String> {
        complaints(&self.0, SHARED)
    }
}

fn complaints(names: &BTreeMap<String, Vec<String>>, shared: &[(&str, &str)]) -> Vec<String> {
    let is_shared = |name: &str| shared.iter().any(|(listed, _)| *listed == name);
    let several = names.iter().filter(|(name, files)| files.len() > 1 && !is_shared(name));
    let several = several.map(|(name, files)| format!("{name} is a public type in {}", files.join(", ")));
    let one = |name: &str| names.get(name).is_none_or(|files| files.len() < 2);
    let unused = shared.iter().filter(|(name, _)| one(name));
    several.chain(unused.map(|(name, _)| format!("{name} is listed as shared, and is not"))).collect()
}

struct Reader<'a> {
    file: &'a str,
    names: &'a mut BTreeMap<String, Vec<String>>,
}

impl Reader<'_> {
    fn defined(&mut self, visibility: &Visibility, name: &Ident) {
        if matches!(visibility, Visibility::Public(_)) {
            self.names.entry(name.to_string()).or_default().push(self.file.to_owned());
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let is_test = |attribute: &Attribute| {
            attribute.path().is_ident("cfg")
                && attribute.parse_args::<Ident>().is_ok_and(|flag| flag == "test")
        };
        if !item.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.defined(&item.vis, &item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.defined(&item.vis, &item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.defined(&item.vis, &item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        self.defined(&item.vis, &item.ident);
    }

    fn visit_item_union(&mut self, item: &'ast ItemUnion) {
        self.defined(&item.vis, &item.ident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_two_public_types_is_named_unless_there_is_a_reason() {
        let mut names = TypeNames::default();
        names
            .read("a.rs", "pub struct Plan; struct Own; #[cfg(test)] mod tests { pub struct Twice; }")
            .unwrap();
        names
            .read("b.rs", "pub mod m { pub enum Plan {} } pub(crate) struct Own; pub type Twice = u8;")
            .unwrap();
        assert_eq!(complaints(&names.0, &[]), ["Plan is a public type in a.rs, b.rs"]);
        assert_eq!(complaints(&names.0, &[("Plan", "twins")]), [""; 0]);
        let unused = [("Plan", "twins"), ("Twice", "not any more")];
        assert_eq!(complaints(&names.0, &unused), ["Twice is listed as shared, and is not"]);
    }
}

//! The names in a module: its imports, and every path in its code, including macros.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, ItemUse, UseTree};

use super::module::{Module, is_test};

/// Adds the names in `items`, without tests and without inline modules, which are handled separately.
pub(super) fn read(items: &[Item], module: &mut Module) {
    let mut reader = Reader { module };
    for item in items {
        if !matches!(item, Item::Mod(_)) {
            reader.visit_item(item);
        }
    }
}

struct Reader<'a> {
    module: &'a mut Module,
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.import(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.module.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        in_tokens(call.tokens.clone(), &mut self.module.paths);
    }
}

impl Reader<'_> {
    fn import(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
                before.pop();
            }
            UseTree::Name(name) => self.imported(&name.ident.to_string(), &name.ident.to_string(), before),
            UseTree::Rename(name) => {
                self.imported(&name.ident.to_string(), &name.rename.to_string(), before);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before)),
            UseTree::Glob(_) => {
                self.module.paths.insert(before.clone());
            }
        }
    }

    fn imported(&mut self, name: &str, here: &str, before: &[String]) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name.to_owned());
        }
        let here = if here == "self" { before.last().map_or("self", String::as_str) } else { here };
        self.module.paths.insert(path.clone());
        self.module.imports.insert(here.to_owned(), path);
    }
}

/// Adds the paths of at least two names.
fn in_tokens(tokens: TokenStream, paths: &mut BTreeSet<Vec<String>>) {
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                if colons != 2 {
                    path.clear();
                }
                path.push(ident.to_string());
                colons = 0;
                if path.len() > 1 {
                    paths.insert(path.clone());
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            TokenTree::Group(group) => {
                in_tokens(group.stream(), paths);
                (path, colons) = (Vec::new(), 0);
            }
            _ => (path, colons) = (Vec::new(), 0),
        }
    }
}

fn attributes(item: &Item) -> &[syn::Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

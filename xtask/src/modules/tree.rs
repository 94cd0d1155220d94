//! The module tree of a crate, as its files declare it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use syn::{Attribute, Item, ItemMod, Meta};

use super::module::{Module, ModulePath, is_test};
use super::references;

/// Reads the crate whose root is `lib`.
pub(super) fn load(lib: &Path) -> anyhow::Result<BTreeMap<ModulePath, Module>> {
    let mut modules = BTreeMap::new();
    let dir = lib.parent().context("a file is in a directory")?;
    file(lib, dir, Vec::new(), &mut modules)?;
    Ok(modules)
}

/// Reads the module in `path`, whose children are in `dir`.
fn file(
    path: &Path,
    dir: &Path,
    name: ModulePath,
    modules: &mut BTreeMap<ModulePath, Module>,
) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let parsed = syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))?;
    items(&parsed.items, path, dir, name, modules)
}

fn items(
    items: &[Item],
    path: &Path,
    dir: &Path,
    name: ModulePath,
    modules: &mut BTreeMap<ModulePath, Module>,
) -> anyhow::Result<()> {
    let mut module = Module::default();
    for item in items {
        let Item::Mod(child) = item else { continue };
        if is_test(&child.attrs) {
            continue;
        }
        let ident = child.ident.to_string();
        let mut of_child = name.clone();
        of_child.push(ident.clone());
        if let Some((_, inner)) = &child.content {
            self::items(inner, path, &dir.join(&ident), of_child, modules)?;
        } else {
            let (path, dir) = place(child, path, dir)?;
            file(&path, &dir, of_child, modules)?;
        }
        module.children.insert(ident);
    }
    references::read(items, &mut module);
    modules.insert(name, module);
    Ok(())
}

/// The file of a module that is declared in `declaring`, and the directory of its children.
fn place(module: &ItemMod, declaring: &Path, dir: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let ident = module.ident.to_string();
    if let Some(path) = module.attrs.iter().find_map(given_path) {
        let path = declaring.parent().context("a file is in a directory")?.join(path);
        return Ok((path, dir.join(ident)));
    }
    for path in [dir.join(format!("{ident}.rs")), dir.join(&ident).join("mod.rs")] {
        if path.exists() {
            return Ok((path, dir.join(ident)));
        }
    }
    bail!("{} declares the module {ident}, which has no file", declaring.display())
}

fn given_path(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) = &pair.value else { return None };
    pair.path.is_ident("path").then(|| path.value())
}

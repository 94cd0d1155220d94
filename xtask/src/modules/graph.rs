//! The uses among the modules of one directory, and their cycles.

use std::collections::{BTreeMap, BTreeSet};

use super::module::{Module, ModulePath};

/// Maximum number of followed re-exports; more are a cycle of re-exports, which does not compile.
const MOST_RE_EXPORTS: usize = 16;

/// The uses among the modules of each directory, each with an example.
type Arrows = BTreeMap<ModulePath, BTreeMap<(String, String), String>>;

/// A directory's own module among its children.
const OWN: &str = "mod.rs";

/// Whether a directory's own module counts as one of its children.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Own {
    /// What a child and the module of its directory use of each other is no arrow.
    Apart,
    /// It is either above the children, and calls them, or below, and has what they share.
    Counts,
}

/// Every cycle, as the uses that form it.
pub(super) fn circles(modules: &BTreeMap<ModulePath, Module>, own: Own) -> Vec<String> {
    let mut circles = Vec::new();
    for (directory, arrows) in arrows(modules, own) {
        for knot in knots(&arrows) {
            let within = arrows.iter().filter(|((from, to), _)| knot.contains(from) && knot.contains(to));
            let arrows: Vec<_> =
                within.map(|((from, to), example)| format!("{from} → {to} ({example})")).collect();
            let place = if directory.is_empty() { String::new() } else { directory.join("/") + ": " };
            circles.push(format!("{place}{}", arrows.join(", ")));
        }
    }
    circles
}

/// The modules at the root that use a later one of `order`, and those that have no place in it.
pub(super) fn backward(modules: &BTreeMap<ModulePath, Module>, order: &[&str]) -> Vec<String> {
    let place = |name: &str| order.iter().position(|known| *known == name);
    let root = modules.get(&ModulePath::new()).into_iter().flat_map(|root| &root.children);
    let unknown = root.filter(|name| place(name).is_none());
    let mut complaints: Vec<_> =
        unknown.map(|name| format!("the module {name} has no place in the order of modules")).collect();
    for ((from, to), example) in arrows(modules, Own::Apart).remove(&ModulePath::new()).unwrap_or_default() {
        if place(&from).zip(place(&to)).is_some_and(|(from, to)| from < to) {
            complaints.push(format!("{from} uses {to}, which comes after it ({example})"));
        }
    }
    complaints
}

fn arrows(modules: &BTreeMap<ModulePath, Module>, own: Own) -> Arrows {
    let mut arrows = Arrows::new();
    for (from, module) in modules {
        for path in &module.paths {
            let Some(to) = resolve(modules, from, path, 0) else { continue };
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            let (here, there) = match (from.get(common), to.get(common)) {
                (Some(here), Some(there)) => (here.clone(), there.clone()),
                (Some(here), None) if own == Own::Counts && names_item(path) => {
                    (here.clone(), OWN.to_owned())
                }
                (None, Some(there)) if own == Own::Counts => (OWN.to_owned(), there.clone()),
                _ => continue,
            };
            let example = format!("{} names {}", from.join("::"), path.join("::"));
            arrows.entry(from[..common].to_vec()).or_default().entry((here, there)).or_insert(example);
        }
    }
    arrows
}

/// Whether the path ends in a name, unlike the `super` of `pub(super)`.
fn names_item(path: &[String]) -> bool {
    path.last().is_some_and(|name| !["crate", "self", "super"].contains(&name.as_str()))
}

/// The module of a path in `from`: the one that it names, or that of the named item.
fn resolve(
    modules: &BTreeMap<ModulePath, Module>,
    from: &ModulePath,
    path: &[String],
    re_exports: usize,
) -> Option<ModulePath> {
    let (first, mut rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => Vec::new(),
        "self" => from.clone(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        name if modules[from].children.contains(name) => {
            rest = path;
            from.clone()
        }
        _ => return None,
    };
    while let Some((name, after)) = rest.split_first() {
        let module = &modules[&at];
        if name == "super" {
            at.pop()?;
        } else if module.children.contains(name) {
            at.push(name.clone());
        } else if let Some(import) = module.imports.get(name).filter(|_| re_exports < MOST_RE_EXPORTS) {
            let mut path = import.clone();
            path.extend_from_slice(after);
            return resolve(modules, &at, &path, re_exports + 1);
        } else {
            break;
        }
        rest = after;
    }
    Some(at)
}

/// The strongly connected sets of modules with more than one use.
fn knots(arrows: &BTreeMap<(String, String), String>) -> Vec<BTreeSet<String>> {
    let mut knots: Vec<BTreeSet<String>> = Vec::new();
    let names: BTreeSet<&String> = arrows.keys().map(|(from, _)| from).collect();
    for name in names {
        if knots.iter().any(|knot| knot.contains(name)) {
            continue;
        }
        let ahead = reached(name, |at| arrows.keys().filter(move |(from, _)| from == at).map(|(_, to)| to));
        let behind = reached(name, |at| arrows.keys().filter(move |(_, to)| to == at).map(|(from, _)| from));
        let knot: BTreeSet<String> = ahead.intersection(&behind).cloned().collect();
        if !knot.is_empty() {
            knots.push(knot);
        }
    }
    knots
}

/// The modules reachable from `start`; `start` itself only through a cycle.
fn reached<'a, I: Iterator<Item = &'a String>>(
    start: &'a str,
    next: impl Fn(&'a str) -> I,
) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    while let Some(at) = open.pop() {
        for name in next(at) {
            if seen.insert(name.clone()) {
                open.push(name);
            }
        }
    }
    seen
}

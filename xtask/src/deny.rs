//! Checks what Cargo resolves against `deny.toml`: licences, sources, versions.
//!
//! cargo-deny reads the same file and checks more, above all advisories; but building it takes longer than these
//! checks. A setting that is not checked here is refused, so that the file has no setting without an effect.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use toml_edit::{DocumentMut, Item, Value};

use crate::{spdx, workspace};

/// The default source of crates.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Every setting that is checked, and its allowed values; lists are not restricted. `advisories` is only for cargo-deny.
const SETTINGS: &[(&str, &str, &[&str])] = &[
    ("graph", "targets", &[]),
    ("licenses", "allow", &[]),
    ("licenses", "exceptions", &[]),
    ("bans", "multiple-versions", &["warn", "deny"]),
    ("bans", "wildcards", &["deny"]),
    ("bans", "allow-wildcard-paths", &["true"]),
    ("sources", "unknown-registry", &["deny"]),
    ("sources", "unknown-git", &["deny"]),
    ("advisories", "unmaintained", &["workspace"]),
];

/// The settings of `deny.toml`.
#[derive(Debug)]
struct Policy {
    targets: Vec<String>,
    licences: Vec<String>,
    /// Licences that single crates may have.
    exceptions: BTreeMap<String, Vec<String>>,
    are_doubles_refused: bool,
}

/// The used part of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// `None` for a path dependency.
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Clone, Debug, Deserialize)]
struct Dependency {
    name: String,
    req: String,
    path: Option<String>,
}

/// Fails with all complaints at once; prints what is only a note.
pub(crate) fn run() -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(workspace::root().join("deny.toml")).context("cannot read deny.toml")?;
    let policy = Policy::parse(&text)?;
    let mut packages = BTreeMap::new();
    for target in &policy.targets {
        for package in resolved(target)? {
            packages.insert(package.id.clone(), package);
        }
    }
    ensure!(packages.len() > 100, "cargo resolves only {} packages", packages.len());
    let packages: Vec<Package> = packages.into_values().collect();
    let mut complaints = policy.complaints(&packages);
    let doubles = doubles(&packages);
    if policy.are_doubles_refused {
        complaints.extend(doubles);
    } else if !doubles.is_empty() {
        println!("deny.toml allows several versions of: {}", doubles.join(", "));
    }
    if complaints.is_empty() { Ok(()) } else { bail!("{}", complaints.join("\n")) }
}

/// The packages that are built for `target`, including dependencies of tests and build scripts.
fn resolved(target: &str) -> anyhow::Result<Vec<Package>> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(workspace::root())
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target])
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata failed for {target}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cannot read what cargo metadata prints")?;
    let used: BTreeSet<String> = metadata.resolve.nodes.into_iter().map(|node| node.id).collect();
    Ok(metadata.packages.into_iter().filter(|package| used.contains(&package.id)).collect())
}

impl Policy {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let document: DocumentMut = text.parse().context("deny.toml is no TOML")?;
        for (section, settings) in document.iter() {
            let settings = settings.as_table().with_context(|| format!("{section} is no section"))?;
            for (name, value) in settings {
                let known = SETTINGS.iter().find(|(s, n, _)| (*s, *n) == (section, name));
                let Some((.., values)) = known else {
                    bail!("deny.toml: {section}.{name} is not checked; add it to xtask/src/deny.rs");
                };
                let given = match (value.as_str(), value.as_bool()) {
                    (Some(text), _) => text.to_owned(),
                    (None, Some(is_set)) => is_set.to_string(),
                    (None, None) => "neither text nor true or false".to_owned(),
                };
                ensure!(
                    values.is_empty() || values.contains(&given.as_str()),
                    "deny.toml: {section}.{name} is {given}, and xtask/src/deny.rs allows only {}",
                    values.join(", ")
                );
            }
        }
        let get = |section: &str, name: &str| document.get(section).and_then(|table| table.get(name));
        let list = |section, name| {
            let array = get(section, name).and_then(Item::as_array);
            let array = array.with_context(|| format!("deny.toml has no list {section}.{name}"))?;
            let texts = array.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
            texts.with_context(|| format!("deny.toml: {section}.{name} holds something else than text"))
        };
        let exceptions = get("licenses", "exceptions").map_or_else(|| Ok(BTreeMap::new()), exceptions)?;
        Ok(Self {
            targets: list("graph", "targets")?,
            exceptions,
            licences: list("licenses", "allow")?,
            are_doubles_refused: get("bans", "multiple-versions").and_then(Item::as_str) == Some("deny"),
        })
    }

    fn complaints(&self, packages: &[Package]) -> Vec<String> {
        packages.iter().flat_map(|package| self.about(package)).collect()
    }

    fn about(&self, package: &Package) -> Vec<String> {
        let Package { id: _, name, version, license, source, dependencies } = package;
        let mut complaints = Vec::new();
        let mut complain = |what: String| complaints.push(format!("{name} {version}: {what}"));
        let excepted = self.exceptions.get(name).map(Vec::as_slice).unwrap_or_default();
        let allowed = [&self.licences[..], excepted].concat();
        match license.as_deref().map(|text| (text, spdx::is_met(text, &allowed))) {
            Some((_, Some(true))) => {}
            Some((text, Some(false))) => complain(format!("deny.toml does not allow its licence, {text}")),
            Some((text, None)) => complain(format!("its licence cannot be read: {text:?}")),
            None => complain("it names no licence".to_owned()),
        }
        if let Some(source) = source.as_deref().filter(|source| *source != CRATES_IO) {
            complain(format!("it comes from {source}; deny.toml allows crates.io and this workspace"));
        }
        for Dependency { name, req, path } in dependencies {
            if req == "*" && path.is_none() {
                complain(format!("it takes any version of {name}"));
            }
        }
        complaints
    }
}

/// The crates that may have further licences: `{ crate = "name", allow = ["licence"] }`.
fn exceptions(list: &Item) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let one = |value: &Value| {
        let table = value.as_inline_table()?;
        let name = table.get("crate")?.as_str()?.to_owned();
        let allow = table.get("allow")?.as_array()?;
        let allow = allow.iter().map(|licence| licence.as_str().map(str::to_owned)).collect::<Option<_>>()?;
        (table.len() == 2).then_some((name, allow))
    };
    let array = list.as_array().context("deny.toml: licenses.exceptions is no list")?;
    let read: Option<_> = array.iter().map(one).collect();
    read.context("deny.toml: licenses.exceptions holds something else than { crate = …, allow = […] }")
}

/// Crates with more than one version, and the number of versions.
fn doubles(packages: &[Package]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let several = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    several.map(|(name, versions)| format!("{name} ({})", versions.len())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"
        [graph]
        targets = ["x86_64-unknown-linux-gnu"]
        [licenses]
        allow = ["MIT"]
        [bans]
        multiple-versions = "warn"
        wildcards = "deny"
        allow-wildcard-paths = true
    "#;

    fn package(name: &str, version: &str) -> Package {
        Package {
            id: format!("{name}@{version}"),
            name: name.to_owned(),
            version: version.to_owned(),
            license: Some("MIT".to_owned()),
            source: Some(CRATES_IO.to_owned()),
            dependencies: Vec::new(),
        }
    }

    fn dependency(req: &str, path: Option<&str>) -> Dependency {
        Dependency { name: "other".to_owned(), req: req.to_owned(), path: path.map(str::to_owned) }
    }

    #[test]
    fn an_exception_is_for_one_crate() {
        let text = POLICY.replace(
            "allow = [\"MIT\"]",
            "allow = [\"MIT\"]\nexceptions = [{ crate = \"a\", allow = [\"MPL-2.0\"] }]",
        );
        let policy = Policy::parse(&text).unwrap();
        let of = |name| Package { license: Some("MPL-2.0".to_owned()), ..package(name, "1.0.0") };
        assert_eq!(policy.about(&of("a")), Vec::<String>::new());
        assert!(policy.about(&of("b"))[0].contains("MPL-2.0"));
        let wrong = text.replace("crate = \"a\"", "name = \"a\"");
        assert!(Policy::parse(&wrong).unwrap_err().to_string().contains("licenses.exceptions"));
    }

    #[test]
    fn a_package_is_refused_for_its_licence_its_source_or_a_wildcard() {
        let policy = Policy::parse(POLICY).unwrap();
        let good = package("a", "1.0.0");
        assert_eq!(policy.about(&good), Vec::<String>::new());
        let ours = Package {
            source: None,
            dependencies: vec![dependency("*", Some("/x")), dependency("^1", None)],
            ..good.clone()
        };
        assert_eq!(policy.about(&ours), Vec::<String>::new());
        for (bad, why) in [
            (Package { license: Some("GPL-3.0-only".to_owned()), ..good.clone() }, "GPL-3.0-only"),
            (Package { license: None, ..good.clone() }, "names no licence"),
            (Package { source: Some("git+https://example.org/x".to_owned()), ..good.clone() }, "git+https"),
            (Package { dependencies: vec![dependency("*", None)], ..good.clone() }, "any version of other"),
        ] {
            let complaints = policy.about(&bad);
            assert!(complaints.len() == 1 && complaints[0].contains(why), "{complaints:?}");
        }
    }

    #[test]
    fn versions_are_counted_by_name() {
        let packages = [package("a", "1.0.0"), package("a", "2.0.0"), package("b", "1.0.0")];
        assert_eq!(doubles(&packages), ["a (2)"]);
    }

    #[test]
    fn a_setting_that_nothing_looks_at_is_refused() {
        for (more, named) in [
            ("deny = [\"openssl\"]", "bans.deny"),
            ("[sources]\nallow-git = []", "sources.allow-git"),
            ("[sources]\nunknown-git = \"warn\"", "unknown-git is warn"),
        ] {
            let refusal = Policy::parse(&format!("{POLICY}\n{more}")).unwrap_err().to_string();
            assert!(refusal.contains(named), "{refusal}");
        }
    }
}

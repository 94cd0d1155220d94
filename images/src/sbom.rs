//! What an image is made of, as a `CycloneDX` document: the crates that its program is linked from, and the packages of Debian whose
//! files it has.
//!
//! It has no time and no random number in it, so the same sources make the same document.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::debian::Package;

/// What `cargo metadata` says, as far as it is read.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    packages: Vec<Crate>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Crate {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// Absent for a crate of the workspace.
    source: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Debug, Deserialize)]
struct Kind {
    /// Absent for what is linked; else `dev` or `build`.
    kind: Option<String>,
}

impl Metadata {
    /// Asks `cargo` for the crates of a workspace, as they are built for `platform`.
    ///
    /// # Errors
    /// When Cargo fails, with its output.
    pub fn read(mut cargo: Command, workspace: &Path, platform: &str) -> Result<Self> {
        let args = ["metadata", "--format-version", "1", "--locked", "--filter-platform", platform];
        let output = cargo.args(args).current_dir(workspace).stdin(Stdio::null()).output();
        let output = output.context("cannot run cargo")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo cannot list the crates:\n{}", said.trim());
        serde_json::from_slice(&output.stdout).context("cannot read what cargo metadata prints")
    }

    /// The crates that the program of a package is linked from, itself first. What only builds it or tests it is left out.
    fn linked(&self, package: &str) -> Result<Vec<&Crate>> {
        let crates: BTreeMap<&str, &Crate> = self.packages.iter().map(|found| (&*found.id, found)).collect();
        let nodes: BTreeMap<&str, &Node> = self.resolve.nodes.iter().map(|node| (&*node.id, node)).collect();
        let root = self.packages.iter().find(|found| found.name == package && found.source.is_none());
        let root = root.with_context(|| format!("the workspace has no package {package}"))?;
        let (mut seen, mut wanted) = (BTreeSet::new(), vec![&*root.id]);
        while let Some(id) = wanted.pop() {
            if !seen.insert(id) {
                continue;
            }
            let deps = nodes.get(id).copied().into_iter().flat_map(|node| &node.deps);
            let linked = deps.filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            wanted.extend(linked.map(|dep| &*dep.pkg));
        }
        let mut found: Vec<&Crate> = seen.into_iter().filter_map(|id| crates.get(id).copied()).collect();
        found.sort_by_key(|found| (found.id != root.id, &found.name, &found.version));
        Ok(found)
    }
}

/// The document for an image with the program of `package`, and with what was taken of Debian.
///
/// # Errors
/// When the workspace has no such package.
pub fn document(metadata: &Metadata, package: &str, image: &str, debian: &[Package]) -> Result<Value> {
    let crates = metadata.linked(package)?;
    let version = crates.first().map_or("", |root| &*root.version);
    let cargo = crates.iter().map(|found| {
        let mut component = component(&found.name, &found.version, "cargo");
        if let Some(license) = &found.license {
            // An older way to write OR.
            component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
        }
        component
    });
    let mut debian = debian.to_vec();
    debian.sort();
    let debian = debian.iter().map(|found| component(&found.name, &found.version, "deb/debian"));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": image, "version": version, "bom-ref": image}},
        "components": cargo.chain(debian).collect::<Vec<_>>(),
    }))
}

fn component(name: &str, version: &str, kind: &str) -> Value {
    // Of a version's characters, only these two mean something else in such a URL.
    let url = format!("pkg:{kind}/{name}@{}", version.replace('%', "%25").replace('+', "%2B"));
    json!({"type": "library", "name": name, "version": version, "purl": url, "bom-ref": url})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Metadata {
        let of = |name: &str, source: Value| json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source});
        let to = |name: &str, kinds: Value| json!({"pkg": name, "dep_kinds": kinds});
        let value = json!({
            "packages": [of("operator", Value::Null), of("linked", json!("registry")), of("deep", json!("registry")),
                of("tests", json!("registry")), of("builds", json!("registry")), of("other", Value::Null)],
            "resolve": {"nodes": [
                {"id": "operator", "deps": [
                    to("linked", json!([{"kind": null}, {"kind": "dev"}])),
                    to("tests", json!([{"kind": "dev"}])),
                    to("builds", json!([{"kind": "build"}])),
                ]},
                {"id": "linked", "deps": [to("deep", json!([{"kind": null}]))]},
                {"id": "deep", "deps": [to("linked", json!([{"kind": null}]))]},
                {"id": "tests", "deps": []}, {"id": "builds", "deps": []}, {"id": "other", "deps": []},
            ]},
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_is_linked_is_listed_and_what_only_builds_or_tests_is_not() {
        let debian = [Package { name: "curl".to_owned(), version: "7.88.1-10+deb12u14".to_owned() }];
        let document = document(&metadata(), "operator", "tandem-exec", &debian).unwrap();
        let components = document["components"].as_array().unwrap();
        let urls: Vec<&str> = components.iter().map(|found| found["purl"].as_str().unwrap()).collect();
        let expected = [
            "pkg:cargo/operator@1.0.0",
            "pkg:cargo/deep@1.0.0",
            "pkg:cargo/linked@1.0.0",
            "pkg:deb/debian/curl@7.88.1-10%2Bdeb12u14",
        ];
        assert_eq!(urls, expected);
        assert_eq!(components[1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert!(super::document(&metadata(), "nothing", "x", &[]).is_err());
    }
}

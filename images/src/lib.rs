//! Container images of the operators, made without a container engine: from scratch, one static program each, the roots of the
//! public certificate authorities, and a user who is not root. The same sources make the same digest.

pub mod before;
pub mod checks;
pub mod debian;
pub mod layout;
pub mod programs;
pub mod sbom;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use jiff::Timestamp;

use layout::{Entry, Image};

/// The user of the images, as many images without a distribution have it: it owns nothing and has no name anywhere else.
pub const USER: u32 = 65532;

/// Where programs look for the roots of the public certificate authorities first.
const ROOTS: &str = "etc/ssl/certs/ca-certificates.crt";

/// What an image says of itself, apart from its program.
#[derive(Clone, Debug)]
pub struct About {
    /// The version of the workspace.
    pub version: String,
    /// The commit it was built from; empty when that is not known.
    pub revision: String,
    /// When that commit was made: a time of the build would make every build another image.
    pub created: Timestamp,
    /// Where the sources are.
    pub source: String,
}

/// An image that was written.
#[derive(Clone, Debug)]
pub struct WrittenImage {
    /// The name with registry and tag, as the archive has it.
    pub reference: String,
    /// The digest of the OCI manifest, as `sha256:…`: what a registry calls it by, too.
    pub digest: String,
    /// The directory with the OCI layout.
    pub layout: PathBuf,
    /// The same as one file, which `docker load`, `podman load`, `ctr images import` and `kind load image-archive` read.
    pub archive: PathBuf,
    /// Bytes of its compressed layers.
    pub size: u64,
}

/// An image of one operator, alone or with tools.
#[derive(Clone, Debug)]
pub struct Contents<'a> {
    /// The operator's program on this machine; its file name is its name in the image.
    pub program: &'a Path,
    /// What starts it, from the image: an init process. Empty, it is the first process itself.
    pub init: &'a [&'a str],
    /// What else is in the image.
    pub tools: Vec<Entry>,
}

/// Writes an image into `directory`, below its name: `reference` is that after a registry, and with a tag.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write(
    reference: &str,
    contents: Contents<'_>,
    about: &About,
    directory: &Path,
) -> Result<WrittenImage> {
    let Contents { program, init, tools } = contents;
    let name = reference.rsplit('/').next().and_then(|name| name.split(':').next()).unwrap_or(reference);
    let binary = std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let program = program.file_name().and_then(|name| name.to_str()).context("a program without a name")?;
    let path = if tools.is_empty() { "/" } else { "/usr/bin" };
    let users = format!("root:x:0:0::/:/\nnonroot:x:{USER}:{USER}::/:/\n");
    let groups = format!("root:x:0:\nnonroot:x:{USER}:\n");
    let mut entries = vec![
        Entry::file("etc/group", 0o644, groups.into_bytes()),
        Entry::file("etc/passwd", 0o644, users.into_bytes()),
        Entry::file(ROOTS, 0o644, roots().into_bytes()),
        Entry::file(program, 0o755, binary),
    ];
    entries.extend(tools);
    let init = init.iter().map(|part| (*part).to_owned());
    let image = Image {
        entries,
        entrypoint: init.chain([format!("/{program}")]).collect(),
        path: path.to_owned(),
        user: format!("{USER}:{USER}"),
        labels: labels(name, about),
        created: about.created,
    };
    image.write(reference, &directory.join(name))
}

/// The labels that registries and scanners show.
fn labels(name: &str, about: &About) -> BTreeMap<String, String> {
    let labels = [
        ("title", name),
        ("version", &*about.version),
        ("revision", &*about.revision),
        ("source", &*about.source),
        ("licenses", "Apache-2.0"),
    ];
    let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
    labels.map(|(label, value)| (format!("org.opencontainers.image.{label}"), value.to_owned())).collect()
}

/// Mozilla's roots, as PEM.
fn roots() -> String {
    let mut pem = String::new();
    for root in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        let text = base64::engine::general_purpose::STANDARD.encode(root);
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in text.as_bytes().chunks(64) {
            pem.extend(line.iter().map(|byte| char::from(*byte)));
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    pem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roots_are_certificates_in_lines_of_64() {
        let pem = roots();
        let begins = pem.matches("-----BEGIN CERTIFICATE-----\n").count();
        assert!(begins > 100, "{begins}");
        assert_eq!(pem.matches("-----END CERTIFICATE-----\n").count(), begins);
        assert!(pem.lines().all(|line| line.len() <= 64));
    }
}

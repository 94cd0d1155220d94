//! Writes an image as an OCI layout, and as one archive that is an OCI layout and a `docker save` archive at once.
//!
//! Nothing of the machine gets into it: the order is fixed, and times, owners and modes are given.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::WrittenImage;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A file of the image, or a link. All belong to root, so that nothing of the image can be changed by its own user.
#[derive(Clone, Debug)]
pub struct Entry {
    path: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    File { mode: u32, contents: Vec<u8> },
    Link(String),
}

impl Entry {
    /// A file with these permissions; the directories above it are made.
    pub fn file(path: &str, mode: u32, contents: Vec<u8>) -> Self {
        Self { path: path.to_owned(), kind: Kind::File { mode, contents } }
    }

    /// A symbolic link; the directories above it are made.
    pub fn link(path: &str, target: &str) -> Self {
        Self { path: path.to_owned(), kind: Kind::Link(target.to_owned()) }
    }

    /// From the root, without a leading slash.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What the file holds; nothing for a link.
    pub fn contents(&self) -> &[u8] {
        match &self.kind {
            Kind::File { contents, .. } => contents,
            Kind::Link(_) => &[],
        }
    }
}

/// What an image is made of.
#[derive(Clone, Debug)]
pub struct Image {
    /// The files, in one layer.
    pub entries: Vec<Entry>,
    /// What a container starts, and its first arguments.
    pub entrypoint: Vec<String>,
    /// Where programs are looked for, as in `PATH`.
    pub path: String,
    /// `user:group`, as numbers: with names, a kubelet cannot tell that it is not root.
    pub user: String,
    /// What registries and scanners show.
    pub labels: BTreeMap<String, String>,
    /// When its sources were written.
    pub created: Timestamp,
}

/// A blob and its digest.
struct Blob {
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        Self { digest: digest(&bytes), bytes }
    }

    fn json(value: &Value) -> Result<Self> {
        Ok(Self::new(serde_json::to_vec(value)?))
    }

    fn descriptor(&self, kind: &str) -> Value {
        json!({"mediaType": kind, "digest": format!("sha256:{}", self.digest), "size": self.bytes.len()})
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }
}

impl Image {
    /// Writes the layout into `directory`, which is made anew, and the archive beside it, as `directory` with `.tar`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, reference: &str, directory: &Path) -> Result<WrittenImage> {
        let layer = pack(&self.entries, self.created)?;
        let compressed = Blob::new(compress(&layer)?);
        let config = Blob::json(&self.config(&digest(&layer)))?;
        let manifest = Blob::json(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(CONFIG),
            "layers": [compressed.descriptor(LAYER)],
            "annotations": self.labels,
        }))?;
        let mut descriptor = manifest.descriptor(MANIFEST);
        descriptor["platform"] = json!({"architecture": architecture(), "os": "linux"});
        let tag = reference.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        descriptor["annotations"] = json!({
            "io.containerd.image.name": reference,
            "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor]});
        let loaded = json!([{
            "Config": config.path(), "RepoTags": [reference], "Layers": [compressed.path()],
        }]);
        let mut files: Vec<(String, Vec<u8>)> = vec![
            ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
            ("index.json".to_owned(), serde_json::to_vec(&index)?),
            ("manifest.json".to_owned(), serde_json::to_vec(&loaded)?),
        ];
        let (digest, size) = (format!("sha256:{}", manifest.digest), compressed.bytes.len());
        for blob in [config, manifest, compressed] {
            files.push((blob.path(), blob.bytes));
        }
        let archive = PathBuf::from(format!("{}.tar", directory.display()));
        let parent = directory.parent().context("an image needs a directory")?;
        std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        let entries: Vec<Entry> =
            files.iter().map(|(path, bytes)| Entry::file(path, 0o644, bytes.clone())).collect();
        std::fs::write(&archive, pack(&entries, Timestamp::UNIX_EPOCH)?)
            .with_context(|| format!("cannot write {}", archive.display()))?;
        // What engines load is not part of a layout.
        files.retain(|(path, _)| path != "manifest.json");
        write_directory(directory, &files)?;
        Ok(WrittenImage {
            reference: reference.to_owned(),
            digest,
            layout: directory.to_owned(),
            archive,
            size: u64::try_from(size)?,
        })
    }

    fn config(&self, layer: &str) -> Value {
        let created = self.created.to_string();
        json!({
            "architecture": architecture(),
            "os": "linux",
            "created": created,
            "config": {
                "User": self.user,
                "Entrypoint": self.entrypoint,
                "WorkingDir": "/",
                "Env": [format!("PATH={}", self.path)],
                "Labels": self.labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
            "history": [{"created": created, "created_by": "cargo xtask image"}],
        })
    }
}

/// The name of the build's architecture in images, and in the label `kubernetes.io/arch` of nodes.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// An archive of files, that is not compressed. Nothing of the machine or of the time of the call is in it.
///
/// # Errors
/// When a path is too long for an archive.
pub fn pack(entries: &[Entry], created: Timestamp) -> Result<Vec<u8>> {
    let header = |kind: tar::EntryType, mode: u32, size: usize| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(u64::try_from(created.as_second()).unwrap_or(0));
        header.set_size(size as u64);
        header
    };
    let mut archive = tar::Builder::new(Vec::new());
    let mut made = Vec::new();
    let mut entries: Vec<&Entry> = entries.iter().collect();
    entries.sort_by_key(|entry| &entry.path);
    for Entry { path, kind } in entries {
        let above: Vec<&Path> = Path::new(path).ancestors().skip(1).collect();
        for directory in above.into_iter().rev().filter(|directory| !directory.as_os_str().is_empty()) {
            if !made.contains(&directory.to_owned()) {
                made.push(directory.to_owned());
                let path = format!("{}/", directory.display());
                append(&mut archive, header(tar::EntryType::Directory, 0o755, 0), &path, &[])?;
            }
        }
        match kind {
            Kind::File { mode, contents } => {
                append(&mut archive, header(tar::EntryType::Regular, *mode, contents.len()), path, contents)?;
            }
            Kind::Link(target) => {
                let mut header = header(tar::EntryType::Symlink, 0o777, 0);
                let added = archive.append_link(&mut header, path, target);
                added.with_context(|| format!("cannot pack {path}"))?;
            }
        }
    }
    archive.into_inner().context("cannot end an archive")
}

fn append(
    archive: &mut tar::Builder<Vec<u8>>,
    mut header: tar::Header,
    path: &str,
    contents: &[u8],
) -> Result<()> {
    archive.append_data(&mut header, path, contents).with_context(|| format!("cannot pack {path}"))
}

/// Compressed with gzip, without a name or a time in its header.
///
/// # Errors
/// None in practice: it writes to memory.
pub fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// The SHA-256 of these bytes, in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// In a directory aside first, so that an interrupted run leaves nothing that looks complete.
fn write_directory(directory: &Path, files: &[(String, Vec<u8>)]) -> Result<()> {
    let parent = directory.parent().context("an image needs a directory")?;
    let aside = tempfile::Builder::new().prefix("image-").tempdir_in(parent)?;
    for (path, contents) in files {
        let file = aside.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap_or(aside.path()))?;
        std::fs::write(&file, contents).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if directory.exists() {
        std::fs::remove_dir_all(directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    std::fs::rename(aside.keep(), directory).with_context(|| format!("cannot keep {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn image() -> Image {
        Image {
            entries: vec![
                Entry::file("program", 0o755, b"#!".to_vec()),
                Entry::file("etc/ssl/roots", 0o644, b"root".to_vec()),
                Entry::link("etc/roots", "ssl/roots"),
            ],
            entrypoint: vec!["/program".to_owned()],
            path: "/".to_owned(),
            user: "65532:65532".to_owned(),
            labels: BTreeMap::from([("title".to_owned(), "program".to_owned())]),
            created: Timestamp::from_second(1_700_000_000).unwrap(),
        }
    }

    fn read(path: &Path) -> Value {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn each_blob_is_what_its_digest_says_and_the_manifest_leads_to_all_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let made = image().write("example.com/program:1", &directory.path().join("program")).unwrap();
        let blobs: BTreeSet<String> = std::fs::read_dir(made.layout.join("blobs/sha256"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        for name in &blobs {
            let bytes = std::fs::read(made.layout.join("blobs/sha256").join(name)).unwrap();
            assert_eq!(digest(&bytes), *name);
        }
        let blob = |descriptor: &Value| {
            descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned()
        };
        let index = read(&made.layout.join("index.json"));
        assert_eq!(index["manifests"][0]["digest"], made.digest);
        let manifest = blob(&index["manifests"][0]);
        let read_manifest = read(&made.layout.join("blobs/sha256").join(&manifest));
        let (config, layer) = (blob(&read_manifest["config"]), blob(&read_manifest["layers"][0]));
        assert_eq!(blobs, BTreeSet::from([manifest, config.clone(), layer.clone()]));
        // The layer, unpacked, is what the configuration says.
        let config = read(&made.layout.join("blobs/sha256").join(config));
        let compressed = std::fs::read(made.layout.join("blobs/sha256").join(layer)).unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*compressed), &mut bytes).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", digest(&bytes)));
        let mut archive = tar::Archive::new(&*bytes);
        let entries: Vec<(String, u32, u64)> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let path = entry.path().unwrap().display().to_string();
                (path, entry.header().mode().unwrap(), entry.header().uid().unwrap())
            })
            .collect();
        let expected = [
            ("etc/", 0o755),
            ("etc/roots", 0o777),
            ("etc/ssl/", 0o755),
            ("etc/ssl/roots", 0o644),
            ("program", 0o755),
        ];
        assert_eq!(entries, expected.map(|(path, mode)| (path.to_owned(), mode, 0)));
    }

    #[test]
    fn two_writes_are_the_same_byte_for_byte_and_other_contents_are_another_image() {
        let directory = tempfile::tempdir().unwrap();
        let write =
            |image: &Image, name: &str| image.write("example.com/program:1", &directory.path().join(name));
        let (first, second) = (write(&image(), "a").unwrap(), write(&image(), "b").unwrap());
        assert_eq!(first.digest, second.digest);
        assert_eq!(std::fs::read(&first.archive).unwrap(), std::fs::read(&second.archive).unwrap());
        let mut other = image();
        other.entries[0] = Entry::file("program", 0o750, b"#!".to_vec());
        assert_ne!(write(&other, "c").unwrap().digest, first.digest);
        // Written again, it replaces what was there.
        std::fs::write(first.layout.join("leftover"), "").unwrap();
        write(&image(), "a").unwrap();
        assert!(!first.layout.join("leftover").exists());
    }
}

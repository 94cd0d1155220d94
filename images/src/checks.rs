//! What holds for every image that is handed out. It is read again as it was written: nothing that was meant is taken for granted.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::debian::libraries;
use crate::layout::digest;
use crate::{ROOTS, WrittenImage};

/// Bytes of an image's compressed layers, at most.
pub const MOST_BYTES: u64 = 40_000_000;

/// The labels that every image has. The commit is not among them: it is not always known.
const LABELS: [&str; 4] = ["title", "version", "source", "licenses"];

/// Bits of a file's mode that let its group or others write it, or give a program its owner's rights.
const TOO_MUCH: u32 = 0o6022;

/// A regular file of an image.
struct File {
    mode: u32,
    bytes: Vec<u8>,
}

/// Checks that an image has at most `most` bytes, that each blob is what its digest says, that its user is not root and can change
/// nothing in it, that it has its labels and the roots of the public certificate authorities, that what it starts is static, and that all
/// other programs find their libraries in it.
///
/// # Errors
/// With the first of these that does not hold.
pub fn check(image: &WrittenImage, most: u64) -> Result<()> {
    holds(image, most).with_context(|| format!("the image {} is not as it should be", image.reference))
}

fn holds(image: &WrittenImage, most: u64) -> Result<()> {
    let manifest = json(&image.layout, Some(&image.digest))?;
    let config = json(&image.layout, manifest["config"]["digest"].as_str())?;
    let layers = manifest["layers"].as_array().context("it has no layers")?;
    ensure!(layers.len() == 1, "it has {} layers", layers.len());
    let layer = blob(&image.layout, layers.first().and_then(|layer| layer["digest"].as_str()))?;
    let size = u64::try_from(layer.len())?;
    ensure!(
        size == image.size && size <= most,
        "it has {size} bytes, {} were told, {most} may be",
        image.size
    );

    let config = &config["config"];
    let user = config["User"].as_str().unwrap_or_default();
    let ids: Vec<u32> = user.split(':').filter_map(|id| id.parse().ok()).collect();
    // As numbers: with names, a kubelet cannot tell.
    ensure!(ids.len() == 2 && !ids.contains(&0), "its user is {user:?}");
    for label in LABELS.map(|label| format!("org.opencontainers.image.{label}")) {
        let value = config["Labels"][&label].as_str().unwrap_or_default();
        ensure!(!value.is_empty(), "it has no label {label}");
        ensure!(
            manifest["annotations"][&label] == value,
            "its manifest has another {label} than its configuration"
        );
    }

    let files = files(&layer)?;
    let roots = files.get(ROOTS).is_some_and(|file| file.bytes.starts_with(b"-----BEGIN CERTIFICATE-----\n"));
    ensure!(roots, "it has no certificate authorities in /{ROOTS}");
    let started = config["Entrypoint"].as_array().context("it starts nothing")?;
    let started: Vec<&str> = started.iter().filter_map(|part| part.as_str()?.strip_prefix('/')).collect();
    ensure!(!started.is_empty(), "it starts nothing");
    for path in started {
        let program = files.get(path).with_context(|| format!("/{path} is not in it"))?;
        ensure!(
            program.bytes.starts_with(b"\x7fELF") && program.mode & 0o111 == 0o111,
            "/{path} is no program"
        );
        let needed = libraries(&program.bytes)?;
        ensure!(needed.is_empty(), "/{path} is not static: it needs {}", needed.join(", "));
    }
    for (path, file) in &files {
        ensure!(file.mode & TOO_MUCH == 0, "/{path} has the mode {:o}", file.mode);
        for needed in libraries(&file.bytes).with_context(|| format!("cannot read /{path}"))? {
            let name = file_name(&needed);
            ensure!(files.keys().any(|path| file_name(path) == name), "/{path} needs {needed}");
        }
    }
    Ok(())
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn json(layout: &Path, wanted: Option<&str>) -> Result<Value> {
    serde_json::from_slice(&blob(layout, wanted)?).context("a blob is no JSON")
}

/// The blob of this digest, `sha256:…`.
fn blob(layout: &Path, wanted: Option<&str>) -> Result<Vec<u8>> {
    let wanted = wanted.and_then(|digest| digest.strip_prefix("sha256:")).context("a digest is missing")?;
    let path = layout.join("blobs/sha256").join(wanted);
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(digest(&bytes) == wanted, "{} is not what its digest says", path.display());
    Ok(bytes)
}

/// The regular files of a layer, and its links, which count as empty files: what they lead to is there under its own name.
fn files(layer: &[u8]) -> Result<BTreeMap<String, File>> {
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(GzDecoder::new(layer));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        let (uid, gid) = (entry.header().uid()?, entry.header().gid()?);
        ensure!((uid, gid) == (0, 0), "/{path} belongs to {uid}:{gid}");
        let mode = match entry.header().entry_type() {
            tar::EntryType::Regular | tar::EntryType::Directory => entry.header().mode()?,
            _ => 0,
        };
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        files.insert(path, File { mode, bytes });
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::layout::{Entry, Image};

    /// The smallest ELF file: its header, and where `loader` is given, one more that names it.
    fn elf(loader: Option<&str>) -> Vec<u8> {
        let loader = loader.map(|loader| format!("{loader}\0").into_bytes());
        let headers = u16::from(loader.is_some());
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        for half in [2_u16, 62, 1, 0] {
            bytes.extend(half.to_le_bytes());
        }
        // The entry, the program headers, the section headers.
        for word in [0, u64::from(headers) * 64, 0] {
            bytes.extend(word.to_le_bytes());
        }
        for half in [0_u16, 0, 64, 56, headers, 64, 0, 0] {
            bytes.extend(half.to_le_bytes());
        }
        if let Some(loader) = loader {
            for half in [3_u16, 0, 4, 0] {
                bytes.extend(half.to_le_bytes());
            }
            let size = u64::try_from(loader.len()).unwrap();
            for word in [120, 0, 0, size, size, 1] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(loader);
        }
        bytes
    }

    fn image() -> Image {
        let labels = LABELS.map(|label| (format!("org.opencontainers.image.{label}"), "x".to_owned()));
        Image {
            entries: vec![
                Entry::file("program", 0o755, elf(None)),
                Entry::file(ROOTS, 0o644, b"-----BEGIN CERTIFICATE-----\n".to_vec()),
            ],
            entrypoint: vec!["/program".to_owned()],
            path: "/".to_owned(),
            user: "65532:65532".to_owned(),
            labels: labels.into(),
            created: Timestamp::UNIX_EPOCH,
        }
    }

    /// What is wrong with an image after a change.
    fn wrong(change: impl FnOnce(&mut Image)) -> String {
        let directory = tempfile::tempdir().unwrap();
        let mut image = image();
        change(&mut image);
        let written = image.write("example.com/program:1", &directory.path().join("program")).unwrap();
        check(&written, MOST_BYTES).map_or_else(|error| format!("{error:#}"), |()| String::new())
    }

    #[test]
    fn a_static_program_for_a_user_without_rights_is_as_it_should_be() {
        assert_eq!(wrong(|_| {}), "");
        // Programs beside it may have libraries, if they are in the image too.
        assert_eq!(
            wrong(|image| {
                image.entries.push(Entry::file("usr/bin/tool", 0o755, elf(Some("/lib64/ld.so"))));
                image.entries.push(Entry::link("usr/lib64/ld.so", "../lib/ld.so.2"));
            }),
            ""
        );
    }

    #[test]
    fn each_thing_that_is_wrong_is_named() {
        let dynamic = || Entry::file("program", 0o755, elf(Some("/lib64/ld.so")));
        for (said, found) in [
            ("its user is \"0:0\"", wrong(|image| image.user = "0:0".to_owned())),
            ("its user is \"nonroot\"", wrong(|image| image.user = "nonroot".to_owned())),
            (
                "no label org.opencontainers.image.title",
                wrong(|image| {
                    image.labels.remove("org.opencontainers.image.title");
                }),
            ),
            ("not static: it needs /lib64/ld.so", wrong(|image| image.entries[0] = dynamic())),
            (
                "is no program",
                wrong(|image| image.entries[0] = Entry::file("program", 0o755, b"#!".to_vec())),
            ),
            (
                "/program is not in it",
                wrong(|image| {
                    image.entries.remove(0);
                }),
            ),
            ("no certificate authorities in /etc/ssl", wrong(|image| image.entries.truncate(1))),
            ("it starts nothing", wrong(|image| image.entrypoint.clear())),
            ("the mode 4755", wrong(|image| image.entries.push(Entry::file("su", 0o4755, vec![])))),
            (
                "/tool needs /lib64/ld.so",
                wrong(|image| {
                    image.entries.push(Entry::file("tool", 0o755, elf(Some("/lib64/ld.so"))));
                }),
            ),
        ] {
            assert!(found.contains(said), "{said}: {found}");
        }
    }

    #[test]
    fn an_image_that_is_too_large_or_that_was_changed_is_not_as_it_should_be() {
        let directory = tempfile::tempdir().unwrap();
        let written = image().write("example.com/program:1", &directory.path().join("program")).unwrap();
        check(&written, written.size).unwrap();
        let error = format!("{:#}", check(&written, written.size - 1).unwrap_err());
        assert!(error.contains("bytes"), "{error}");
        let manifest = written.digest.strip_prefix("sha256:").unwrap();
        std::fs::write(written.layout.join("blobs/sha256").join(manifest), "{}").unwrap();
        let error = format!("{:#}", check(&written, MOST_BYTES).unwrap_err());
        assert!(error.contains("not what its digest says"), "{error}");
    }
}

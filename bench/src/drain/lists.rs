//! Counts the lists of one node's pods that the operator asked the API server for. It reads the audit log line by line: it has
//! hundreds of megabytes when thousands of pods were made.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use testbed::cluster::Cluster;

/// What a line about such a list has in it. The events as the harness parses them leave lists out, which name no object.
const PARTS: [&str; 5] =
    ["\"verb\":\"list\"", "/api/v1/pods?", "spec.nodeName", "nodepool-operator", "\"ResponseComplete\""];

/// A place in the audit log.
pub(crate) struct Lists {
    path: PathBuf,
    offset: u64,
}

impl Lists {
    /// At the present end of the log.
    pub(crate) fn from_now(cluster: &Cluster) -> Result<Self> {
        let log = cluster.audit_log().context("the control plane has no audit log")?;
        Ok(Self { offset: log.end()?, path: log.path().to_owned() })
    }

    /// How many there were since the last call.
    pub(crate) fn count(&mut self) -> Result<usize> {
        let name = self.path.display();
        let mut file = File::open(&self.path).with_context(|| format!("cannot read {name}"))?;
        file.seek(SeekFrom::Start(self.offset))?;
        let (mut reader, mut line, mut found) = (BufReader::new(file), Vec::new(), 0);
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line)?;
            // The last line may be incomplete; it is left for the next call.
            if line.last() != Some(&b'\n') {
                return Ok(found);
            }
            self.offset += u64::try_from(read)?;
            found += usize::from(is_one(&String::from_utf8_lossy(&line)));
        }
    }
}

fn is_one(line: &str) -> bool {
    PARTS.iter().all(|part| line.contains(part))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const LIST: &str = r#"{"level":"Metadata","stage":"ResponseComplete","requestURI":"/api/v1/pods?&fieldSelector=spec.nodeName%3Dn-1","verb":"list","user":{"username":"system:serviceaccount:tandem-system:tandem-nodepool-operator"}}"#;

    #[test]
    fn lists_of_one_nodes_pods_by_the_operator_are_counted_once_each() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut lists = Lists { path: file.path().to_owned(), offset: 0 };
        let others = [
            LIST.replace("ResponseComplete", "RequestReceived"),
            LIST.replace("nodepool-operator", "kwok"),
            LIST.replace("\"list\"", "\"watch\""),
            LIST.replace("?&fieldSelector=spec.nodeName%3Dn-1", "?limit=50"),
        ];
        writeln!(file, "{LIST}\n{}\n{LIST}", others.join("\n")).unwrap();
        let (half, rest) = LIST.split_at(100);
        write!(file, "{half}").unwrap();
        assert_eq!((lists.count().unwrap(), lists.count().unwrap()), (2, 0));
        writeln!(file, "{rest}").unwrap();
        assert_eq!(lists.count().unwrap(), 1);
    }
}

//! Turns among processes: test programs that run side by side share one machine. The kernel gives a lock back with the process
//! that holds it, however that ends.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::waiting::Waiting;

/// Interval between two looks for a free lock.
const POLL: Duration = Duration::from_millis(200);

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

impl FileLock {
    /// Waits for one of `count` locks, which are files of `directory`; it is created if it is missing.
    ///
    /// # Errors
    /// When the files cannot be created or locked.
    pub async fn one_of(directory: &Path, count: usize) -> Result<Self> {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let _waiting = Waiting::begin();
        loop {
            for number in 0..count {
                let path = directory.join(number.to_string());
                let file =
                    File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
                match file.try_lock() {
                    Ok(()) => return Ok(Self { _file: file }),
                    Err(TryLockError::WouldBlock) => {}
                    Err(TryLockError::Error(error)) => {
                        return Err(error).with_context(|| format!("cannot lock {}", path.display()));
                    }
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn there_are_as_many_locks_as_asked_for_and_a_dropped_one_is_taken_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let locks = directory.path().join("locks");
        // In real time: a process that another test is just starting has a copy of the file until it runs its program.
        let take = async |limit| timeout(limit, FileLock::one_of(&locks, 2)).await;
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(500));
        let first = take(long).await.unwrap().unwrap();
        let _second = take(long).await.unwrap().unwrap();
        assert!(take(short).await.is_err(), "a third of two");
        drop(first);
        take(long).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_created_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = FileLock::one_of(&file.path().join("below"), 1).await.unwrap_err();
        assert!(error.to_string().contains("cannot create"), "{error:#}");
    }
}

//! What came of a workload, as something that can be compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise};
use sha2::{Digest, Sha256};

/// Values by name. Two runs came out the same if all of their values are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome(BTreeMap<String, String>);

impl Outcome {
    /// Adds a fact.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none, which makes it worthless.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One fact.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// What another outcome has otherwise, a line each; empty if nothing.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let absent = "absent";
        let mut found = Vec::new();
        for (name, value) in &self.0 {
            let theirs = other.get(name).unwrap_or(absent);
            if theirs != value {
                found.push(format!("{name}: {value} expected, {theirs} found"));
            }
        }
        let more = other.0.iter().filter(|(name, _)| !self.0.contains_key(*name));
        found.extend(more.map(|(name, value)| format!("{name}: {absent} expected, {value} found")));
        found
    }
}

/// Length and hash of a file as the daemon gives it: what the kernel has cached of it is dropped
/// before.
///
/// # Errors
/// When it cannot be read whole.
pub fn fingerprint(path: &Path) -> Result<String> {
    let told = || format!("reading {}", path.display());
    let mut file = File::open(path).with_context(told)?;
    forget_pages(&file).with_context(told)?;
    let mut digest = Sha256::new();
    let len = std::io::copy(&mut file, &mut digest).with_context(told)?;
    let said = file.metadata().with_context(told)?.len();
    ensure!(len == said, "{} has {said} bytes and gave {len}", path.display());
    Ok(format!("{len} bytes {}", hex(&digest.finalize())))
}

/// Writes a file's dirty pages and drops them all, so that what is read next comes from the daemon.
///
/// # Errors
/// When it cannot be synced.
pub fn forget_pages(file: &File) -> Result<()> {
    // A file that was opened for reading has nothing to be written; one that is mapped elsewhere
    // keeps its pages.
    rustix::fs::fdatasync(file).or_else(|error| match error {
        rustix::io::Errno::INVAL | rustix::io::Errno::BADF | rustix::io::Errno::ROFS => Ok(()),
        error => Err(error),
    })?;
    fadvise(file, 0, None, Advice::DontNeed)?;
    Ok(())
}

/// Hash of some bytes, in hexadecimal.
#[must_use]
pub fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_told() {
        let outcome = |values: &[(&str, &str)]| {
            let mut outcome = Outcome::default();
            values.iter().for_each(|(name, value)| outcome.add(*name, *value));
            outcome
        };
        let one = outcome(&[("a", "1"), ("b", "2"), ("c", "3")]);
        assert!(one.differences(&one.clone()).is_empty());
        let other = outcome(&[("a", "1"), ("b", "9"), ("d", "4")]);
        let found = one.differences(&other);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("b: 2 expected, 9 found"), "{found:?}");
    }

    #[test]
    fn fingerprints_tell_contents_apart() {
        let dir = tempfile::tempdir().unwrap();
        let print = |text: &str| {
            std::fs::write(dir.path().join("file"), text).unwrap();
            fingerprint(&dir.path().join("file")).unwrap()
        };
        // The hash of "abc" is in the standard.
        assert_eq!(
            print("abc"),
            "3 bytes ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_ne!(print("abd"), print("abc"));
    }
}

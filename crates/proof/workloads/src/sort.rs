//! `sort` of generated text: input, temporary files and output are all in the mount.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::outcome::{Outcome, fingerprint, forget_pages, hash};
use crate::program::{self, Watch};
use crate::text;

/// A sort.
#[derive(Debug)]
pub struct Sort {
    bytes: u64,
    seed: u64,
    /// Fingerprint of the right output.
    expected: String,
}

impl Sort {
    /// Sorts so much text, made from this seed.
    ///
    /// # Errors
    /// None in practice.
    pub fn new(bytes: u64, seed: u64) -> Result<Self> {
        let sorted = text::sorted(bytes, seed)?;
        let expected = format!("{} bytes {}", sorted.len(), hash(&sorted));
        Ok(Self { bytes, seed, expected })
    }

    /// Fingerprint of the right output, found without `sort` and without any mount.
    #[must_use]
    pub fn expected(&self) -> &str {
        &self.expected
    }

    /// Size of the text.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// sort's buffer: so small that it has to keep a good part of its work in temporary files.
    fn buffer(&self) -> u64 {
        (self.bytes / 8).max(64 << 10)
    }

    /// Writes the input.
    ///
    /// # Errors
    /// When the mount does not take it.
    pub fn setup(&self, root: &Path) -> Result<()> {
        let dir = dir(root);
        let told = || format!("preparing {}", dir.display());
        std::fs::create_dir_all(dir.join("tmp")).with_context(told)?;
        let input = File::create(dir.join("input")).with_context(told)?;
        let mut input = BufWriter::with_capacity(128 << 10, input);
        text::write(&mut input, self.bytes, self.seed)?;
        let input =
            input.into_inner().map_err(std::io::IntoInnerError::into_error).with_context(told)?;
        (&input).flush().with_context(told)?;
        forget_pages(&input).with_context(told)
    }

    /// Sorts.
    ///
    /// # Errors
    /// When sort fails.
    pub fn work(&self, root: &Path, log: &Path, watch: &Watch<'_>) -> Result<()> {
        let dir = dir(root);
        let mut command = Command::new("sort");
        command.env("LC_ALL", "C").arg("-S").arg(format!("{}b", self.buffer()));
        command.arg("-T").arg(dir.join("tmp")).arg("-o").arg(dir.join("output"));
        command.arg(dir.join("input"));
        program::run(command, log, watch).map(drop)
    }

    /// What is there after a sort.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn look(&self, root: &Path) -> Result<Outcome> {
        let dir = dir(root);
        let mut outcome = Outcome::default();
        for name in ["input", "output"] {
            outcome.add(format!("sort: {name}"), fingerprint(&dir.join(name))?);
        }
        let left = std::fs::read_dir(dir.join("tmp")).context("listing sort's temporary files")?;
        outcome.add("sort: temporary files left", left.count().to_string());
        Ok(outcome)
    }

    /// An error if an outcome is not the right one, whichever mount it is from.
    ///
    /// # Errors
    /// See above.
    pub fn verify(&self, outcome: &Outcome) -> Result<()> {
        let found = outcome.get("sort: output").unwrap_or("nothing");
        if found != self.expected {
            bail!("the sorted text is not right: {} expected, {found} found", self.expected);
        }
        Ok(())
    }

    /// Removes the output, so that it can be sorted again.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn again(&self, root: &Path) -> Result<()> {
        let output = dir(root).join("output");
        std::fs::remove_file(&output).with_context(|| format!("removing {}", output.display()))?;
        let input = dir(root).join("input");
        let input = File::open(&input).with_context(|| format!("opening {}", input.display()))?;
        forget_pages(&input).context("dropping the input from the page cache")
    }
}

fn dir(root: &Path) -> PathBuf {
    root.join("sort")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sorted_in(root: &Path) -> (Sort, Outcome) {
        let sort = Sort::new(2_000_000, 3).unwrap();
        sort.setup(root).unwrap();
        let logs = tempfile::tempdir().unwrap();
        sort.work(root, &logs.path().join("log"), &Watch::limit(Duration::from_secs(60))).unwrap();
        let outcome = sort.look(root).unwrap();
        (sort, outcome)
    }

    #[test]
    fn the_result_is_right_and_a_wrong_one_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let (sort, outcome) = sorted_in(root.path());
        sort.verify(&outcome).unwrap();
        // One bit, in the middle.
        let output = root.path().join("sort/output");
        let mut bytes = std::fs::read(&output).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&output, bytes).unwrap();
        let corrupt = sort.look(root.path()).unwrap();
        assert!(sort.verify(&corrupt).is_err());
        assert_eq!(outcome.differences(&corrupt).len(), 1);
        sort.again(root.path()).unwrap();
        assert!(!output.exists());
    }

    #[test]
    fn temporary_files_are_used() {
        let root = tempfile::tempdir().unwrap();
        let (sort, _) = sorted_in(root.path());
        std::fs::remove_dir(root.path().join("sort/tmp")).unwrap();
        let logs = tempfile::tempdir().unwrap();
        let watch = Watch::limit(Duration::from_secs(60));
        let error = sort.work(root.path(), &logs.path().join("log"), &watch).unwrap_err();
        assert!(error.to_string().contains("sort/tmp"), "{error}");
    }
}

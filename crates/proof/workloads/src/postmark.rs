//! PostMark: many small files made, read, appended to and removed, as a mail server does.
//!
//! PostMark reads what it wrote without looking at it, and removes all its files at the end. What
//! it says is compared but for its times: how many files were made, read, appended to and removed,
//! and how many bytes that were. What it complains of (`Error: ...`) is an error here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::outcome::Outcome;
use crate::program::{self, Watch};

/// PostMark's parameters. Its biases are as it comes: half reads, half appends; half creations,
/// half removals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostMark {
    /// Files that are there at first.
    pub files: u64,
    /// The smallest size of a file.
    pub smallest: u64,
    /// The largest.
    pub largest: u64,
    /// How many times something is done with them.
    pub transactions: u64,
    /// Where its random numbers begin.
    pub seed: u32,
}

impl PostMark {
    /// Memory or disk that it takes, at most, with room to spare.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files * self.largest * 3 / 2
    }

    /// Makes its directory.
    ///
    /// # Errors
    /// When the mount does not let it.
    pub fn setup(&self, root: &Path) -> Result<()> {
        let dir = dir(root);
        std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))
    }

    fn config(&self, root: &Path) -> Result<String> {
        let Self { files, smallest, largest, transactions, seed } = self;
        let dir = dir(root);
        let location = dir.to_str().context("PostMark knows no other paths than those in UTF-8")?;
        Ok(format!(
            "set location {location}\nset number {files}\nset size {smallest} {largest}\n\
             set transactions {transactions}\nset read 4096\nset write 4096\nset buffering false\n\
             set seed {seed}\nset report verbose\nrun\nquit\n"
        ))
    }

    /// Runs it, and returns what it said, without times. `scratch` is a directory outside of the
    /// mount.
    ///
    /// # Errors
    /// When it fails, or complains.
    pub fn work(&self, root: &Path, scratch: &Path, watch: &Watch<'_>) -> Result<String> {
        let config = scratch.join("postmark.config");
        std::fs::write(&config, self.config(root)?).context("writing PostMark's configuration")?;
        let mut command = Command::new("postmark");
        // A file of the same name in the working directory would be read first.
        command.arg(&config).current_dir(scratch);
        let said = program::run(command, &scratch.join("postmark.log"), watch)?;
        let complaints: Vec<&str> = said.lines().filter(|line| line.contains("Error")).collect();
        if let Some(first) = complaints.first() {
            bail!("PostMark complained {} times, first: {first}", complaints.len());
        }
        ensure!(said.contains("Deleting files...Done"), "PostMark did not finish; it said: {said}");
        Ok(without_times(&said))
    }

    /// What is there after a run.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn look(&self, root: &Path, said: &str) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for (number, line) in said.lines().enumerate() {
            outcome.add(format!("postmark: line {number:02}"), line);
        }
        let left = std::fs::read_dir(dir(root)).context("listing PostMark's directory")?;
        outcome.add("postmark: files left", left.count().to_string());
        Ok(outcome)
    }
}

/// What PostMark said about what it did, without how long it took: lines of seconds go, and
/// everything per second.
fn without_times(said: &str) -> String {
    let counts = said.lines().skip_while(|line| *line != "Files:");
    let line = |line: &str| line.split(" (").next().unwrap_or(line).trim().to_owned();
    let lines: Vec<_> = counts
        .map(line)
        .filter(|line| !line.is_empty() && !line.starts_with("pm>") && !line.contains("second"))
        .collect();
    lines.join("\n")
}

fn dir(root: &Path) -> PathBuf {
    root.join("postmark")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_left_out_and_counts_are_not() {
        let said = "PostMark v1.51 : 8/14/01\npm>Creating files...Done\nTime:\n\t1 seconds total\n\nFiles:\n\
            \t122 created (122 per second)\n\t\tCreation alone: 20 files (20 per second)\n\nData:\n\
            \t3.83 megabytes read (3.83 megabytes per second)\npm>";
        assert_eq!(
            without_times(said),
            "Files:\n122 created\nCreation alone: 20 files\nData:\n3.83 megabytes read"
        );
    }
}

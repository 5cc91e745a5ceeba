//! The results file: what a benchmark run leaves behind, documented and versioned.
//!
//! Each run writes one JSON file, a [`RunFile`]. Times are in microseconds and sizes in bytes
//! unless a field's name says otherwise. Raw samples are kept beside the summaries, so every figure
//! can be recomputed. [`VERSION`] grows when a field changes its meaning or goes away; readers
//! ignore fields that they do not know.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::carry::model::CarryRun;
use crate::layouts::model::LayoutsRun;
use crate::model::{BlackoutRun, CostRun, Machine, MemoryRun, Placement};
use crate::path::model::PathRun;
use crate::recovery::model::RecoveryRun;
use crate::refuse::model::RefuseRun;
use crate::restart::model::RestartRun;

/// Version of the results file that this program writes and reads.
pub const VERSION: u32 = 1;

/// One run of the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunFile {
    /// [`VERSION`] of the writer.
    pub version: u32,
    /// The command that reproduces the run.
    pub command: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// When the file was written, RFC 3339.
    pub finished: String,
    /// Where it ran.
    pub machine: Machine,
    /// CPU placement of clients and daemons.
    pub placement: Placement,
    /// What was measured.
    pub results: Results,
}

/// The measurements of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Results {
    /// `belay-bench cost`.
    Cost(CostRun),
    /// `belay-bench path`.
    Path(PathRun),
    /// Results of `carry`.
    Carry(CarryRun),
    /// `belay-bench memory`.
    Memory(MemoryRun),
    /// `belay-bench blackout`.
    Blackout(BlackoutRun),
    /// `belay-bench refuse`.
    Refuse(RefuseRun),
    /// `belay-bench restart`.
    Restart(RestartRun),
    /// `belay-bench membrane`.
    Membrane(RefuseRun),
    /// `belay-bench recovery`.
    Recovery(RecoveryRun),
    /// `belay-bench layouts`.
    Layouts(LayoutsRun),
}

impl RunFile {
    /// Writes the file at `path`; a reader never sees half of it.
    pub fn write(&self, path: &Path) -> Result<()> {
        let dir = path.parent().context("a results file needs a directory")?;
        std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let mut file = tempfile::NamedTempFile::new_in(dir).context("create a results file")?;
        serde_json::to_writer_pretty(&mut file, self).context("write the results")?;
        file.persist(path).with_context(|| format!("write {}", path.display()))?;
        Ok(())
    }

    /// Reads the file at `path`, of this version only.
    pub fn read(path: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let text = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let head: Head = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no results file of belay-bench", path.display()))?;
        ensure!(
            head.version == VERSION,
            "{} has version {} of the results format, this program reads {VERSION}: measure again",
            path.display(),
            head.version
        );
        serde_json::from_slice(&text)
            .with_context(|| format!("read the results in {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_version_is_refused() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("cost.json");
        std::fs::write(&path, r#"{"version": 999}"#)?;
        let error = RunFile::read(&path).expect_err("another version");
        assert!(error.to_string().contains("version 999"), "{error}");
        std::fs::write(&path, "[]")?;
        assert!(RunFile::read(&path).is_err());
        Ok(())
    }
}

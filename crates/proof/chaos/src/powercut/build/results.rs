//! What came of a build whose volume lost its power.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::Result;
use belay_fixtures::table;
use serde::{Deserialize, Serialize};

use crate::powercut::Memory;
use crate::powercut::page::write_both;

/// For the page.
const HOW: &str = "A source tree is built on a volume in stages, while single processes of the volume are killed, or several at once. Further \
     applications change and sync files. Then all processes, applications and compilers included, are killed in one instant, and either the \
     memory of the volume is kept, or it is lost with any part of what the disk was not asked to sync. (This happens in the mount that follows \
     as well, now and then.) The volume is mounted again, read, unmounted and checked. All that was there after the last stage that was synced \
     must be there, with the content, mode and target that a build has which nobody disturbed (config.log, in which the time is, may have other \
     content), and what the archive held with the times that are in it; what the applications did must be there as their syncs and its order \
     promise, or all of it if the memory was kept. What no stage has synced is removed, and the next machine goes on with the build. Its end \
     must be that of the undisturbed one, and the programs must run.";

/// What was done, and what was seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Machines that were killed.
    pub cuts: u64,
    /// Processes of the volume that were killed before, one or several at once.
    pub kills: u64,
    /// Of the machines, those with something that was written and not synced.
    pub undecided: u64,
    /// Further ends while it was mounted again.
    pub in_recoveries: u64,
    /// What was being done in the end, and how often.
    pub during: BTreeMap<String, u64>,
    /// Looks at files and directories of the build that were known to be durable, and found.
    pub known: u64,
    /// Steps of applications that were known to be durable, and found.
    pub durable: u64,
    /// Steps of applications that were found.
    pub found: u64,
}

/// All of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    /// Of this format.
    pub version: u32,
    /// By which command.
    pub command: String,
    /// What was built.
    pub work: String,
    /// In how many stages.
    pub stages: u64,
    /// Builds that came to their end, which was the right one.
    pub builds: u64,
    /// How long all took.
    pub seconds: u64,
    /// By what became of the memory.
    pub rows: BTreeMap<Memory, Counts>,
    /// What was wrong.
    pub wrong: Option<String>,
}

impl Results {
    /// Writes the page, and the results as JSON beside it.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_both(path, &self.page(), self)
    }

    /// As a page.
    pub fn page(&self) -> String {
        let Self { command, work, stages, builds, wrong, .. } = self;
        let wrong = wrong
            .as_ref()
            .map_or("Nothing was wrong.".to_owned(), |why| format!("Something was wrong: {why}"));
        format!(
            "# A build that loses its power\n\n{HOW}\n\n    belay-chaos {command}\n\n{work}, in {stages} stages; {builds} builds have come to \
             their end. {wrong}\n\n{}",
            self.table()
        )
    }

    fn table(&self) -> String {
        let columns = [
            "memory",
            "machines killed",
            "while it was copied, unpacked, configured, made, and after that",
            "processes killed before, one or several at once",
            "machines with writes not yet synced",
            "further ends in the next mount",
            "looks at files and directories known to be durable, all there",
            "steps known to be durable, all there",
            "steps there",
        ];
        let rows = self.rows.iter().map(|(memory, counts)| {
            let during = ["cp", "tar", "configure", "make"]
                .map(|stage| counts.during.get(stage).copied().unwrap_or(0).to_string());
            vec![
                memory.name().to_owned(),
                counts.cuts.to_string(),
                during.join(", "),
                counts.kills.to_string(),
                counts.undecided.to_string(),
                counts.in_recoveries.to_string(),
                counts.known.to_string(),
                counts.durable.to_string(),
                counts.found.to_string(),
            ]
        });
        table::tabulate(&columns.map(table::words), rows)
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} builds in {} s\n{}", self.builds, self.seconds, self.table())
    }
}

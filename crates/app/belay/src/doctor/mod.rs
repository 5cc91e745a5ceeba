//! `belay doctor`: what this machine, user and daemon allow, each missing thing with its remedy.

mod checks;
mod user;

use crate::cli::Doctor;
use crate::messages::Out;
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use std::io::Write;

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 1;

/// The check whose note means that this may not be the daemon.
const WRAPPER: &str = "wrapper";

/// The check of the daemon's program, whose note means the same.
const DAEMON: &str = "daemon";

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Belay works, with less.
    Note,
    /// Belay does not work.
    Missing,
}

/// A check's result.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was checked.
    pub name: &'static str,
    /// How it went.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do about it; empty if nothing.
    pub remedy: String,
}

/// Runs it: 0 if belay can work here.
pub fn run(options: &Doctor) -> Result<i32> {
    let findings = checks::all(&options.state.path(), &options.command);
    let able = findings.iter().all(|finding| finding.level != Level::Missing);
    let mut out = Out;
    if options.json {
        let json = json!({ "schema_version": SCHEMA_VERSION, "able": able, "checks": findings });
        writeln!(out, "{}", serde_json::to_string_pretty(&json)?)?;
        return Ok(i32::from(!able));
    }
    for finding in &findings {
        let mark = match finding.level {
            Level::Ok => "ok     ",
            Level::Note => "note   ",
            Level::Missing => "MISSING",
        };
        writeln!(out, "{mark}  {}: {}", finding.name, finding.found)?;
        if !finding.remedy.is_empty() {
            writeln!(out, "         -> {}", finding.remedy)?;
        }
    }
    let is_doubt = |finding: &Finding| {
        finding.name == WRAPPER || finding.name == DAEMON && finding.level == Level::Note
    };
    let doubted = findings.iter().any(is_doubt);
    let verdict = match (able, doubted) {
        (true, false) => "belay can work here",
        (true, true) => "belay can work here, but probably not on this program: see the note",
        (false, _) => "belay cannot work here yet",
    };
    writeln!(out, "{verdict}")?;
    Ok(i32::from(!able))
}

//! What is probably not the daemon: a program that starts it, or one that has nothing to do with
//! FUSE.

use super::binary::{self, Kind as Program};
use super::wrapper;
use crate::profile;
use belay_supervisor::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What is said of the latter, and what to do.
pub const NO_DAEMON: (&str, &str) = (
    "does not look like a FUSE daemon: neither it nor its libraries mention FUSE (libfuse, /dev/fuse)",
    "name the program that mounts, with its arguments",
);

/// What is doubted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It starts another program.
    Starter,
    /// It is no FUSE daemon.
    NoDaemon,
}

/// Why a command's first word is probably not the daemon.
#[derive(Clone, Debug)]
pub struct Doubt {
    /// What is doubted.
    pub kind: Kind,
    /// What was found.
    pub found: String,
    /// What to do.
    pub remedy: String,
}

impl Doubt {
    /// As one sentence.
    pub fn told(&self) -> String {
        format!("{}; {}", self.found, self.remedy)
    }
}

/// What is to be doubted of a daemon's command, if anything is. A guess: nothing is refused for it.
pub fn of(command: &[OsString]) -> Option<Doubt> {
    let path = binary::find(command.first()?).ok()?;
    let is_known = profile::find(&path).is_ok_and(|found| found.is_some());
    if is_known || binary::is_wrapper(&path) || binary::classify(&path).ok()? != Program::Dynamic {
        return None;
    }
    let shown = path.display();
    if let Some(call) = wrapper::remedy(&path, command) {
        return Some(Doubt {
            kind: Kind::Starter,
            found: format!(
                "{shown} has nothing of FUSE in it and looks like a program that starts another one, which would not be held"
            ),
            remedy: format!("start belay by it: {call}"),
        });
    }
    let (found, remedy) = NO_DAEMON;
    (!wrapper::may_be_daemon(&path)).then(|| Doubt {
        kind: Kind::NoDaemon,
        found: format!("{shown} {found}"),
        remedy: remedy.to_owned(),
    })
}

/// Refuses a program that is known to start others. `by`: the command of belay's that it was given
/// to.
///
/// # Errors
/// What to write instead.
pub fn check_wrapper(path: &Path, command: &[OsString], by: &str) -> Result<()> {
    if !binary::is_wrapper(path) {
        return Ok(());
    }
    let name = path.file_name().unwrap_or(OsStr::new("")).to_string_lossy().into_owned();
    let remedy = match wrapper::remedy(path, command) {
        Some(call) => {
            let call = call.replacen("belay run --", &format!("belay {by} --"), 1);
            format!("start belay by it: `{call}`")
        }
        None => format!(
            "name the daemon itself, and start belay by {name}: `{name} belay {by} -- DAEMON ...`"
        ),
    };
    let why = "it starts another program, which would not be held";
    Err(Error::refused(path.display().to_string(), why, remedy))
}

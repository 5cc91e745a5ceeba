//! Mounts whose belay was killed, keeper and supervisor both: found by a note in their folder.
//!
//! The rule: such a mount is belay's own only if it has the very number that the note says, which
//! no other mount ever gets. Kernels that have no such numbers give those of a mount that is gone
//! to the next one; there it must be dead as well, which a mount that somebody uses is not.

use crate::asker;
use crate::folder::Folder;
use crate::instances::{Instance, LARGEST};
use crate::mirror::copies;
use crate::mounts::{self, MountFact, Removed};
use crate::outside;
use crate::process::{Exit, Watched, children, started};
use crate::scout::Scouts;
use crate::status::{Process, State, Status};
use crate::threads;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// The note in a mount's folder.
const NOTE: &str = "mount.json";
/// How long a mount may take to say whether it is dead: the kernel knows, and asks no daemon of a
/// dead one.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Serialize, Deserialize)]
struct Note {
    /// Which start of the machine it is of: the numbers of mounts begin anew with each.
    boot: String,
    mount: MountFact,
    status: Status,
}

/// A mount without its belay.
#[derive(Debug)]
pub struct Orphan {
    /// What was last known of it; its state is what it is now.
    pub status: Status,
    mount: MountFact,
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Notes in the mount's folder where the mount is, for when nobody is left to ask.
pub(crate) fn note(folder: &Folder, mount: &MountFact, status: Status) {
    let note = Note { boot: boot(), mount: mount.clone(), status };
    // It may hold hundreds of megabytes of others; but a note that cannot be written costs nothing
    // but itself.
    let json = serde_json::to_vec(&note);
    if let Ok(json) = json
        && let Err(error) = folder.put(NOTE, &json)
    {
        tracing::debug!("{error}");
    }
}

/// Removes the note, unless its mount is still there.
pub(crate) fn forget(dir: &Path) {
    if !is_there(dir) {
        let _ = fs::remove_file(dir.join(NOTE));
    }
}

/// Whether the folder `dir`, which nobody holds, has a mount that is still there.
pub(crate) fn is_there(dir: &Path) -> bool {
    read(dir).is_some_and(|note| mounts::is_there(&note.mount))
}

fn read(dir: &Path) -> Option<Note> {
    let bytes = outside::read(&dir.join(NOTE), outside::From::Own, LARGEST).ok()?;
    let note: Note = serde_json::from_slice(&bytes).ok()?;
    (note.boot == boot() && note.mount.proven).then_some(note)
}

/// The mount of the folder `dir`, which nobody holds, if it is still there, and at one of the
/// places `meant`, if some are: who asks it uses it, and a look for another mount is to keep nobody
/// from unmounting this one.
pub fn of(dir: &Path, meant: Option<&[PathBuf]>) -> Option<Orphan> {
    let Note { mount, mut status, .. } = read(dir)?;
    let is_meant = meant.is_none_or(|meant| status.place().is_some_and(|it| meant.contains(&it)));
    if !is_meant || !mounts::is_there(&mount) {
        return None;
    }
    let dead = is_dead(&mount);
    if !dead && mount.unique.is_none() {
        return None;
    }
    status.state = if dead { State::Dead } else { State::Unheld };
    let gone = |pid: u32| Watched::open(pid).is_none_or(|process| process.is_dead());
    if status.daemon.pid.is_none_or(gone) {
        // Belay may have been killed when a successor had just been started.
        status.daemon.pid = if dead { None } else { server(&mount) };
        status.daemon.exit = Some(Exit::Unknown);
    }
    (status.supervisor, status.keeper) = (Process { pid: 0 }, Process { pid: 0 });
    // It has ended with the supervisor.
    status.standby = None;
    status.requests.in_flight = 0;
    Some(Orphan { status, mount })
}

impl Orphan {
    /// Nobody serves it: all that is asked of it fails.
    pub fn is_dead(&self) -> bool {
        self.status.state == State::Dead
    }

    /// Takes it away: `lazy`, or if nobody uses it. Of its copies those go as well that daemons of
    /// dead belays have in their mount namespaces, as far as these are `known`.
    pub fn remove(&self, lazy: bool, known: &[Instance]) -> Removed {
        let removed = mounts::remove(&self.mount, None, &Scouts::default(), lazy);
        if removed == Removed::Now {
            let dead = known.iter().filter(|instance| !instance.alive);
            copies::take_off(&self.mount, dead.filter_map(|instance| daemon_of(&instance.dir)));
        }
        removed
    }
}

/// The daemon of the folder `dir`, which nobody holds, if it lives.
fn daemon_of(dir: &Path) -> Option<u32> {
    let Note { mount, status, .. } = read(dir)?;
    // What is unmounted already may have a copy left, which keeps its daemon.
    let last = status.daemon.pid.filter(|pid| mounts::serves(*pid, &mount.device));
    last.or_else(|| mounts::is_there(&mount).then(|| server(&mount)).flatten())
}

/// The process that serves the mount, if it can be seen. Others may have its device as well: what
/// is left of a daemon before, which is older, and children.
fn server(mount: &MountFact) -> Option<u32> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let have: Vec<u32> = pids.filter(|pid| mounts::serves(*pid, &mount.device)).collect();
    let below: Vec<u32> = have.iter().flat_map(|pid| children(*pid)).collect();
    have.into_iter()
        .filter(|pid| !below.contains(pid))
        .max_by_key(|pid| started(*pid).ok().flatten())
}

/// What a mount says when it is asked for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nobody serves it: the kernel says so at once.
    Dead,
    /// Somebody does.
    Served,
    /// Nothing, for a second: who serves it hangs, or this machine is too busy to ask.
    Silent,
}

/// Whether the kernel says that nobody serves the mount.
pub(crate) fn is_dead(mount: &MountFact) -> bool {
    ask(mount) == Answer::Dead
}

/// Asks the mount. By a process of its own: a daemon that hangs would hold up whoever asks, for
/// good.
pub(crate) fn ask(mount: &MountFact) -> Answer {
    let mut asker = asker::command(&mount.mountpoint.0);
    asker.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let Ok(mut child) = threads::patiently(threads::PATIENCE, || asker.spawn()) else {
        return Answer::Silent;
    };
    let process = Watched::open(child.id());
    let ends = || process.as_ref().is_some_and(|process| process.wait_end(PATIENCE));
    if !ends() {
        // As long as it is there, it keeps others from unmounting. It may be in the kernel until a
        // daemon answers, so it is not waited for without a bound.
        let _ = child.kill();
        if ends() {
            let _ = child.wait();
        }
        return Answer::Silent;
    }
    let mut words = String::new();
    if let Some(output) = &mut child.stderr {
        let _ = output.take(4096).read_to_string(&mut words);
    }
    let _ = child.wait();
    // ENOTCONN; ECONNABORTED while the last of it ends.
    match words.contains("endpoint is not connected") || words.contains("caused connection abort") {
        true => Answer::Dead,
        false => Answer::Served,
    }
}

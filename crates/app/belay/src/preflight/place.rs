//! Taking a mountpoint: one `belay run` at a time decides whether it is free, and one that is about
//! to be is waited for.

use crate::messages::say;
use belay_supervisor::instances::{self, Instance};
use belay_supervisor::mounts::Removed;
use belay_supervisor::protocol::{Answer, Ask, Client};
use belay_supervisor::status::{State, Status};
use belay_supervisor::turn::Turn;
use belay_supervisor::{Error, Result, mounts, orphans, text};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an end, or another start, is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// After this time the user is told what is waited for.
const SILENCE: Duration = Duration::from_secs(1);
/// A supervisor that works answers within this time.
const ANSWER: Duration = Duration::from_secs(1);
/// Between two looks: nothing that ends tells those who wait for it.
const PAUSE: Duration = Duration::from_millis(5);

/// Who has a mountpoint.
#[derive(Debug)]
pub enum Holder {
    /// A belay that goes on, or somebody else's mount.
    Stays(Error),
    /// A belay that is about to end: the process, and where it can be asked to.
    Ends(u32),
}

/// What a start waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// Another one, which is deciding about the same place.
    Start,
    /// A belay that is about to end: the process.
    End(u32),
}

impl Awaited {
    fn told(self) -> String {
        match self {
            Self::Start => "another `belay run` that is just starting there".to_owned(),
            Self::End(keeper) => format!("belay process {keeper}, which is ending there"),
        }
    }

    /// What to do if that takes too long. `quoted`: the place.
    fn remedy(self, quoted: &str) -> String {
        match self {
            // Nothing is mounted by it yet, so nothing is there to be stopped.
            Self::Start => "it may wait for a file system that does not answer, where its disk image is, say: see what it does, end \
                            that `belay run` if it does not go on, and try again"
                .to_owned(),
            Self::End(_) => format!(
                "somebody may have files open on what was mounted there; try again, or end it with `belay stop --force {quoted}`"
            ),
        }
    }
}

/// Waits until nobody has `path`, and takes the turn: until it is given back, no other `belay run`
/// of this state directory takes that place. What starts then must have written down where before.
/// Says besides whether that was waited for.
///
/// # Errors
/// Who has the place, and what to do; those of opening the state directory.
pub fn take(state_dir: &Path, path: &Path) -> Result<(Turn, bool)> {
    check_beside(state_dir, path)?;
    let begin = Instant::now();
    let (mut told, mut waited_for) = (false, false);
    loop {
        let waits_for = match Turn::take(state_dir, path)? {
            None => Awaited::Start,
            Some(turn) => match free(path, &instances::list(state_dir)) {
                None => return Ok((turn, waited_for)),
                Some(Holder::Stays(why)) => return Err(why),
                Some(Holder::Ends(keeper)) => Awaited::End(keeper),
            },
        };
        let shown = text::escaped(path.as_os_str());
        let waited = begin.elapsed();
        if waited > PATIENCE {
            let quoted = text::command_line([path.as_os_str()]);
            return Err(Error::refused(
                shown,
                format!("waited {} for {}", text::span(PATIENCE), waits_for.told()),
                waits_for.remedy(&quoted),
            ));
        }
        if waited > SILENCE && !told {
            say(&format!("belay: {shown}: waiting for {}\n", waits_for.told()));
            told = true;
        }
        waited_for = true;
        std::thread::sleep(PAUSE);
    }
}

/// What belay and the libraries of daemons look into for as long as a mount is held.
const NEEDED: [&str; 2] = ["/proc", "/dev/fuse"];

/// The mount must not hide the state directory: nobody would find what is in it, and belay would
/// wait for itself there. The same is true of what the kernel shows.
fn check_beside(state_dir: &Path, path: &Path) -> Result<()> {
    // With a name behind it, so that a link is followed that is itself the last part.
    let inside = |path: &Path| mounts::resolve_untouched(&path.join("x"));
    let place = inside(path);
    let hides = |other: &Path| place.parent().is_some_and(|place| inside(other).starts_with(place));
    let refused = |why, remedy| Err(Error::refused(text::escaped(path.as_os_str()), why, remedy));
    if hides(state_dir) {
        return refused(
            format!(
                "the state directory {} lies there: the mount would hide it",
                state_dir.display()
            ),
            "choose another with --state-dir or BELAY_STATE_DIR",
        );
    }
    if let Some(needed) = NEEDED.into_iter().find(|needed| hides(Path::new(needed))) {
        return refused(
            format!("belay needs {needed}, which the mount would hide"),
            "choose another mountpoint",
        );
    }
    Ok(())
}

/// Takes away what is left on `path` of belays that were killed with their daemons, and says who
/// has it then.
fn free(path: &Path, instances: &[Instance]) -> Option<Holder> {
    for instance in instances.iter().filter(|instance| !instance.alive) {
        let orphan = orphans::of(&instance.dir, Some(&[path.to_owned()]));
        let Some(orphan) = orphan.filter(orphans::Orphan::is_dead) else { continue };
        let shown = text::escaped(path.as_os_str());
        match orphan.remove(true, instances) {
            Removed::Now => {
                say(&format!(
                    "belay: {shown}: removed the dead mount that a killed belay had left\n"
                ));
            }
            Removed::Before => {}
            Removed::InUse => tracing::warn!("{shown}: the dead mount there cannot be taken away"),
            Removed::Not(why) => tracing::warn!("{shown}: the dead mount there: {why}"),
        }
        instances::retire(&instance.dir);
    }
    holder(path, instances)
}

/// Who has `path`, if anybody does. What is mounted there is not touched.
pub fn holder(path: &Path, instances: &[Instance]) -> Option<Holder> {
    let shown = text::escaped(path.as_os_str());
    let quoted = text::command_line([path.as_os_str()]);
    let mounted = mounts::at(path).filter(mounts::Mount::is_fuse);
    for instance in instances.iter().filter(|instance| instance.alive) {
        let Some(config) = instance.config() else {
            continue;
        };
        if config.guessed_mountpoint.as_ref().is_none_or(|other| other.as_path() != path) {
            continue;
        }
        match ask(instance) {
            Some(status) if status.place().is_some_and(|place| place != path) => {} // a wrong guess
            Some(status) if ends(&status, mounted.is_some()) => {
                return Some(Holder::Ends(config.keeper_pid));
            }
            None if mounted.is_none() => return Some(Holder::Ends(config.keeper_pid)),
            _ => {
                return Some(Holder::Stays(Error::refused(
                    shown,
                    format!("belay process {} holds it already", config.keeper_pid),
                    format!("see `belay status {quoted}`, or end that with `belay stop {quoted}`"),
                )));
            }
        }
    }
    let mount = mounted?;
    let here = [path.to_owned()];
    let dead = instances.iter().filter(|instance| !instance.alive);
    if dead.filter_map(|it| orphans::of(&it.dir, Some(&here))).any(|orphan| !orphan.is_dead()) {
        return Some(Holder::Stays(Error::refused(
            shown,
            "it is busy: a belay that held it was killed, and has left its daemon",
            format!("end that with `belay stop {quoted}`"),
        )));
    }
    Some(Holder::Stays(Error::refused(
        shown,
        format!("it is busy: a {} file system is mounted there", mount.kind),
        format!(
            "unmount it first: fusermount3 -u {quoted} (or umount -l {quoted}, if it hangs); a belay with another state \
             directory may hold it (`belay stop --state-dir DIR {quoted}`)"
        ),
    )))
}

/// Whether a belay in this state ends soon. One that has served, and whose mount is gone, does.
fn ends(status: &Status, mounted: bool) -> bool {
    match status.state {
        State::Starting => false,
        State::Stopping | State::GaveUp => true,
        State::Serving | State::Recovering | State::Waiting | State::Dead | State::Unheld => {
            !mounted
        }
    }
}

fn ask(instance: &Instance) -> Option<Status> {
    let mut client = Client::connect(&instance.dir).ok()?;
    match client.ask(&Ask::Status, Some(ANSWER)) {
        Ok(Answer::Status(status)) => Some(*status),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a mount that is not there yet nothing can be stopped.
    #[test]
    fn what_is_waited_for_has_its_own_remedy() {
        let (start, end) = (Awaited::Start.remedy("/mnt"), Awaited::End(5).remedy("/mnt"));
        assert!(!start.contains("belay stop") && start.contains("does not answer"), "{start}");
        assert!(end.contains("belay stop --force /mnt"), "{end}");
    }
}

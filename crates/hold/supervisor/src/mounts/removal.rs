//! Taking the held mount out of the tree.

use super::control::abort;
use super::device::is_disconnected;
use super::held::{MountFact, Visibility, covered, in_the_way, uncovered, unreadable, visibility};
use super::table::Mount;
use crate::process::Watched;
use crate::scout::Scouts;
use crate::threads;
use crate::unmount::{self, How, take_off};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a mount must be in use to be taken as such.
const IN_USE: Duration = Duration::from_millis(500);
/// How long what the machine lacks for an unmount is waited for.
pub const LACK: Duration = Duration::from_secs(30);

/// Takes the mount out of the tree if it is still the one that belay holds; says whether it was.
/// `device`: the held one.
pub fn detach(fact: &MountFact, device: Option<BorrowedFd<'_>>, scouts: &Scouts) -> bool {
    detach_within(fact, device, scouts, threads::PATIENCE).unwrap_or_else(|error| {
        tracing::warn!("{}: not unmounted yet: {error}", fact.mountpoint.show());
        false
    })
}

/// The same; what the machine lacks for it now is waited for so long.
fn detach_within(
    fact: &MountFact,
    device: Option<BorrowedFd<'_>>,
    scouts: &Scouts,
    patience: Duration,
) -> io::Result<bool> {
    let still = |there: BorrowedFd<'_>, mount: &Mount| fact.is_still(there, mount, device);
    let off = || take_off(fact, How::Detached, Some(scouts), still);
    if !fact.may_be_taken() {
        return Ok(false);
    }
    threads::patiently(patience, off)
}

/// How long a mount is waited for whose last unmount waits for somebody else.
const LAST: Duration = Duration::from_secs(1);

/// Ends the connection, and takes the mount out of the tree, for those whom nobody may hold up. In
/// this order: the last unmount of a `fuseblk` mount asks its daemon, and waits for the answer
/// before the kernel itself aborts the connection. Where that cannot be aborted, a thread waits
/// that keeps nothing of it open: it goes on when the last holder of the device is gone.
/// `patience`: how long what the machine lacks for that may be waited for, by the caller.
///
/// # Errors
/// Why it is not off yet, and nobody goes on with that.
pub fn abort_and_detach(
    fact: &MountFact,
    device: BorrowedFd<'_>,
    scouts: &Scouts,
    patience: Duration,
) -> io::Result<()> {
    abort(fact, || !is_disconnected(device));
    if is_disconnected(device) {
        return detach_within(fact, Some(device), scouts, patience).map(drop);
    }
    if !fact.may_be_taken() {
        return Ok(());
    }
    // The thread goes the way itself, as it has nothing by which it could send others.
    if let Some(mount) = uncovered(fact)?
        && unmount::is_near(&mount, scouts) == Err(Errno::TIMEDOUT)
    {
        return Err(unmount::silent());
    }
    let (lacks, wait) = std::sync::mpsc::channel();
    let theirs = fact.clone();
    let work = move || {
        let off = || {
            let still = |there: BorrowedFd<'_>, mount: &Mount| theirs.is_still(there, mount, None);
            let off = || take_off(&theirs, How::Detached, None, still);
            // Each try that fails for want of something is told: what waits for somebody else tells
            // nothing.
            let done = belay_sys::without_descriptors(off).and_then(|done| done);
            if done.is_err() {
                let _ = lacks.send(());
            }
            done
        };
        let _ = threads::patiently(patience, off);
    };
    match threads::start_within(patience, "detach", work) {
        Ok(_) => while wait.recv_timeout(LAST).is_ok() {},
        Err((error, _)) => return Err(error),
    }
    Ok(())
}

/// What became of a mount that was to be taken off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removed {
    /// It is off.
    Now,
    /// It was off before.
    Before,
    /// Somebody uses it.
    InUse,
    /// It is left as it is, for this reason.
    Not(String),
}

/// Takes the held mount out of the tree: `lazy`, or if nobody uses it. `device`: the held one.
pub fn remove(
    fact: &MountFact,
    device: Option<BorrowedFd<'_>>,
    scouts: &Scouts,
    lazy: bool,
) -> Removed {
    let covered = |upper| Removed::Not(in_the_way(&upper));
    match visibility(fact) {
        Visibility::Gone => return Removed::Before,
        Visibility::Below(upper) => return covered(upper),
        Visibility::Unknown(error) => return Removed::Not(unreadable(&error)),
        Visibility::Here if !fact.proven => return Removed::Not(fact.unproven()),
        Visibility::Here => {}
    }
    let begin = Instant::now();
    let how = if lazy { How::Detached } else { How::Idle };
    let still = |there: BorrowedFd<'_>, mount: &Mount| fact.is_still(there, mount, device);
    let off = || take_off(fact, how, Some(scouts), still);
    loop {
        let off = match threads::patiently(LACK, off) {
            Ok(off) => off,
            Err(error) => return Removed::Not(format!("it cannot be unmounted now: {error}")),
        };
        // Whoever unmounts for this process may have done so, and its word be lost: the event loop
        // takes the status of all that end.
        match visibility(fact) {
            _ if off => return Removed::Now,
            Visibility::Gone => return Removed::Now,
            Visibility::Below(upper) => return covered(upper),
            Visibility::Here if lazy || begin.elapsed() > IN_USE => return Removed::InUse,
            Visibility::Unknown(error) if begin.elapsed() > IN_USE => {
                return Removed::Not(unreadable(&error));
            }
            Visibility::Here | Visibility::Unknown(_) => {}
        }
        // For the instant between fork and exec a child has what its parent had open.
        std::thread::sleep(IN_USE / 25);
    }
}

/// Unmounts, or asks `daemon` to end if the mount is in use. In a thread of its own: unmounting
/// waits for the daemon (dirty pages are written back), whose end the caller must not miss.
/// `device`: a duplicate of the held one.
///
/// # Errors
/// If no thread can be had now: nobody is waited for, and nothing is done.
pub fn release(
    fact: MountFact,
    device: Option<OwnedFd>,
    daemon: Watched,
    scouts: Arc<Scouts>,
) -> io::Result<()> {
    let work = move || {
        if remove(&fact, device.as_ref().map(AsFd::as_fd), &scouts, false) == Removed::Now {
            return;
        }
        // It would unmount what is at its place, and that is somebody else's.
        if let Some(why) = covered(&fact) {
            tracing::warn!(
                "{}: {why}; its daemon is not asked to end, but ended when its time is over",
                fact.mountpoint.show()
            );
        } else if let Err(error) = daemon.signal(signal_hook::consts::SIGTERM) {
            tracing::warn!("cannot signal process {}: {error}", daemon.pid);
        }
    };
    threads::start_within(Duration::ZERO, "unmount", work).map_err(|(error, _)| error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::table::at;
    use std::path::Path;

    #[test]
    fn only_the_held_mount_is_detached() {
        let root = at(Path::new("/")).expect("a root");
        let scouts = Scouts::default();
        let other = MountFact { device: "0:1".into(), ..MountFact::of(&root) };
        assert!(!detach(&other, None, &scouts));
        assert!(!detach(&MountFact::of(&root), None, &scouts), "it is no FUSE mount");
        assert!(at(Path::new("/")).is_some());
    }
}

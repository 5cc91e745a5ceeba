//! Taking mounts away, and everything that was started for them.

use anyhow::{Result, bail};
use belay_supervisor::mounts::{self, Mount, MountFact};
use belay_supervisor::process::{self, Watched};
use belay_supervisor::scout::Scouts;
use belay_supervisor::unmount::{How, take_off_once};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long what was killed may take to go.
const KILLED: Duration = Duration::from_secs(5);

/// The FUSE mount at a path, if there is one.
pub fn fuse_at(mountpoint: &Path) -> Option<Mount> {
    mounts::at(mountpoint).filter(Mount::is_fuse)
}

/// Unmounts; a file that was closed just now is released a little later, and until then the mount
/// is busy.
///
/// # Errors
/// If it stays busy, or the kernel refuses.
pub fn unmount_politely(mountpoint: &Path, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    let shown = mountpoint.display();
    while fuse_at(mountpoint).is_some() {
        let Some(mount) = fuse_at(mountpoint) else { break };
        match take_off_once(&mount, How::Idle) {
            Ok(()) => {}
            Err(Errno::BUSY | Errno::PERM) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => bail!("unmounting {shown}: {error}"),
        }
    }
    Ok(())
}

/// Takes a mount away whatever its state, so that callers stuck in it get an error.
pub fn unmount_by_force(mountpoint: &Path) {
    // There may be one below another; the number is only there so that this ends.
    for _ in 0..8 {
        let Some(mount) = fuse_at(mountpoint) else { return };
        let fact = MountFact::of(&mount);
        let aborted = mounts::abort(&fact, || fuse_at(mountpoint).is_some_and(|m| fact.is(&m)));
        if !aborted {
            // Aborts too, where the control file system is not to be had.
            let _ = take_off_once(&mount, How::Forced);
        }
        mounts::detach(&fact, None, &Scouts::default());
    }
}

/// Whether no request of a mount waits; `None` if the kernel does not tell.
pub fn is_idle(mountpoint: &Path) -> Option<bool> {
    let mount = fuse_at(mountpoint)?;
    let (major, minor) = mount.device.split_once(':')?;
    let number = (major.parse::<u64>().ok()? << 20) | minor.parse::<u64>().ok()?;
    let file = PathBuf::from(format!("/sys/fs/fuse/connections/{number}/waiting"));
    Some(std::fs::read_to_string(file).ok()?.trim() == "0")
}

/// All that this process has started, and what that has: being a subreaper, it keeps also what goes
/// into the background.
#[derive(Clone, Debug, Default)]
pub struct Family {
    /// What this process had before, from whoever became it.
    bystanders: Vec<u32>,
}

impl Family {
    /// From now on, nothing gets lost.
    ///
    /// # Errors
    /// Those of prctl(2).
    pub fn found() -> Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(Self { bystanders: process::children(std::process::id()) })
    }

    fn members(&self) -> Vec<u32> {
        process::descendants(&[std::process::id()], &self.bystanders)
    }

    /// Takes note of those that are dead.
    fn reap(&self) {
        for pid in process::children(std::process::id()) {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            if let Some(pid) = pid {
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
    }

    /// Waits until all are gone; says whether they are.
    pub fn wait(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            self.reap();
            let Some(first) = self.members().into_iter().next() else { return true };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // Others may come and go meanwhile: look again now and then.
            if let Some(watched) = Watched::open(first) {
                watched.wait_end(left.min(Duration::from_millis(50)));
            }
        }
    }

    /// Ends all that are left. Belay's own processes start each other again, so more than once.
    pub fn kill(&self) {
        let deadline = Instant::now() + KILLED;
        while Instant::now() < deadline {
            let members: Vec<_> = self.members().into_iter().filter_map(Watched::open).collect();
            for member in members {
                let _ = member.signal(signal_hook::consts::SIGKILL);
            }
            if self.wait(Duration::from_millis(50)) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_happens_to_what_is_no_fuse_mount() {
        assert!(fuse_at(Path::new("/proc")).is_none());
        unmount_politely(Path::new("/proc"), Duration::ZERO).unwrap();
        unmount_by_force(Path::new("/proc"));
        assert!(mounts::at(Path::new("/proc")).is_some());
        assert_eq!(is_idle(Path::new("/proc")), None);
    }
}

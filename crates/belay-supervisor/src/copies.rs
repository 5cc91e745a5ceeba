//! Copies of a mount in the namespaces of other daemons that belay holds.
//!
//! A successor lives in a mount namespace of its own (ARCHITECTURE.md), which has copies of all mounts
//! that were there when it was started. Where the host's mounts are shared, as systemd makes them, a
//! copy goes with its original. Where they are private, as in most containers, it would stay, and
//! with it the file system: the daemon would not learn that its mount is gone. What propagation does
//! elsewhere is done by hand here, and just as politely: a copy that is in use stays.

use crate::mounts::{MountFact, is_disconnected, parse_table};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

/// How often copies are looked for once the mount is gone, and for how long: another successor may
/// have been about to start. Who holds on to it after that is not belay.
const LOOK: Duration = Duration::from_millis(250);
const LOOKS: u32 = 120;

/// A mount, and its device, which tells when the file system is gone: its number may then be given
/// to another one.
struct Original {
    fact: MountFact,
    device: OwnedFd,
}

/// Waits, in a thread of its own, until somebody unmounts, and removes the copies then. `device` is
/// a duplicate of the mount's. If the thread cannot be had, copies stay.
pub fn watch(fact: MountFact, device: OwnedFd) {
    let original = Original { fact, device };
    let started = thread::Builder::new().name("copies".into()).spawn(move || {
        if let Err(error) = original.await_unmount() {
            tracing::debug!("cannot watch the mount table: {error}");
            return;
        }
        for _ in 0..LOOKS {
            if original.is_gone() {
                return;
            }
            original.clear();
            // Nobody tells of new namespaces.
            thread::sleep(LOOK);
        }
    });
    if let Err(error) = started {
        tracing::debug!("cannot watch the mount table: {error}");
    }
}

impl Original {
    fn is_gone(&self) -> bool {
        is_disconnected(self.device.as_fd())
    }

    fn await_unmount(&self) -> io::Result<()> {
        let file = fs::File::open("/proc/self/mountinfo")?;
        // A table that cannot be read tells nothing.
        while parse_table(&fs::read("/proc/self/mountinfo")?)
            .iter()
            .any(|mount| self.fact.is_of(mount))
        {
            // The kernel tells of each change once (fs/proc_namespace.c, mounts_poll).
            let mut fds = [PollFd::new(&file, PollFlags::PRI)];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn clear(&self) {
        let own = namespace(Path::new("/proc/self"));
        let mut seen: HashSet<PathBuf> = own.into_iter().collect();
        let Ok(processes) = fs::read_dir("/proc") else { return };
        for process in processes.flatten().map(|entry| entry.path()) {
            if is_successor(&process)
                && namespace(&process).is_some_and(|name| seen.insert(name))
                && let Err(error) = self.clear_in(&process)
            {
                tracing::debug!("{}: {error}", process.display());
            }
        }
    }

    fn clear_in(&self, process: &Path) -> io::Result<()> {
        let table = parse_table(&fs::read(process.join("mountinfo"))?);
        if !table.iter().any(|mount| self.fact.is_of(mount)) {
            return Ok(());
        }
        let namespace =
            open(process.join("ns/mnt"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        belay_sys::in_mount_namespace(namespace, || {
            // Once more, from inside: the last at a place is the one that would be unmounted.
            let table = parse_table(&fs::read("/proc/thread-self/mountinfo")?);
            for (i, copy) in
                table.iter().enumerate().rev().filter(|(_, mount)| self.fact.is_of(mount))
            {
                let place = &copy.mountpoint;
                let later = table.iter().skip(i + 1);
                let covered =
                    later.filter(|other| place.starts_with(&other.mountpoint)).count() > 0;
                if covered || self.is_gone() {
                    continue;
                }
                let done = unmount(OsStr::from_bytes(place), UnmountFlags::NOFOLLOW);
                tracing::debug!("{}: a copy of the mount: {done:?}", process.display());
            }
            Ok(())
        })?
    }
}

fn namespace(process: &Path) -> Option<PathBuf> {
    fs::read_link(process.join("ns/mnt")).ok()
}

/// Whether the process at `/proc/PID` is a successor of this user's that belay has given a namespace
/// of its own: what it was started with says so, and the namespace is not its parent's.
fn is_successor(process: &Path) -> bool {
    let mine = || {
        let owner = fs::metadata(process).map(|facts| facts.uid());
        owner.is_ok_and(|uid| uid == rustix::process::geteuid().as_raw())
    };
    let told = || {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let setup = environment.split(|byte| *byte == 0).find(|t| t.starts_with(b"BELAY_SHIM="));
        setup.is_some_and(|setup| {
            setup.split(|byte| *byte == b':').all(|field| field != b"generation=0")
        })
    };
    let apart = || {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim);
        let parent = parent.and_then(|pid| namespace(&Path::new("/proc").join(pid)));
        parent.is_some() && parent != namespace(process)
    };
    mine() && told() && apart()
}

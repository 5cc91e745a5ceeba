//! Copies of a mount in the namespaces of other daemons that belay holds.
//!
//! A successor lives in a mount namespace of its own (ARCHITECTURE.md), which has copies of all mounts
//! that were there when it was started. Where the host's mounts are shared, as systemd makes them, a
//! copy goes with its original. Where they are private, as in most containers, it would stay, and
//! with it the file system: the daemon would not learn that its mount is gone. What propagation does
//! elsewhere is done by hand here, and just as politely: a copy that is in use stays.

use crate::mounts::{MountFact, parse_table, table};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often copies are looked for once the mount is gone, and for how long: another successor may
/// have been about to start. Who holds on to it after that is not belay.
const LOOK: Duration = Duration::from_millis(250);
const LOOKS: u32 = 120;

/// Waits, in a thread of its own, until somebody unmounts, and removes the copies then.
pub fn watch(fact: MountFact) {
    std::thread::spawn(move || {
        if let Err(error) = await_unmount(&fact) {
            tracing::debug!("cannot watch the mount table: {error}");
            return;
        }
        for _ in 0..LOOKS {
            clear(&fact);
            // Nobody tells of new namespaces. The process ends with its daemon, long before.
            std::thread::sleep(LOOK);
        }
    });
}

fn await_unmount(fact: &MountFact) -> std::io::Result<()> {
    let file = fs::File::open("/proc/self/mountinfo")?;
    while table().iter().any(|mount| mount.is_fuse() && mount.device == fact.device) {
        // The kernel tells of each change once (fs/proc_namespace.c, mounts_poll).
        let mut fds = [PollFd::new(&file, PollFlags::PRI)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn clear(fact: &MountFact) {
    let namespace = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
    let mut seen: HashSet<PathBuf> = namespace(Path::new("/proc/self")).into_iter().collect();
    let Ok(processes) = fs::read_dir("/proc") else { return };
    for process in processes.flatten().map(|entry| entry.path()).filter(|path| is_held(path)) {
        if namespace(&process).is_some_and(|name| seen.insert(name))
            && let Err(error) = clear_in(&process, fact)
        {
            tracing::debug!("{}: {error}", process.display());
        }
    }
}

/// Whether the process at `/proc/PID` was started by belay, as what it was started with tells.
fn is_held(process: &Path) -> bool {
    let starts = |text: &[u8]| text.starts_with(b"BELAY_SHIM=");
    fs::read(process.join("environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(starts))
}

fn clear_in(process: &Path, fact: &MountFact) -> std::io::Result<()> {
    let table = parse_table(&fs::read(process.join("mountinfo"))?);
    let copies: Vec<_> =
        table.into_iter().filter(|mount| mount.is_fuse() && mount.device == fact.device).collect();
    if copies.is_empty() {
        return Ok(());
    }
    let namespace = open(process.join("ns/mnt"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    belay_sys::in_mount_namespace(namespace, || {
        for copy in &copies {
            let done = unmount(OsStr::from_bytes(&copy.mountpoint), UnmountFlags::NOFOLLOW);
            tracing::debug!("{}: a copy of the mount: {done:?}", process.display());
        }
    })
}

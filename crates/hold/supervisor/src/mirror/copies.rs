//! Copies of a mount in the namespaces of daemons that no belay holds any more.
//!
//! Nobody does the host's unmounts again there ([`super`]). Two such daemons would keep each
//! other's mount alive for ever, each by the copy in its namespace.
//!
//! A namespace that a user has made, with a user namespace of its own, is left alone: what is
//! mounted where in it is as that user likes. What happens in the others may take as long as it
//! likes; nobody waits for that beyond a limit.

use super::{Name, name_of, own_name};
use crate::mounts::MountFact;
use crate::process::OURS;
use crate::text::OsText;
use crate::threads;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fstat, open};
use std::collections::HashSet;
use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long all of them are waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes the copies of `mount`, which is off, out of the namespaces of `daemons`, where these are
/// not the caller's own.
pub(crate) fn take_off(mount: &MountFact, daemons: impl Iterator<Item = u32>) {
    let mut seen: HashSet<Name> = own_name().into_iter().collect();
    let open = |pid: u32| {
        name_of(pid).filter(|name| seen.insert(name.clone()))?;
        match open_own(pid) {
            Ok(namespace) => Some((pid, namespace)),
            Err(error) => {
                tracing::debug!("the mount namespace of process {pid}: {error}");
                None
            }
        }
    };
    let namespaces: Vec<_> = daemons.filter_map(open).collect();
    // One thread each: what does not answer in one is nothing to the others.
    let mut done: Vec<_> = Vec::new();
    let end = Instant::now() + PATIENCE;
    for (pid, namespace) in namespaces {
        let mount = mount.clone();
        let (told, is_done) = mpsc::channel::<()>();
        let work = move || {
            // Told when this goes, whatever happens.
            let _told = told;
            if let Err(error) = take_off_in(&namespace, &mount) {
                tracing::debug!("the mount namespace of process {pid}: {error}");
            }
        };
        match threads::start("copies", work) {
            Ok(()) => done.push((pid, is_done)),
            Err((error, _)) => stays(pid, &error.to_string()),
        }
    }
    for (pid, is_done) in done {
        let left = end.saturating_duration_since(Instant::now());
        if is_done.recv_timeout(left) == Err(mpsc::RecvTimeoutError::Timeout) {
            stays(pid, "what is on the way to it does not answer");
        }
    }
}

fn stays(pid: u32, why: &str) {
    tracing::warn!(
        "a copy of the mount may stay in the mount namespace of process {pid}: {why}; it ends with that process"
    );
}

/// The mount namespace of a process, if it belongs to this process's user namespace.
pub(super) fn open_own(pid: u32) -> io::Result<OwnedFd> {
    let open = |path: &str| open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let theirs = OURS.at(pid, move || open(&format!("/proc/{pid}/ns/mnt")));
    let namespace = theirs??;
    let (owner, own) = (belay_sys::owner_of(namespace.as_fd())?, open("/proc/self/ns/user")?);
    let (owner, own) = (fstat(&owner)?, fstat(&own)?);
    if (owner.st_dev, owner.st_ino) != (own.st_dev, own.st_ino) {
        return Err(io::Error::other("a user's own"));
    }
    Ok(namespace)
}

fn take_off_in(namespace: &OwnedFd, mount: &MountFact) -> io::Result<()> {
    belay_sys::in_mount_namespace(namespace.as_fd(), || {
        super::take_off(|copy| {
            copy.is_fuse()
                && copy.device == mount.device
                && OsText::from_bytes(&copy.mountpoint) == mount.mountpoint
        })
    })?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn namespaces_of_users_are_told_from_the_others() {
        let with = |flags: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(flags).args(["sh", "-c", "echo; exec sleep 1000"]);
            let mut child = command
                .stdout(std::process::Stdio::piped())
                .process_group(0)
                .spawn()
                .expect("unshare");
            let mut line = [0];
            std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut line)
                .expect("a word");
            let found = open_own(child.id()).map(drop).map_err(|error| error.to_string());
            child.kill().expect("kill");
            child.wait().expect("wait");
            found
        };
        assert_eq!(with(&["--user", "--map-root-user", "--mount"]), Err("a user's own".into()));
        if rustix::process::geteuid().is_root() {
            assert_eq!(with(&["--mount"]), Ok(()));
        }
    }
}

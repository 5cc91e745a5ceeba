//! Copies of a mount in the namespaces of daemons that no belay holds any more.
//!
//! Nobody does the host's unmounts again there ([`super`]). Two such daemons would keep each other's mount alive for ever, each by
//! the copy in its namespace.

use super::{Name, name_of, own_name};
use crate::mounts::MountFact;
use crate::text::OsText;
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags, open};
use std::collections::HashSet;
use std::io;

/// Takes the copies of `mount`, which is off, out of the namespaces of `daemons`, where these are not the caller's own.
pub(crate) fn take_off(mount: &MountFact, daemons: impl Iterator<Item = u32>) {
    let mut seen: HashSet<Name> = own_name().into_iter().collect();
    for pid in daemons {
        if name_of(pid).is_some_and(|name| seen.insert(name))
            && let Err(error) = take_off_in(pid, mount)
        {
            tracing::debug!("the mount namespace of process {pid}: {error}");
        }
    }
}

fn take_off_in(pid: u32, mount: &MountFact) -> io::Result<()> {
    let path = format!("/proc/{pid}/ns/mnt");
    let namespace = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    belay_sys::in_mount_namespace(namespace.as_fd(), || {
        super::take_off(|copy| {
            copy.is_fuse()
                && copy.device == mount.device
                && OsText::from_bytes(&copy.mountpoint) == mount.mountpoint
        })
    })?
}

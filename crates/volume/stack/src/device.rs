//! The FUSE device of the mount: this process mounts by itself if it may, and has fusermount3 do it
//! if not, in the way of libfuse.

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

/// The set-uid program that mounts for ordinary users.
const FUSERMOUNT: &str = "fusermount3";
/// Where it is told of the socket through which the device is to come (fusermount3.c).
const SOCKET: &str = "_FUSE_COMMFD";

/// What is not allowed on a mount, as mount(8) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbids {
    /// Programs run as their owner or group if they are set-uid or set-gid.
    Suid,
    /// Device nodes are devices.
    Dev,
    /// Programs are run.
    Exec,
}

impl Forbids {
    /// As mount(8) calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Suid => "nosuid",
            Self::Dev => "nodev",
            Self::Exec => "noexec",
        }
    }

    fn flag(self) -> MsFlags {
        match self {
            Self::Suid => MsFlags::MS_NOSUID,
            Self::Dev => MsFlags::MS_NODEV,
            Self::Exec => MsFlags::MS_NOEXEC,
        }
    }
}

/// Mounts the volume of that name at a path without links.
///
/// # Errors
/// If that is not allowed.
pub fn open(name: &str, mountpoint: &Path, forbids: &[Forbids]) -> Result<File> {
    match belay_sys::may_mount() {
        true => mount_it(name, mountpoint, forbids),
        false => have_it_mounted(name, mountpoint, forbids),
    }
}

fn mount_it(name: &str, mountpoint: &Path, forbids: &[Forbids]) -> Result<File> {
    let failed = || format!("cannot mount at {}", mountpoint.display());
    let place = opened(mountpoint).with_context(failed)?;
    let by_descriptor = format!("/proc/self/fd/{}", place.as_raw_fd());
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.context("cannot open /dev/fuse")?;
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,allow_other",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    let flags = forbids.iter().fold(MsFlags::empty(), |all, one| all | one.flag());
    let kind = Some("fuse.belay");
    mount(Some(name), by_descriptor.as_str(), kind, flags, Some(options.as_str()))
        .with_context(failed)?;
    Ok(device)
}

/// A folder at a path without links. Whoever may write to a folder on the way could put a link
/// there, and have the volume cover another folder.
fn opened(mountpoint: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, mountpoint, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

fn have_it_mounted(name: &str, mountpoint: &Path, forbids: &[Forbids]) -> Result<File> {
    let (here, there) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .context("cannot make a socket pair")?;
    fcntl_setfd(&there, FdFlags::empty()).context("cannot pass a socket on")?;
    let others = if belay_sys::users_may_let_others_in() { ",allow_other" } else { "" };
    let mut options = format!("default_permissions,fsname={name},subtype=belay{others}");
    for one in forbids {
        options.push(',');
        options.push_str(one.name());
    }
    let mut child = Command::new(FUSERMOUNT)
        .args(["-o", &options, "--"])
        .arg(mountpoint)
        .env(SOCKET, there.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {FUSERMOUNT}, which mounts for ordinary users"))?;
    drop(there);
    let device = receive(&here);
    // It has said why not. If somebody has taken its status, what it has sent is enough.
    let _ = child.wait();
    match device? {
        Some(device) => Ok(device.into()),
        None => bail!("{FUSERMOUNT} cannot mount at {}", mountpoint.display()),
    }
}

/// What comes through a socket; `None` if its other end is closed without a descriptor.
fn receive(socket: &OwnedFd) -> Result<Option<OwnedFd>> {
    loop {
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], None) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(why) => return Err(why).context("cannot wait for the device"),
        }
    }
    belay_sys::receive(socket.as_fd()).context("cannot receive the device")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_that_has_come_into_the_way_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("real/place")).unwrap();
        assert!(opened(&top.join("real/place")).is_ok());
        symlink(top.join("real"), top.join("way")).unwrap();
        symlink(top.join("real/place"), top.join("link")).unwrap();
        for path in ["link", "way/place", "way"] {
            assert_eq!(opened(&top.join(path)).unwrap_err(), Errno::LOOP, "{path}");
        }
    }
}

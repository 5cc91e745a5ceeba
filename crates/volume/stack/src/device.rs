//! The FUSE device of the mount: this process mounts by itself if it may, and has fusermount3 do it
//! if not, in the way of libfuse.

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use rustix::event::{PollFd, PollFlags, poll};
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

/// Mounts the volume of that name.
///
/// # Errors
/// If that is not allowed.
pub fn open(name: &str, mountpoint: &Path) -> Result<File> {
    match belay_sys::may_mount() {
        true => mount_it(name, mountpoint),
        false => have_it_mounted(name, mountpoint),
    }
}

fn mount_it(name: &str, mountpoint: &Path) -> Result<File> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.context("cannot open /dev/fuse")?;
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,allow_other",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    mount(Some(name), mountpoint, Some("fuse.belay"), MsFlags::empty(), Some(options.as_str()))
        .with_context(|| format!("cannot mount at {}", mountpoint.display()))?;
    Ok(device)
}

fn have_it_mounted(name: &str, mountpoint: &Path) -> Result<File> {
    let (here, there) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .context("cannot make a socket pair")?;
    fcntl_setfd(&there, FdFlags::empty()).context("cannot pass a socket on")?;
    let others = if belay_sys::users_may_let_others_in() { ",allow_other" } else { "" };
    let options = format!("default_permissions,fsname={name},subtype=belay{others}");
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

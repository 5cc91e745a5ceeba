//! The mount table: what is mounted, waiting for a mount, unmounting, and a FUSE connection's control files.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{UnmountFlags, unmount};

const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of the device; the minor number names the FUSE connection.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// The file system's type, `fuse.sshfs` say.
    pub fstype: String,
}

/// All mounts of this process's mount namespace, in order of mounting.
///
/// # Errors
/// When `/proc/self/mountinfo` cannot be read.
pub fn list() -> Result<Vec<Mount>> {
    let text = std::fs::read("/proc/self/mountinfo").context("reading /proc/self/mountinfo")?;
    Ok(text.split(|&b| b == b'\n').filter_map(parse_line).collect())
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    let (major, minor) = std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
    let dash = fields.iter().position(|f| *f == b"-")?;
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        mountpoint: PathBuf::from(std::ffi::OsString::from_vec(unescape(fields.get(4)?))),
        fstype: String::from_utf8_lossy(fields.get(dash + 1)?).into_owned(),
    })
}

/// Undoes the kernel's octal escapes (`\040` for a space).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .and_then(|d| std::str::from_utf8(d).ok())
            .and_then(|d| u8::from_str_radix(d, 8).ok());
        match octal {
            Some(byte) if first == b'\\' => {
                out.push(byte);
                rest = &tail[3..];
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

/// The topmost mount at a path, if any.
///
/// # Errors
/// When the mount table cannot be read.
pub fn find(mountpoint: &Path) -> Result<Option<Mount>> {
    Ok(list()?.into_iter().rfind(|m| m.mountpoint == mountpoint))
}

/// Waits until `mountpoint` is mounted (or, with `mounted` false, no longer is). `check` runs at every look and ends
/// the wait by an error, for example because the daemon has died.
///
/// # Errors
/// What `check` says, or a time-out.
pub fn wait(
    mountpoint: &Path,
    mounted: bool,
    limit: Duration,
    mut check: impl FnMut() -> Result<()>,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    // The kernel raises POLLPRI on this file whenever the mount table changes since the last poll.
    let table = File::open("/proc/self/mountinfo").context("opening /proc/self/mountinfo")?;
    loop {
        if find(mountpoint)?.is_some() == mounted {
            return Ok(());
        }
        check()?;
        if Instant::now() >= deadline {
            let what = if mounted { "was not mounted" } else { "was still mounted" };
            bail!("{} {what} after {limit:?}", mountpoint.display());
        }
        let mut fds = [PollFd::new(&table, PollFlags::PRI)];
        let slice = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        match poll(&mut fds, Some(&slice)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for the mount table to change"),
        }
    }
}

/// Unmounts politely; `EBUSY` is retried until the limit, because a file closed just now is released a little later.
///
/// # Errors
/// When it stays busy or the kernel refuses.
pub fn unmount_clean(mountpoint: &Path, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        match unmount(mountpoint, UnmountFlags::NOFOLLOW) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::BUSY) if Instant::now() < deadline => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(50));
            }
            // An ordinary user's mounts are taken off by the program that has made them.
            Err(rustix::io::Errno::PERM) => match fusermount(mountpoint) {
                Err(_) if Instant::now() < deadline => std::thread::sleep(pause),
                ended => return ended,
            },
            Err(error) => {
                return Err(error).with_context(|| format!("unmounting {}", mountpoint.display()));
            }
        }
    }
}

fn fusermount(mountpoint: &Path) -> Result<()> {
    let tool = |name: &str| {
        let mut command = Command::new(name);
        command.arg("-u").arg(mountpoint);
        command.output()
    };
    let output = match tool("fusermount3") {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => tool("fusermount"),
        other => other,
    };
    let output = output.context("starting fusermount")?;
    let words = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("unmounting {}: {}", mountpoint.display(), words.trim());
    }
    Ok(())
}

/// Takes a mount away whatever its state: the FUSE connection is aborted, so that callers stuck in it get an error,
/// and the mount is detached. Does nothing where nothing is mounted.
pub fn unmount_by_force(mountpoint: &Path) {
    while let Ok(Some(mount)) = find(mountpoint) {
        if mount.fstype.starts_with("fuse") {
            abort(mountpoint, &mount);
            // MNT_FORCE aborts too, where the control file system is not mounted.
            let _ = unmount(mountpoint, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
        }
        if find(mountpoint).is_ok_and(|m| m.is_some())
            && unmount(mountpoint, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_err()
        {
            return;
        }
    }
}

/// Aborts the connection of a mount. Its number is another's as soon as the file system is gone, which may be at any
/// moment: so whether it is still there is asked once its control file is open, which then leads to no other.
fn abort(mountpoint: &Path, mount: &Mount) {
    let control = Path::new(CONNECTIONS).join(mount.device.1.to_string()).join("abort");
    if let Ok(mut control) = File::options().write(true).open(control)
        && find(mountpoint).is_ok_and(|found| found.as_ref() == Some(mount))
    {
        let _ = control.write_all(b"1");
    }
}

/// Makes sure that the kernel's control files for FUSE connections are visible.
///
/// # Errors
/// When they are not and mounting them fails.
pub fn ensure_control_files() -> Result<()> {
    if find(Path::new(CONNECTIONS))?.is_some() {
        return Ok(());
    }
    match rustix::mount::mount(
        "none",
        CONNECTIONS,
        "fusectl",
        rustix::mount::MountFlags::empty(),
        None,
    ) {
        Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(error) => Err(error).context(format!("mounting fusectl on {CONNECTIONS}")),
    }
}

/// How many requests of a mount's connection are waiting to be answered or read.
///
/// # Errors
/// When the path is no FUSE mount or the control files are not visible.
pub fn requests_waiting(mountpoint: &Path) -> Result<u64> {
    let mount =
        find(mountpoint)?.with_context(|| format!("{} is not mounted", mountpoint.display()))?;
    let file = Path::new(CONNECTIONS).join(mount.device.1.to_string()).join("waiting");
    let text =
        std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    text.trim().parse().with_context(|| format!("{}: {text:?} is not a number", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_are_read() {
        let line = br"55 29 0:52 / /tmp/a\040b rw,relatime shared:3 - fuse.sshfs host:/ rw";
        let mount = parse_line(line).unwrap();
        assert_eq!(mount.mountpoint, Path::new("/tmp/a b"));
        assert_eq!(mount.device, (0, 52));
        assert_eq!(mount.fstype, "fuse.sshfs");
        assert!(parse_line(b"").is_none());
        assert!(find(Path::new("/proc")).unwrap().is_some());
    }

    #[test]
    fn nothing_happens_to_what_is_not_mounted() {
        let dir = tempfile::tempdir().unwrap();
        unmount_by_force(dir.path());
        wait(dir.path(), false, Duration::ZERO, || Ok(())).unwrap();
        assert!(wait(dir.path(), true, Duration::ZERO, || Ok(())).is_err());
        assert!(unmount_clean(dir.path(), Duration::ZERO).is_err());
    }
}

//! Who uses a mount: found without touching it, since its daemon may be dead, or hang.
//!
//! What may wait for that daemon is left alone: the memory of a process (its command line,
//! environment and maps), since a page fault on the mount may hold its lock, so that a file that is
//! mapped and closed is not seen. The links of /proc are in the kernel's own memory, and wait for
//! an exec alone, so they are read with a limit ([`Readers`]). Where such a link leads to is looked
//! at through a descriptor that is for nothing but looking (`O_PATH`), and of that only the number
//! of its file system is asked for, which FUSE answers by itself.

use crate::mounts;
use crate::process::Readers;
use crate::procfs;
use crate::status::Status;
use crate::text::escaped;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Readers of all processes of this machine. Those whose exec waits are not to keep those of this
/// mount from being looked at.
static ALL: Readers = Readers::new();
/// Things of one process that are named.
const THINGS: usize = 3;

/// Who uses a mount.
#[derive(Clone, Debug, Default)]
pub struct Users {
    /// Those who do.
    pub found: Vec<User>,
    /// Processes that this user may not look at, or that are in an exec which waits for a file
    /// system.
    pub hidden: usize,
}

/// Something that uses a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// A process.
    Process {
        /// Its id.
        pid: u32,
        /// Its name.
        name: String,
        /// What it uses.
        things: Vec<String>,
        /// How much more it uses.
        more: usize,
    },
    /// Another mount, on this one.
    Mount(String),
    /// A loop device with a file on it.
    Loop(String),
    /// A copy of the mount in another mount namespace.
    Namespace {
        /// One of the processes that live there.
        pid: u32,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, name, things, more } => {
                write!(f, "process {pid} ({name}): {}", things.join(", "))?;
                if *more > 0 { write!(f, ", and {more} more") } else { Ok(()) }
            }
            Self::Mount(place) => write!(f, "the mount {place}"),
            Self::Loop(device) => write!(f, "the loop device {device}"),
            Self::Namespace { pid, name } => {
                write!(f, "a copy of it in the mount namespace of process {pid} ({name})")
            }
        }
    }
}

/// `major:minor` of the file system of a mount; `None` if it is not in the mount table.
pub fn device(status: &Status) -> Option<String> {
    let mount = mounts::at(&status.place()?)?;
    mount.is_fuse().then_some(mount.device)
}

/// Who uses the file system `device`, as far as this user may know.
pub fn of(device: &str) -> Users {
    of_in(device, &mounts::table().unwrap_or_default())
}

/// The same, with the mount table.
fn of_in(device: &str, table: &[mounts::Mount]) -> Users {
    let Some(device) = parse(device) else {
        return Users::default();
    };
    let mut users = Users::default();
    let is_held = |mount: &&mounts::Mount| parse(&mount.device) == Some(device);
    let held: BTreeSet<u32> = table.iter().filter(is_held).map(|mount| mount.id).collect();
    let on_it = table.iter().filter(|m| held.contains(&m.parent) && !held.contains(&m.id));
    users.found.extend(on_it.map(|m| User::Mount(escaped(OsStr::from_bytes(&m.mountpoint)))));
    for pid in pids() {
        match things(pid, device) {
            None => users.hidden += 1,
            Some(things) if things.is_empty() => {}
            Some(mut things) => {
                let more = things.len().saturating_sub(THINGS);
                things.truncate(THINGS);
                users.found.push(User::Process { pid, name: name(pid), things, more });
            }
        }
    }
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let places: Vec<&[u8]> =
        table.iter().filter(is_held).map(|m| m.mountpoint.as_slice()).collect();
    for block in blocks {
        let file = fs::read(block.path().join("loop/backing_file")).unwrap_or_default();
        let below = |place: &&[u8]| {
            file.strip_prefix(*place).is_some_and(|rest| rest.first() == Some(&b'/'))
        };
        if places.iter().any(below) {
            users.found.push(User::Loop(format!("/dev/{}", block.file_name().to_string_lossy())));
        }
    }
    users
}

/// The same of a file system whose mount was taken off: what is mounted of it elsewhere keeps it as
/// well.
pub fn of_unmounted(device: &str) -> Users {
    let table = mounts::table().unwrap_or_default();
    let mut users = of_in(device, &table);
    let left = table.iter().filter(|mount| mount.device == device);
    users.found.extend(left.map(|m| User::Mount(escaped(OsStr::from_bytes(&m.mountpoint)))));
    let mut seen = BTreeSet::from_iter(own_namespace());
    for pid in pids() {
        // A mount table is in the kernel's memory, and no daemon is asked for it.
        let is_new = namespace(pid).is_some_and(|name| seen.insert(name));
        let table = || procfs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        if is_new && mounts::parse_table(&table()).iter().any(|mount| mount.device == device) {
            users.found.push(User::Namespace { pid, name: name(pid) });
        }
    }
    users
}

/// Whether a process uses the file system `device` by another mount namespace than this one: the
/// kernel, asked to unmount, does not count that.
pub fn is_used_elsewhere(device: &str) -> bool {
    let (Some(device), Some(here)) = (parse(device), own_namespace()) else {
        return false;
    };
    let uses = |pid| {
        let here = here.clone();
        let uses = move || {
            namespace_of(pid).is_some_and(|name| name != here)
                && things_of(pid, device).is_some_and(|things| !things.is_empty())
        };
        ALL.at(pid, uses).unwrap_or(false)
    };
    pids().any(uses)
}

/// The name of the mount namespace of a process.
fn namespace(pid: u32) -> Option<PathBuf> {
    ALL.at(pid, move || namespace_of(pid)).ok()?
}

fn namespace_of(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

fn own_namespace() -> Option<PathBuf> {
    fs::read_link("/proc/self/ns/mnt").ok()
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parse(device: &str) -> Option<(u32, u32)> {
    let (major, minor) = device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn name(pid: u32) -> String {
    let name = procfs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    escaped(OsStr::from_bytes(name.strip_suffix(b"\n").unwrap_or(&name)))
}

/// What process `pid` uses of the file system; `None` if it may not or cannot be looked at.
fn things(pid: u32, device: (u32, u32)) -> Option<Vec<String>> {
    ALL.at(pid, move || things_of(pid, device)).ok().flatten()
}

fn things_of(pid: u32, device: (u32, u32)) -> Option<Vec<String>> {
    let dir = format!("/proc/{pid}");
    let mut found = Vec::new();
    let mut look = |link: &Path, what: &str| {
        if device_of(link) == Some(device) {
            found.push(format!("{what} {}", target(link)));
        }
    };
    let fds = match fs::read_dir(format!("{dir}/fd")) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
        fds => fds.into_iter().flatten().flatten(),
    };
    let links = [("cwd", "working directory"), ("root", "root directory"), ("exe", "program")];
    for (link, what) in links {
        look(&Path::new(&dir).join(link), what);
    }
    for fd in fds {
        look(&fd.path(), "open file");
    }
    Some(found)
}

fn target(link: &Path) -> String {
    fs::read_link(link).map(|to| escaped(to.as_os_str())).unwrap_or_default()
}

/// The number of the file system that a link of /proc leads to.
fn device_of(link: &Path) -> Option<(u32, u32)> {
    let file = openat(CWD, link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // Nothing is asked of the file but where it is.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let stat = statx(&file, c"", flags, StatxFlags::empty()).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_the_file_system_of_its_program() {
        let exe = std::env::current_exe().expect("me");
        let (major, minor) = device_of(Path::new("/proc/self/exe")).expect("a device");
        let users = of(&format!("{major}:{minor}"));
        let me = users.found.iter().find_map(|user| match user {
            User::Process { pid, things, .. } if *pid == std::process::id() => Some(things.clone()),
            _ => None,
        });
        let things = me.expect("this process").join("\n");
        assert!(things.contains(&format!("program {}", exe.display())), "{things}");
        assert!(of("0:0").found.is_empty());
    }
}

//! The host's unmounts and remounts, done again in the mount namespaces that belay has made.
//!
//! A successor lives in a mount namespace of its own (ARCHITECTURE.md), which has copies of all
//! mounts that were there when it was started. Where the host's mounts are shared, as systemd makes
//! them, a copy goes with its original. Where they are private, as in most containers, it would
//! stay and keep the file system busy: a daemon would not learn that its mount is gone, a disk
//! would never be free. What propagation does elsewhere is done by hand here, in a thread of its
//! own; and what it does nowhere: what the host forbids on a mount later, such as writing, is
//! forbidden on its copies ([`remounts`]).
//!
//! Invariants: only a copy is touched, that is, what sits where the host has or had the same; one
//! is unmounted only if it has nothing on it which the host still has or never had; and by a path
//! that leads over what others serve (FUSE, NFS and the like, autofs), where the walk would wait
//! for them, only as far as the kernel knows it. Else such a mount goes with the one that it is on.
//!
//! A namespace is found by the processes that live in it. No descriptor of it is kept: that would
//! keep it, and all its copies, beyond their end.

pub(crate) mod copies;
mod remounts;

use crate::error::passes;
use crate::folder::Folder;
use crate::fusermount::may_mount;
use crate::mounts::way::root_of;
use crate::mounts::{Mount, parse_table};
use crate::process::{OURS, descendants};
use crate::unmount::detach;
use remounts::{Missed, Remounts, Table};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, PROC_SUPER_MAGIC, fstatfs, open};
use rustix::io::Errno;
use rustix::process::getppid;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often copies of a mount are looked for once it is gone or changed, and how many times: a
/// successor may have been about to start, a process about to be born.
const LOOK: Duration = Duration::from_millis(250);
const LOOKS: u32 = 8;
/// Generations of which something may still be alive.
const GENERATIONS: usize = 16;
/// The file with the mount table as it was last seen, in the mount's folder.
pub const LEFT: &str = "mounts";

/// Where mount namespaces can be told apart: the text of `/proc/PID/ns/mnt`.
type Name = PathBuf;

/// The namespaces that belay has made: the process each was made for, and the name.
type Made = Vec<(u32, Name)>;

/// Does the host's unmounts and remounts again in belay's namespaces.
#[derive(Debug)]
pub struct Mirror {
    made: Arc<Mutex<Made>>,
    told: Arc<Mutex<Option<String>>>,
}

impl Mirror {
    /// Begins to watch the host's mount table, if this process may unmount at all. `keeper` is the
    /// process that adopts what earlier supervisors have started; `folder`, the mount's, is where
    /// they have left what was mounted. At `event` is counted when there is something else to be
    /// told. If the thread cannot be had, copies stay.
    ///
    /// # Errors
    /// Those of duplicating a descriptor.
    pub fn start(keeper: u32, folder: &Folder, event: &OwnedFd) -> io::Result<Self> {
        let (made, told) = (Arc::<Mutex<Made>>::default(), Arc::default());
        // Opened here once, so that it is not made anew when the folder is being removed.
        let left = folder.open(LEFT, OFlags::RDWR | OFlags::CREATE);
        let watch = Watch {
            made: Arc::clone(&made),
            keeper,
            left: left.ok().map(File::from),
            originals: HashSet::new(),
            gone: Vec::new(),
            remounts: Remounts::default(),
            told: Arc::clone(&told),
            event: event.try_clone()?,
        };
        if may_mount()
            && let Err((error, _)) = crate::threads::start("mirror", || watch.run())
        {
            tracing::debug!("cannot watch the mount table: {error}");
        }
        Ok(Self { made, told })
    }

    /// Where the daemon writes on though the host forbids it.
    pub fn told(&self) -> Option<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes down that process `pid` was started in a namespace of its own.
    pub fn note(&self, pid: u32) {
        let Some(name) = name_of(pid).filter(|name| Some(name) != own_name().as_ref()) else {
            return;
        };
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|(_, known)| *known != name);
        let excess = (made.len() + 1).saturating_sub(GENERATIONS);
        made.drain(..excess);
        made.push((pid, name));
    }

    /// That process is gone, and has started no other.
    pub fn forget(&self, pid: u32) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|(known, _)| *known != pid);
    }
}

fn name_of(pid: u32) -> Option<Name> {
    OURS.at(pid, move || fs::read_link(format!("/proc/{pid}/ns/mnt"))).ok()?.ok()
}

fn own_name() -> Option<Name> {
    fs::read_link("/proc/self/ns/mnt").ok()
}

/// The thread.
struct Watch {
    made: Arc<Mutex<Made>>,
    keeper: u32,
    /// What was mounted when it was last looked, for the next supervisor: the host may unmount in
    /// the instant without one.
    left: Option<File>,
    /// What is mounted on the host; one that was moved counts at each of its places until it ends.
    originals: HashSet<Mount>,
    /// What the host has unmounted, and how many looks for copies of it are left.
    gone: Vec<(Mount, u32)>,
    /// What the host has forbidden or allowed on its mounts.
    remounts: Remounts,
    told: Arc<Mutex<Option<String>>>,
    event: OwnedFd,
}

impl Watch {
    fn run(mut self) {
        let path = "/proc/self/mountinfo";
        // The kernel tells of each change after this open once (fs/proc_namespace.c, mounts_poll).
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) => {
                tracing::debug!("cannot watch the mount table: {error}");
                return;
            }
        };
        let mut earlier = Vec::new();
        if let Some(mut left) = self.left.as_ref()
            && left.read_to_end(&mut earlier).is_ok()
        {
            self.originals.extend(parse_table(&earlier));
            self.remounts.recall(&earlier);
        }
        loop {
            let read = || fs::read(path);
            let tables = read().and_then(|first| Ok((first, read()?)));
            // A table that cannot be read tells nothing, nor does one that was read while it
            // changed: old kernels leave lines out then.
            if let Ok((first, second)) = &tables {
                self.compare(parse_table(first), parse_table(second));
                self.remounts.see(Table::parse(second));
            }
            if self.pause().is_some() {
                self.look();
            }
            if let (Some(left), Ok((_, last))) = (&self.left, &tables) {
                let length = last.len() as u64;
                let kept = left.write_all_at(last, 0).and_then(|()| left.set_len(length));
                tracing::trace!("the mount table is kept: {kept:?}");
            }
            let pause = self.pause().and_then(|pause| Timespec::try_from(pause).ok());
            let mut fds = [PollFd::new(&file, PollFlags::PRI)];
            match poll(&mut fds, pause.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::debug!("cannot watch the mount table: {error}");
                    return;
                }
            }
        }
    }

    /// Takes note of what is not in the table any more.
    fn compare(&mut self, first: Vec<Mount>, second: Vec<Mount>) {
        let tables = || first.iter().chain(&second);
        let alive: HashSet<_> = tables().map(|mount| (mount.id, &mount.device)).collect();
        let ended = self.originals.extract_if(|mount| !alive.contains(&(mount.id, &mount.device)));
        self.gone.extend(ended.map(|mount| (mount, LOOKS)));
        // What is mounted again at its place needs its copy.
        self.gone.retain(|(gone, _)| !tables().any(|mount| mount.is_same(gone)));
        self.originals.extend(first.into_iter().chain(second));
    }

    /// When to look at the namespaces again, if at all.
    fn pause(&self) -> Option<Duration> {
        if self.gone.is_empty() { self.remounts.pause() } else { Some(LOOK) }
    }

    /// Looks at the copies of what is gone or changed.
    fn look(&mut self) {
        let (mut missed, mut lacks) = (Vec::new(), false);
        for pid in self.residents() {
            if let Err(error) = self.look_in(pid, &mut missed) {
                tracing::debug!("the mount namespace of process {pid}: {error}");
                lacks |= passes(&error);
            }
        }
        // A look that the machine could not afford was none.
        if lacks {
            return;
        }
        self.remounts.note(&missed);
        self.gone.retain_mut(|(_, looks)| {
            *looks -= 1;
            *looks > 0
        });
        let told = self.remounts.told();
        let mut before = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *before != told {
            *before = told;
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// One living process of each namespace that belay has made.
    fn residents(&self) -> Vec<u32> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if made.is_empty() {
            return Vec::new();
        }
        // A daemon that has lost both keeper and supervisor is below neither of the next.
        let mut found: Vec<u32> = made.iter().map(|(pid, _)| *pid).collect();
        let mut roots = vec![std::process::id()];
        // A keeper that replaced the first is below the supervisor.
        let parent = getppid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
        roots.extend(parent.filter(|pid| *pid == self.keeper));
        roots.extend(&found);
        found.extend(descendants(&roots, &[]));
        let mut seen = HashSet::new();
        found.retain(|pid| {
            name_of(*pid).is_some_and(|name| {
                made.iter().any(|(_, known)| *known == name) && seen.insert(name)
            })
        });
        found
    }

    /// In the namespace of a process. Which copies could not be changed goes to `missed`, also if
    /// something else fails there.
    fn look_in(&self, pid: u32, missed: &mut Vec<Missed>) -> io::Result<()> {
        // It may have gone to another one meanwhile.
        let namespace = copies::open_own(pid)?;
        belay_sys::in_mount_namespace(namespace.as_fd(), || {
            // First, as it waits for nobody.
            let changed = self.remounts.carry(missed);
            self.clear().and(changed)
        })?
    }

    /// Unmounts the copies of what is gone in this thread's namespace.
    fn clear(&self) -> io::Result<()> {
        if self.gone.is_empty() {
            return Ok(());
        }
        take_off(|mount| self.is_gone(mount))
    }

    fn is_gone(&self, mount: &Mount) -> bool {
        self.gone.iter().any(|(gone, _)| gone.is_same(mount))
    }
}

/// The mount table of this thread's namespace, where something else may be mounted over `/proc`.
fn own_table() -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut file = File::from(open("/proc/thread-self/mountinfo", flags, Mode::empty())?);
    if fstatfs(&file)?.f_type != PROC_SUPER_MAGIC {
        return Err(io::Error::other("there is no /proc in it"));
    }
    let mut table = Vec::new();
    file.read_to_end(&mut table)?;
    Ok(table)
}

/// Unmounts what is `gone` in this thread's namespace.
fn take_off(gone: impl Fn(&Mount) -> bool) -> io::Result<()> {
    let mut table = parse_table(&own_table()?);
    // What is mounted on others comes after them.
    let copies: Vec<u32> =
        table.iter().rev().filter(|mount| gone(mount)).map(|mount| mount.id).collect();
    for id in copies {
        let Some(copy) = detachable(&table, id, &gone) else { continue };
        let done = root_of(copy, is_free(&table, id)).and_then(|root| detach(root.as_fd()));
        tracing::debug!("a copy of an ended mount: {done:?}");
        if done.is_ok() {
            let taken = subtree(&table, id);
            table.retain(|mount| !taken.contains(&mount.id));
        }
    }
    Ok(())
}

/// Mount `id`, if it may be taken off: that takes nothing along which is not `gone` as well.
fn detachable(table: &[Mount], id: u32, gone: impl Fn(&Mount) -> bool) -> Option<&Mount> {
    let target = table.iter().find(|mount| mount.id == id)?;
    let taken = subtree(table, id);
    if !table.iter().filter(|mount| taken.contains(&mount.id)).all(gone) {
        return None;
    }
    Some(target)
}

/// Whether the path of mount `id` leads to it, and not over what others serve.
fn is_free(table: &[Mount], id: u32) -> bool {
    let Some(target) = table.iter().find(|mount| mount.id == id) else { return false };
    let path = |mount: &Mount| Path::new(OsStr::from_bytes(&mount.mountpoint)).to_owned();
    let place = path(target);
    let on = |below: &Mount| {
        let below = below.id;
        table.iter().filter(move |mount| mount.parent == below && mount.id != below)
    };
    // The walk that the kernel will do: from the uppermost root to the first mount on the way.
    let root = |mount: &&Mount| {
        mount.mountpoint == b"/" && !on(mount).any(|upper| upper.mountpoint == b"/")
    };
    let mut next = table.iter().find(root);
    for _ in table {
        let Some(here) = next else { break };
        if here.id == id {
            return !on(here).any(|upper| upper.mountpoint == here.mountpoint);
        }
        if here.is_served() {
            break;
        }
        let ahead = on(here).filter(|mount| place.starts_with(path(mount)));
        next = ahead.min_by_key(|mount| mount.mountpoint.len());
    }
    false
}

/// Mount `id` and all that is mounted on it.
fn subtree(table: &[Mount], id: u32) -> HashSet<u32> {
    let mut found = HashSet::from([id]);
    let mut open = vec![id];
    while let Some(below) = open.pop() {
        let upper = table.iter().filter(|mount| mount.parent == below).map(|mount| mount.id);
        open.extend(upper.filter(|id| found.insert(*id)).collect::<Vec<_>>());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        21 20 0:21 / /proc rw - proc proc rw\n\
        30 20 8:17 / /disk rw - vfat /dev/sdb1 rw\n\
        31 30 0:50 / /disk/in rw - tmpfs x rw\n\
        40 20 0:60 / /fuse rw - fuse.x x rw\n\
        41 40 0:61 / /fuse/in rw - tmpfs x rw\n\
        50 20 0:70 / /twice rw - tmpfs x rw\n\
        51 50 0:71 / /twice rw - tmpfs x rw\n\
        52 20 0:72 / /twice-not rw - tmpfs x rw\n\
        53 20 0:73 / /auto rw - autofs x rw\n\
        54 53 0:74 / /auto/in rw - nfs x rw\n\
        55 20 0:75 / /far rw - nfs4 x rw\n\
        56 55 0:76 / /far/in rw - tmpfs x rw\n\
        60 20 0:80 / /over/in rw - tmpfs x rw\n\
        61 20 0:81 / /over rw - tmpfs x rw\n";

    fn place(id: u32, gone: &[u32]) -> Option<String> {
        let table = parse_table(TABLE);
        let mount = detachable(&table, id, |mount| gone.contains(&mount.id))?;
        let mount = is_free(&table, id).then_some(mount)?;
        Some(String::from_utf8_lossy(&mount.mountpoint).into_owned())
    }

    #[test]
    fn only_what_the_path_leads_to_is_taken_off() {
        assert_eq!(place(52, &[52]).as_deref(), Some("/twice-not"));
        assert_eq!(place(51, &[51]).as_deref(), Some("/twice"));
        assert_eq!(place(50, &[50, 51]), None, "covered by what is on it");
        assert_eq!(place(60, &[60]), None, "covered by what is on a directory above");
        assert_eq!(place(61, &[61]).as_deref(), Some("/over"));
        assert_eq!(place(99, &[99]), None);
    }

    #[test]
    fn nothing_else_goes_along() {
        assert_eq!(place(30, &[30]), None, "something is mounted on it");
        assert_eq!(place(30, &[30, 31]).as_deref(), Some("/disk"));
        assert_eq!(place(31, &[31]).as_deref(), Some("/disk/in"));
    }

    #[test]
    fn no_way_leads_over_what_others_serve() {
        assert_eq!(place(41, &[41]), None);
        assert_eq!(place(40, &[40, 41]).as_deref(), Some("/fuse"));
        assert_eq!(place(54, &[54]), None);
        assert_eq!(place(56, &[56]), None);
        assert_eq!(place(55, &[55, 56]).as_deref(), Some("/far"));
    }

    fn watch() -> Watch {
        Watch {
            made: Arc::default(),
            keeper: 0,
            left: None,
            originals: HashSet::new(),
            gone: Vec::new(),
            remounts: Remounts::default(),
            told: Arc::default(),
            event: rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
                .expect("eventfd"),
        }
    }

    #[test]
    fn ends_are_told_from_moves_and_new_mounts() {
        let table = |text: &str| parse_table(text.as_bytes());
        let [a, b] = ["20 1 8:1 / / rw - e x rw\n", "30 20 0:9 / /a rw - t x rw\n"];
        let (both, moved) = (a.to_owned() + b, a.to_owned() + &b.replace("/a", "/b"));
        let again = a.to_owned() + &b.replace("30 ", "31 ");
        let mut watch = watch();
        let mut see = |first: &str, second: &str| {
            watch.compare(table(first), table(second));
            let mut gone: Vec<_> =
                watch.gone.iter().map(|(mount, _)| mount.mountpoint.clone()).collect();
            gone.sort();
            gone
        };
        assert!(see(&both, &both).is_empty());
        assert!(see(a, &both).is_empty(), "a line that was left out");
        assert!(see(&again, &again).is_empty(), "the same at the same place");
        assert!(see(&both, &both).is_empty());
        assert!(see(&moved, &moved).is_empty());
        assert_eq!(see(a, a), [b"/a", b"/b"]);
        assert_eq!(see(&both, &both), [b"/b"], "its copy is wanted again");
    }
}

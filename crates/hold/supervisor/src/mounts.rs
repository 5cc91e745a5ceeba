//! The mount table, and what can be done to the device without serving it.

use crate::look::link_known;
use crate::scout::Scouts;
use crate::text::OsText;
use crate::threads;
use crate::unmount::{self, How, take_off};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a mount must be in use to be taken as such.
const IN_USE: Duration = Duration::from_millis(500);
/// How long what the machine lacks for an unmount is waited for.
pub const LACK: Duration = Duration::from_secs(30);

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mount {
    /// The kernel's number of the mount, which may come again once it is gone.
    pub id: u32,
    /// The number of the mount that it is on.
    pub parent: u32,
    /// `major:minor` of the file system.
    pub device: String,
    /// What of the file system is mounted: `/`, or the directory of a bind mount.
    pub root: Vec<u8>,
    /// Where it is mounted.
    pub mountpoint: Vec<u8>,
    /// Its type, such as `fuse.sshfs`.
    pub kind: String,
}

impl Mount {
    /// Whether it is a FUSE file system.
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse"
            || self.kind == "fuseblk"
            || self.kind.starts_with("fuse.")
            || self.kind.starts_with("fuseblk.")
    }

    /// Whether somebody else has what is on it: a program or another machine, which may not answer.
    pub fn is_served(&self) -> bool {
        const KINDS: [&str; 14] = [
            "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "afs", "coda", "lustre", "ocfs2",
            "gfs2", "virtiofs", "autofs",
        ];
        self.is_fuse() || KINDS.contains(&self.kind.as_str())
    }

    /// Whether `other`, of another table or another time, is the same thing at the same place.
    pub fn is_same(&self, other: &Self) -> bool {
        self.device == other.device
            && self.root == other.root
            && self.mountpoint == other.mountpoint
    }
}

/// The mount that belay holds: what must agree before anything is done to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountFact {
    /// Where it is mounted.
    pub mountpoint: OsText,
    /// `major:minor` of the file system.
    pub device: String,
    /// The kernel's number of the mount: it stays when a folder on the way to it gets another name.
    #[serde(default)]
    pub id: u32,
    /// A number that no other mount ever gets, of kernels that have such (Linux 6.8). All others are given anew as soon as a
    /// mount is gone.
    #[serde(default)]
    pub unique: Option<u64>,
    /// Whether it is known that this is the mount of the held device, and not only said by a daemon: else it is not touched.
    #[serde(default)]
    pub proven: bool,
}

impl MountFact {
    /// That of `mount`.
    pub fn of(mount: &Mount) -> Self {
        Self {
            mountpoint: OsText::from_bytes(&mount.mountpoint),
            device: mount.device.clone(),
            id: mount.id,
            unique: unmount::unique_of(mount),
            proven: true,
        }
    }

    /// Whether what `there` is on is the held mount still. It has the same numbers; but these are another's when it is gone.
    /// `device`: the held one.
    fn is_still(
        &self,
        there: BorrowedFd<'_>,
        mount: &Mount,
        device: Option<BorrowedFd<'_>>,
    ) -> bool {
        match (self.unique, unmount::unique(there)) {
            (Some(known), Some(found)) => known == found,
            // As long as the connection lives, nobody else can have its number.
            _ => {
                device.is_some_and(|device| !is_disconnected(device))
                    || self.mountpoint == OsText::from_bytes(&mount.mountpoint)
            }
        }
    }

    /// Whether belay may take it away. Says so if not.
    fn may_be_taken(&self) -> bool {
        if !self.proven {
            tracing::warn!("{}: {}", self.mountpoint.show(), self.unproven());
        }
        self.proven
    }

    /// Why it may not, if it is not proven.
    fn unproven(&self) -> String {
        "it is left as it is: this kernel does not say whether that is what the daemon has mounted, and other FUSE file systems \
         came at the same time. Unmount it with `umount` or `fusermount3 -u`"
            .to_owned()
    }

    /// Whether `mount` is the held one.
    pub fn is(&self, mount: &Mount) -> bool {
        mount.is_fuse() && mount.device == self.device && mount.id == self.id
    }
}

/// The held mount where it is now, if nothing is mounted on it.
///
/// # Errors
/// Those of [`table`].
pub fn uncovered(fact: &MountFact) -> io::Result<Option<Mount>> {
    let table = table()?;
    let found = table.iter().find(|mount| fact.is(mount));
    Ok(found.filter(|mount| upper(&table, mount).is_none()).cloned())
}

/// What is mounted on all of `mount`.
fn upper<'t>(table: &'t [Mount], mount: &Mount) -> Option<&'t Mount> {
    table.iter().find(|other| {
        other.parent == mount.id && other.id != mount.id && other.mountpoint == mount.mountpoint
    })
}

/// Where a mount is.
enum Place {
    /// Not in the table.
    Gone,
    /// Below another one, which hides all of it.
    Below(Mount),
    /// There.
    Here,
    /// Nobody can tell now.
    Unknown(io::Error),
}

fn place(fact: &MountFact) -> Place {
    let table = match table() {
        Ok(table) => table,
        Err(error) => return Place::Unknown(error),
    };
    match table.iter().find(|mount| fact.is(mount)) {
        None => Place::Gone,
        Some(mount) => {
            upper(&table, mount).map_or(Place::Here, |upper| Place::Below(upper.clone()))
        }
    }
}

/// Why the held mount cannot be taken off without another one: `None` if nothing hides it.
pub fn covered(fact: &MountFact) -> Option<String> {
    match place(fact) {
        Place::Below(upper) => Some(in_the_way(&upper)),
        Place::Unknown(error) => Some(unreadable(&error)),
        Place::Gone | Place::Here => None,
    }
}

fn unreadable(error: &io::Error) -> String {
    format!("the mount table cannot be read: {error}; try again")
}

fn in_the_way(upper: &Mount) -> String {
    format!("another file system ({}) is mounted on top of it; unmount that first", upper.kind)
}

/// Whether the held mount is in the table, covered or not, and surely that one where the kernel can tell. What cannot be told
/// now is there: nobody forgets it then.
pub fn is_there(fact: &MountFact) -> bool {
    let Ok(table) = table() else { return true };
    let Some(mount) = table.iter().find(|mount| fact.is(mount)) else { return false };
    let found = unmount::unique_of(mount);
    fact.unique.is_none() || found.is_none() || found == fact.unique
}

/// The mount table of this process.
///
/// # Errors
/// Those of reading it. That nothing is found in it says something only if it was read.
pub fn table() -> io::Result<Vec<Mount>> {
    Ok(parse_table(&fs::read("/proc/self/mountinfo")?))
}

/// Parses a mountinfo file; lines that are not understood are left out.
pub fn parse_table(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = words.iter().position(|word| *word == b"-")?;
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse().ok();
    Some(Mount {
        id: number(words.first()?)?,
        parent: number(words.get(1)?)?,
        device: text(words.get(2)?),
        root: unescape(words.get(3)?),
        mountpoint: unescape(words.get(4)?),
        kind: text(words.get(dash + 1)?),
    })
}

// The kernel writes blank, tab, newline and backslash as three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        rest = tail;
        let octal = tail.get(..3).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match (first, octal) {
            (b'\\', Some(digits)) => {
                let value = digits.iter().fold(0_u32, |sum, d| sum * 8 + u32::from(d - b'0'));
                out.push(value as u8);
                rest = tail.get(3..).unwrap_or_default();
            }
            _ => out.push(*first),
        }
    }
    out
}

/// What is mounted at exactly `path`, uppermost; nothing if that cannot be told, so this is for messages and for looks that come
/// again.
pub fn at(path: &Path) -> Option<Mount> {
    table().ok()?.into_iter().rev().find(|mount| mount.mountpoint == path.as_os_str().as_bytes())
}

/// Finds the mount of the connection that `device` serves. `told` is where the daemon said that it
/// mounted: only a hint, used on kernels that do not name the connection of a descriptor.
///
/// `before`: the FUSE file systems that were there before the daemon's start (see [`fuse_devices`]).
pub fn find(device: BorrowedFd<'_>, told: &[u8], before: &[String]) -> Option<MountFact> {
    let table = table().ok()?;
    let fact = MountFact::of;
    if let Some(number) = connection(device) {
        let of_connection = |mount: &&Mount| mount.device == number && mount.is_fuse();
        // The same file system may be bound elsewhere: what the daemon said decides then.
        let all = || table.iter().filter(of_connection);
        return all().find(|m| m.mountpoint == told).or_else(|| all().next()).map(fact);
    }
    // The device of a kernel that names connections has none yet: that of the mount is still on its way here.
    if !was_mounted(device) {
        return None;
    }
    guess(&table, told, before).map(|(mount, proven)| MountFact { proven, ..fact(mount) })
}

/// The mount at the place that the daemon named, and whether it must be that of the held device. The daemon may have given up
/// its privileges since, and name any mount. But the held one is in the table, and was not before: if no other FUSE file
/// system has come since, it is that.
fn guess<'t>(table: &'t [Mount], told: &[u8], before: &[String]) -> Option<(&'t Mount, bool)> {
    let found = table.iter().rev().find(|mount| mount.is_fuse() && mount.mountpoint == told)?;
    let mut new = table.iter().filter(|mount| mount.is_fuse() && !before.contains(&mount.device));
    let is_new = !before.contains(&found.device);
    Some((found, is_new && new.all(|mount| mount.device == found.device)))
}

/// The FUSE file systems in the mount table, by `major:minor`.
///
/// # Errors
/// Those of [`table`].
pub fn fuse_devices() -> io::Result<Vec<String>> {
    let table = table()?.into_iter().filter(Mount::is_fuse);
    let devices: std::collections::BTreeSet<String> = table.map(|mount| mount.device).collect();
    Ok(devices.into_iter().collect())
}

/// `major:minor` of the connection of a FUSE device description; `None` before the mount and on
/// kernels that do not tell.
pub fn connection(device: BorrowedFd<'_>) -> Option<String> {
    let path = format!("/proc/self/fdinfo/{}", device.as_raw_fd());
    connection_in(&fs::read_to_string(path).ok()?)
}

/// Whether process `pid` has a device open that serves the mount with the number `device`. `false` if that cannot be seen.
pub fn serves(pid: u32, device: &str) -> bool {
    serves_each(pid).any(|of| of == device)
}

/// The numbers of all mounts of which process `pid` has a device open. None if that cannot be seen.
pub(crate) fn served_by(pid: u32) -> Vec<String> {
    serves_each(pid).collect()
}

fn serves_each(pid: u32) -> impl Iterator<Item = String> {
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    infos
        .filter_map(|info| fs::read_to_string(info.path()).ok())
        .filter_map(|info| connection_in(&info))
}

/// `major:minor` of the connection that a file of fdinfo names.
fn connection_in(info: &str) -> Option<String> {
    let number = info.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    let number = number.trim().parse::<u32>().ok()?;
    // The kernel's own form of a device number: 12 bits and 20 bits.
    Some(format!("{}:{}", number >> 20, number & 0xf_ffff))
}

/// Whether the connection of `device` is gone, or was never there.
pub fn is_disconnected(device: BorrowedFd<'_>) -> bool {
    look(device).contains(PollFlags::ERR)
}

/// Whether something is mounted, or was, by `device`.
pub fn was_mounted(device: BorrowedFd<'_>) -> bool {
    // What is too short for a reply is refused by whoever serves a connection, whether that lives or not (`EINVAL`). Before the
    // mount nothing can be written (`EPERM`), and no write to a device waits.
    rustix::io::write(device, &[0]) != Err(Errno::PERM)
}

/// Whether the kernel holds requests for `device` that nobody has read.
pub fn has_unread(device: BorrowedFd<'_>) -> bool {
    let events = look(device);
    events.contains(PollFlags::IN) && !events.contains(PollFlags::ERR)
}

// One look: to wait for the device would wake the supervisor at every request.
fn look(device: BorrowedFd<'_>) -> PollFlags {
    let mut fds = [PollFd::from_borrowed_fd(device, PollFlags::IN)];
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        match poll(&mut fds, Some(&none)) {
            Err(Errno::INTR) => {}
            Ok(_) => return fds[0].revents(),
            Err(_) => return PollFlags::empty(),
        }
    }
}

/// Asks the kernel to hand out again all requests that were read and not answered.
///
/// # Errors
/// `EINVAL` on a kernel before 6.9, `EPERM` before the mount, `ENODEV` after its end.
pub fn resend(device: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let mut message = [0_u8; 16];
    message[..4].copy_from_slice(&16_u32.to_ne_bytes());
    message[4..8].copy_from_slice(&7_i32.to_ne_bytes()); // FUSE_NOTIFY_RESEND
    rustix::io::write(device, &message).map(drop)
}

/// Takes the mount out of the tree if it is still the one that belay holds; says whether it was. `device`: the held one.
pub fn detach(fact: &MountFact, device: Option<BorrowedFd<'_>>, scouts: &Scouts) -> bool {
    detach_within(fact, device, scouts, threads::PATIENCE).unwrap_or_else(|error| {
        tracing::warn!("{}: not unmounted yet: {error}", fact.mountpoint.show());
        false
    })
}

/// The same; what the machine lacks for it now is waited for so long.
fn detach_within(
    fact: &MountFact,
    device: Option<BorrowedFd<'_>>,
    scouts: &Scouts,
    patience: Duration,
) -> io::Result<bool> {
    let still = |there: BorrowedFd<'_>, mount: &Mount| fact.is_still(there, mount, device);
    let off = || take_off(fact, How::Detached, Some(scouts), still);
    if !fact.may_be_taken() {
        return Ok(false);
    }
    threads::patiently(patience, off)
}

/// How long a mount is waited for whose last unmount waits for somebody else.
const LAST: Duration = Duration::from_secs(1);

/// Ends the connection, and takes the mount out of the tree, for those whom nobody may hold up. In this order: the last unmount of
/// a `fuseblk` mount asks its daemon, and waits for the answer before the kernel itself aborts the connection. Where that cannot be
/// aborted, a thread waits that keeps nothing of it open: it goes on when the last holder of the device is gone.
/// `patience`: how long what the machine lacks for that may be waited for, by the caller.
///
/// # Errors
/// Why it is not off yet, and nobody goes on with that.
pub fn abort_and_detach(
    fact: &MountFact,
    device: BorrowedFd<'_>,
    scouts: &Scouts,
    patience: Duration,
) -> io::Result<()> {
    abort(fact, || !is_disconnected(device));
    if is_disconnected(device) {
        return detach_within(fact, Some(device), scouts, patience).map(drop);
    }
    if !fact.may_be_taken() {
        return Ok(());
    }
    // The thread goes the way itself, as it has nothing by which it could send others.
    if let Some(mount) = uncovered(fact)?
        && unmount::is_near(&mount, scouts) == Err(Errno::TIMEDOUT)
    {
        return Err(unmount::silent());
    }
    let (lacks, wait) = std::sync::mpsc::channel();
    let theirs = fact.clone();
    let work = move || {
        let off = || {
            let still = |there: BorrowedFd<'_>, mount: &Mount| theirs.is_still(there, mount, None);
            let off = || take_off(&theirs, How::Detached, None, still);
            // Each try that fails for want of something is told: what waits for somebody else tells nothing.
            let done = belay_sys::without_descriptors(off).and_then(|done| done);
            if done.is_err() {
                let _ = lacks.send(());
            }
            done
        };
        let _ = threads::patiently(patience, off);
    };
    match threads::start_within(patience, "detach", work) {
        Ok(_) => while wait.recv_timeout(LAST).is_ok() {},
        Err((error, _)) => return Err(error),
    }
    Ok(())
}

/// What became of a mount that was to be taken off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removed {
    /// It is off.
    Now,
    /// It was off before.
    Before,
    /// Somebody uses it.
    InUse,
    /// It is left as it is, for this reason.
    Not(String),
}

/// Takes the held mount out of the tree: `lazy`, or if nobody uses it. `device`: the held one.
pub fn remove(
    fact: &MountFact,
    device: Option<BorrowedFd<'_>>,
    scouts: &Scouts,
    lazy: bool,
) -> Removed {
    let covered = |upper| Removed::Not(in_the_way(&upper));
    match place(fact) {
        Place::Gone => return Removed::Before,
        Place::Below(upper) => return covered(upper),
        Place::Unknown(error) => return Removed::Not(unreadable(&error)),
        Place::Here if !fact.proven => return Removed::Not(fact.unproven()),
        Place::Here => {}
    }
    let begin = Instant::now();
    let how = if lazy { How::Detached } else { How::Idle };
    let still = |there: BorrowedFd<'_>, mount: &Mount| fact.is_still(there, mount, device);
    let off = || take_off(fact, how, Some(scouts), still);
    loop {
        let off = match threads::patiently(LACK, off) {
            Ok(off) => off,
            Err(error) => return Removed::Not(format!("it cannot be unmounted now: {error}")),
        };
        // Whoever unmounts for this process may have done so, and its word be lost: the event loop takes the status of all that end.
        match place(fact) {
            _ if off => return Removed::Now,
            Place::Gone => return Removed::Now,
            Place::Below(upper) => return covered(upper),
            Place::Here if lazy || begin.elapsed() > IN_USE => return Removed::InUse,
            Place::Unknown(error) if begin.elapsed() > IN_USE => {
                return Removed::Not(unreadable(&error));
            }
            Place::Here | Place::Unknown(_) => {}
        }
        // For the instant between fork and exec a child has what its parent had open.
        std::thread::sleep(IN_USE / 25);
    }
}

/// Unmounts, or asks `daemon` to end if the mount is in use. In a thread of its own: unmounting
/// waits for the daemon (dirty pages are written back), whose end the caller must not miss. `device`: a duplicate of the held one.
///
/// # Errors
/// If no thread can be had now: nobody is waited for, and nothing is done.
pub fn release(
    fact: MountFact,
    device: Option<OwnedFd>,
    daemon: crate::process::Watched,
    scouts: Arc<Scouts>,
) -> io::Result<()> {
    let work = move || {
        if remove(&fact, device.as_ref().map(AsFd::as_fd), &scouts, false) == Removed::Now {
            return;
        }
        // It would unmount what is at its place, and that is somebody else's.
        if let Some(why) = covered(&fact) {
            tracing::warn!(
                "{}: {why}; its daemon is not asked to end, but ended when its time is over",
                fact.mountpoint.show()
            );
        } else if let Err(error) = daemon.signal(signal_hook::consts::SIGTERM) {
            tracing::warn!("cannot signal process {}: {error}", daemon.pid);
        }
    };
    threads::start_within(Duration::ZERO, "unmount", work).map_err(|(error, _)| error)
}

/// Aborts the connection through the FUSE control file system, so that every caller gets an error
/// instead of waiting. Says whether that worked; closing the device everywhere does the same.
///
/// A connection's number is another's as soon as its file system is gone. So `is_there` is asked whether it is still there
/// once its control file is open: that leads to nothing any more when the connection goes.
pub fn abort(fact: &MountFact, is_there: impl Fn() -> bool) -> bool {
    let Some(file) = control_file(&fact.device, "abort").filter(|_| fact.proven) else {
        return false;
    };
    let control = fs::File::options().write(true).open(file);
    control.is_ok_and(|mut control| is_there() && control.write_all(b"1").is_ok())
}

/// How many requests the kernel has that are not answered: those that nobody has read, and those that somebody has. `None` where the
/// FUSE control file system is not mounted, or the mount not known for certain.
pub fn waiting(fact: Option<&MountFact>, device: BorrowedFd<'_>) -> Option<u64> {
    let known = || fact.filter(|fact| fact.proven).map(|fact| fact.device.clone());
    let number = connection(device).or_else(known)?;
    fs::read_to_string(control_file(&number, "waiting")?).ok()?.trim().parse().ok()
}

/// A control file of the connection of the file system `device`.
fn control_file(device: &str, name: &str) -> Option<String> {
    let (major, minor) = device.split_once(':')?;
    let number = (major.parse::<u64>().ok()? << 20) | minor.parse::<u64>().ok()?;
    Some(format!("/sys/fs/fuse/connections/{number}/{name}"))
}

/// Whether a FUSE daemon serves what is mounted at `place`.
fn is_served(table: &[Mount], place: &Path) -> bool {
    let at = |mount: &&Mount| mount.mountpoint == place.as_os_str().as_bytes();
    table.iter().rev().find(at).is_some_and(Mount::is_fuse)
}

/// Where the link `path` leads, if it is one; `path` is one of [`resolve_untouched`], and no FUSE daemon is asked.
pub fn read_link_untouched(path: &Path) -> Option<PathBuf> {
    link_by(path, &|path| fs::read_link(path).ok())
}

fn link_by(path: &Path, link: &dyn Fn(&Path) -> Option<PathBuf>) -> Option<PathBuf> {
    let table = table().ok()?;
    let outside = !path.ancestors().any(|place| is_served(&table, place));
    outside.then(|| link(path)).flatten()
}

/// Whether the way to `path` leads through the held mount now, so that who goes it asks the daemon. Nobody is asked here: a link
/// that the kernel does not know now is taken for none.
pub fn hides(fact: &MountFact, path: &Path) -> bool {
    let mount = match uncovered(fact) {
        Ok(Some(mount)) => mount,
        Ok(None) => return false,
        // Nobody goes a way that may lead there.
        Err(_) => return true,
    };
    let mut path = resolve_by(path, &link_known);
    for _ in 0..MAX_LINKS {
        if path.starts_with(OsStr::from_bytes(&mount.mountpoint)) {
            return true;
        }
        let Some(to) = link_by(&path, &link_known) else { return false };
        path = resolve_by(&path.parent().unwrap_or(Path::new("/")).join(to), &link_known);
    }
    true
}

/// Links on the way that are followed, as many as the kernel follows.
const MAX_LINKS: usize = 40;

/// `path` made absolute and free of links without touching what is mounted at it, or what any FUSE daemon serves on the
/// way there, which may hang. Its last part is not followed.
pub fn resolve_untouched(path: &Path) -> PathBuf {
    resolve_by(path, &|path| fs::read_link(path).ok())
}

fn resolve_by(path: &Path, link: &dyn Fn(&Path) -> Option<PathBuf>) -> PathBuf {
    let Ok(absolute) = std::path::absolute(path) else {
        return path.to_owned();
    };
    let Ok(table) = table() else { return absolute };
    let mut rest: Vec<PathBuf> =
        absolute.components().rev().map(|c| c.as_os_str().into()).collect();
    let (mut done, mut links) = (PathBuf::new(), 0);
    while let Some(part) = rest.pop() {
        if part.as_os_str() == "." {
            continue;
        }
        if part.as_os_str() == ".." {
            done.pop();
            continue;
        }
        done.push(&part);
        if is_served(&table, &done) {
            break;
        }
        // Of the last part only the name counts; what is not there is no link.
        let link = if rest.is_empty() { None } else { link(&done) };
        if let Some(to) = link {
            links += 1;
            if links > MAX_LINKS {
                return absolute;
            }
            done.pop();
            rest.extend(to.components().rev().map(|c| c.as_os_str().into()));
        }
    }
    done.extend(rest.into_iter().rev());
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_tables_are_parsed() {
        let text = b"42 27 0:39 / /tmp/a\\040b rw,relatime - fuse.x x rw,user_id=0\n\
            27 1 254:0 / / rw shared:1 master:2 - ext4 /dev/vda rw\n\
            nonsense\n\n43 27 0:40 / /z\\\\ rw -\n";
        let table = parse_table(text);
        assert_eq!(table.len(), 2);
        assert_eq!(table[0].mountpoint, b"/tmp/a b");
        assert_eq!(table[0].device, "0:39");
        assert_eq!((table[0].id, table[0].parent, table[0].root.as_slice()), (42, 27, &b"/"[..]));
        assert!(table[0].is_fuse());
        assert!(!table[1].is_fuse());
        assert_eq!(unescape(b"a\\1"), b"a\\1");
        assert_eq!(unescape(b"\\777"), [0xff]);
    }

    #[test]
    fn only_the_held_mount_is_detached() {
        let root = at(Path::new("/")).expect("a root");
        let scouts = Scouts::default();
        let other = MountFact { device: "0:1".into(), ..MountFact::of(&root) };
        assert!(!detach(&other, None, &scouts));
        assert!(!detach(&MountFact::of(&root), None, &scouts), "it is no FUSE mount");
        assert!(at(Path::new("/")).is_some());
    }

    /// On kernels that do not name the connection of a descriptor.
    #[test]
    fn what_a_daemon_says_of_its_mount_is_believed_only_where_it_must_be_so() {
        let text = b"42 27 0:39 / /old rw - fuse.x x rw\n43 27 0:40 / /mnt rw - fuse x rw\n\
            44 27 0:40 / /bound rw - fuse x rw\n45 27 0:41 / /tmp rw - tmpfs x rw\n";
        let before = ["0:39".to_owned()];
        let guessed = |text: &[u8], told: &[u8]| {
            let table = parse_table(text);
            guess(&table, told, &before).map(|(mount, proven)| (mount.id, proven))
        };
        assert_eq!(guessed(text, b"/mnt"), Some((43, true)));
        assert_eq!(guessed(text, b"/bound"), Some((44, true)));
        assert_eq!(guessed(text, b"/old"), Some((42, false)), "it was there before");
        assert_eq!(guessed(text, b"/tmp"), None, "it is no FUSE mount");
        let more = [&text[..], b"46 27 0:42 / /other rw - fuse.y y rw\n"].concat();
        for told in [&b"/mnt"[..], b"/other"] {
            assert_eq!(guessed(&more, told).map(|(_, proven)| proven), Some(false));
        }
    }

    #[test]
    fn paths_are_resolved_without_their_last_part() {
        let dir = tempfile::tempdir().expect("tempdir");
        let real = dir.path().canonicalize().expect("canonical");
        std::os::unix::fs::symlink(&real, real.join("link")).expect("link");
        assert_eq!(resolve_untouched(&real.join("link/x")), real.join("x"));
        assert_eq!(resolve_untouched(&real.join("no/x")), real.join("no/x"));
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, real.join(name)).expect("link");
        };
        fs::create_dir(real.join("sub")).expect("sub");
        link("../sub/./", "sub/up");
        link("loop", "loop");
        assert_eq!(resolve_untouched(&real.join("link/sub/up/x")), real.join("sub/x"));
        assert_eq!(resolve_untouched(&real.join("sub/up/../link")), real.join("link"));
        assert_eq!(resolve_untouched(&real.join("loop/x")), real.join("loop/x"));
        assert_eq!(resolve_untouched(Path::new("/")), Path::new("/"));
    }
}

//! Processes: how they ended, who descends from whom, and which of them serves a recorder.

mod exit;
mod readers;
mod status;
pub use exit::{Exit, Exited, ended_child, parse_signal, reap, signal_name};
pub(crate) use readers::Readers;
pub(crate) use status::Status;
pub use status::{fact, is_killed};

use crate::error::passes;
use crate::procfs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::CapabilitySet;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a descriptor for a process is waited for.
const LACK: Duration = Duration::from_secs(2);
/// Readers of the processes of this mount: its daemon, and what that has started.
pub(crate) static OURS: Readers = Readers::new();

fn pid_of(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// A process that is watched through a descriptor, so that its number cannot come to mean another.
#[derive(Debug)]
pub struct Watched {
    /// Its process id.
    pub pid: u32,
    fd: OwnedFd,
}

impl Watched {
    /// Starts watching process `pid`; `None` if there is none, or it cannot be watched.
    pub fn open(pid: u32) -> Option<Self> {
        Self::find(pid).ok().flatten()
    }

    /// The same, for those to whom a process that is not there means another thing than one that
    /// cannot be watched for want of descriptors or memory. What is lacking for a moment only is
    /// waited for.
    ///
    /// # Errors
    /// Those of `pidfd_open(2)`, but `ESRCH`.
    pub fn find(pid: u32) -> rustix::io::Result<Option<Self>> {
        let Some(number) = pid_of(pid) else { return Ok(None) };
        let end = Instant::now() + LACK;
        loop {
            match pidfd_open(number, PidfdFlags::empty()) {
                Ok(fd) => return Ok(Some(Self { pid, fd })),
                // EINVAL: that of a thread, before Linux 6.9.
                Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
                Err(error) if Instant::now() >= end || !passes(&error.into()) => return Err(error),
                Err(_) => std::thread::sleep(LACK / 400),
            }
        }
    }

    /// Another watch of the same process.
    pub fn try_clone(&self) -> Option<Self> {
        let fd = self.fd.try_clone().ok()?;
        Some(Self { pid: self.pid, fd })
    }

    /// Whether it has ended.
    pub fn is_dead(&self) -> bool {
        self.wait_end(Duration::ZERO)
    }

    /// Waits for its end for at most `limit`; says whether it has ended.
    pub fn wait_end(&self, limit: Duration) -> bool {
        readable(self.fd.as_fd(), limit)
    }

    /// Sends it a signal; one that is dead already is not an error.
    ///
    /// # Errors
    /// Those of `pidfd_send_signal(2)`; `EINVAL` for a number that is no signal.
    pub fn signal(&self, signal: i32) -> rustix::io::Result<()> {
        let signal = Signal::from_named_raw(signal).ok_or(Errno::INVAL)?;
        match pidfd_send_signal(&self.fd, signal) {
            Err(Errno::SRCH) => Ok(()),
            other => other,
        }
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether `fd` becomes readable within `limit`.
pub fn readable(fd: BorrowedFd<'_>, limit: Duration) -> bool {
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    // An interrupted wait counts as "not yet": callers look again.
    poll(&mut fds, Some(&limit)).is_ok_and(|n| n > 0)
}

/// The living and dead children of process `pid`, of all its threads.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        found.extend(listed(&task.path().join("children")));
    }
    found
}

/// The children that one thread of process `pid` has started.
pub fn children_of_thread(pid: u32, thread: u32) -> Vec<u32> {
    listed(Path::new(&format!("/proc/{pid}/task/{thread}/children")))
}

fn listed(file: &Path) -> Vec<u32> {
    let text = procfs::read_text(file).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The words that process `pid` was started with; none if it is gone.
pub fn command_line(pid: u32) -> Vec<Vec<u8>> {
    let text = procfs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = text.strip_suffix(b"\0").unwrap_or(&text).split(|byte| *byte == 0);
    words.map(<[u8]>::to_vec).collect()
}

/// How many descendants are looked at.
pub const MOST: usize = 1 << 16;

/// All that descends from `roots`, but nothing at or below `except`. At most [`MOST`] processes.
pub fn descendants(roots: &[u32], except: &[u32]) -> Vec<u32> {
    let mut known: BTreeSet<u32> = except.iter().copied().collect();
    let mut found = Vec::new();
    let mut open: Vec<u32> = roots.to_vec();
    while let Some(parent) = open.pop() {
        for child in children(parent) {
            if found.len() < MOST && known.insert(child) {
                found.push(child);
                open.push(child);
            }
        }
    }
    found
}

/// Resident memory of process `pid` in bytes.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let statm = procfs::read_text(format!("/proc/{pid}/statm")).ok()?;
    let pages = statm.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()?;
    pages.checked_mul(u64::try_from(rustix::param::page_size()).ok()?)
}

/// When process `pid` was started, in clock ticks since the system's start: with its number, that
/// names a process for ever. `None` if there is no such process.
///
/// # Errors
/// If that cannot be seen now.
pub fn started(pid: u32) -> io::Result<Option<u64>> {
    Ok(stat(pid)?.and_then(|stat| stat.split_ascii_whitespace().nth(19)?.parse().ok()))
}

/// Whether process `pid` is stopped (SIGSTOP and the like): none of its threads runs, and each
/// stands where the signal has met it.
pub fn is_stopped(pid: u32) -> bool {
    stat(pid).is_ok_and(|stat| stat.is_some_and(|stat| stat.trim_start().starts_with('T')))
}

/// Whether no thread of process `pid` ever runs again, though the process may stay: a signal has
/// killed it, and its core is being written, or somebody who traces it does not let go of it. One
/// that exits by itself is waited for.
pub fn is_over(pid: u32) -> bool {
    // Most are told by one look.
    let first = stat(pid).ok().flatten().and_then(|stat| Thread::read(&stat));
    if !first.is_some_and(|thread| thread.is_over()) {
        return false;
    }
    let threads = threads(pid);
    threads.iter().all(Thread::is_over)
        && threads.iter().any(|thread| thread.flags & (Thread::KILLED | Thread::DUMPING_CORE) != 0)
}

/// The same of a process that was sent SIGKILL a while ago, and may have been exiting by itself
/// then. Who traces a thread holds it at its exit alone after that: from each other stop that
/// signal frees it.
pub fn is_kept(pid: u32) -> bool {
    let threads = threads(pid);
    !threads.is_empty() && threads.iter().all(|thread| thread.is_over() || thread.is_traced)
}

/// The same of a process that was sent SIGKILL a while ago, and waits in the middle of execve(2)
/// for whoever serves what it closes there (see [`readers`]): it has no other thread left, nor the
/// memory of its program, and never comes to run the next one.
pub fn is_over_in_exec(pid: u32) -> bool {
    waits_in_exec(pid) && is_killed(pid)
}

/// Whether a process that this user may look at waits in the middle of execve(2), with no other
/// thread left.
pub fn waits_in_exec(pid: u32) -> bool {
    let is_alone =
        || fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() == 1);
    stat(pid).is_err() && OURS.waits_for(pid) && is_alone()
}

/// How a process ends that is over, as far as the kernel tells it before.
pub fn end_of(pid: u32) -> Option<Exit> {
    let status: i32 = stat(pid).ok()??.split_ascii_whitespace().nth(49)?.parse().ok()?;
    match (status & 0x7f, status >> 8 & 0xff) {
        // Or it is not told to this user.
        (0, 0) => None,
        (0, code) => Some(Exit::Code(code)),
        (signal, _) => Some(Exit::Signal(signal)),
    }
    .filter(|_| is_over(pid))
}

/// A thread, as the kernel describes it.
struct Thread {
    is_traced: bool,
    is_uninterruptible: bool,
    flags: u32,
}

impl Thread {
    // Flags of the kernel's (PF_...): a thread with one of them comes back neither to its program
    // nor to a system call.
    const EXITING: u32 = 0x4;
    const AFTER_CORE_DUMP: u32 = 0x8;
    const DUMPING_CORE: u32 = 0x200;
    const KILLED: u32 = 0x400;

    fn read(stat: &str) -> Option<Self> {
        let mut words = stat.split_ascii_whitespace();
        let state = words.next()?;
        let flags = words.nth(5)?.parse().ok()?;
        Some(Self { is_traced: state == "t", is_uninterruptible: state == "D", flags })
    }

    fn is_over(&self) -> bool {
        let over = Self::EXITING | Self::AFTER_CORE_DUMP | Self::DUMPING_CORE | Self::KILLED;
        self.flags & over != 0
    }
}

/// The threads of process `pid`. Those that go meanwhile do not count. None if they cannot be seen
/// now.
fn threads(pid: u32) -> Vec<Thread> {
    let read = move || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks.filter_map(|task| Thread::read(&stat_in(&task.path().join("stat"))?)).collect()
    };
    OURS.at(pid, read).unwrap_or_default()
}

/// Whether a thread of process `pid` waits in the kernel for what no signal ends.
pub fn is_uninterruptible(pid: u32) -> bool {
    threads(pid).iter().any(|thread| thread.is_uninterruptible)
}

/// Whether the freezer of cgroup v1 holds process `pid`, as far as that is told; that of cgroup v2
/// lets those go that are killed.
pub fn is_frozen(pid: u32) -> bool {
    let groups = procfs::read_text(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let group = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|one| one == "freezer").then_some(path)
    });
    let state = |group| procfs::read_text(format!("/sys/fs/cgroup/freezer{group}/freezer.state"));
    group.is_some_and(|group| state(group).is_ok_and(|state| state.trim() != "THAWED"))
}

/// What the kernel says of process `pid`, from its state on; `None` if there is no such process. An
/// error if it cannot be seen now.
fn stat(pid: u32) -> io::Result<Option<String>> {
    OURS.at(pid, move || stat_in(Path::new(&format!("/proc/{pid}/stat"))))
}

fn stat_in(file: &Path) -> Option<String> {
    let stat = procfs::read(file).ok()?;
    // The name, in brackets, may have anything in it.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    String::from_utf8(stat.get(end + 1..)?.to_vec()).ok()
}

/// Whether this process may look at any other, also at one that it has not started.
pub fn may_look_anywhere() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

/// Reads what `/proc` tells of a process's memory: files of it, such as `maps`, in this order. The
/// kernel reads them under locks of that process, which may be held for long: by an exec (see
/// [`Readers`]), or by a thread in a page fault on a file whose server does not answer, and another
/// that waits for that. So this has a limit, and gives `TimedOut` then.
///
/// # Errors
/// Those of reading them.
pub fn of_memory<const N: usize>(pid: u32, names: [&'static str; N]) -> io::Result<[Vec<u8>; N]> {
    // Whose memory cannot be looked at may tell all else.
    static MEMORY: Readers = Readers::new();
    let read = move || {
        let mut found = [const { Vec::new() }; N];
        for (name, into) in names.iter().zip(&mut found) {
            *into = procfs::read(format!("/proc/{pid}/{name}"))?;
        }
        Ok(found)
    };
    MEMORY.at(pid, read)?
}

/// Whether process `pid` maps the memory file `file`: proof that it is a daemon of this mount and
/// not a stranger who got its number.
///
/// # Errors
/// If that cannot be seen now.
pub fn maps_file(pid: u32, file: BorrowedFd<'_>) -> io::Result<bool> {
    let Ok(stat) = rustix::fs::fstat(file) else {
        return Ok(false);
    };
    let device =
        format!("{:02x}:{:02x}", rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let inode = stat.st_ino.to_string();
    let maps = match of_memory(pid, ["maps"]) {
        Ok([maps]) => maps,
        Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
        Err(_) => return Ok(false),
    };
    Ok(maps.split(|byte| *byte == b'\n').any(|line| {
        let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).skip(3);
        words.next() == Some(device.as_bytes()) && words.next() == Some(inode.as_bytes())
    }))
}

/// Waits for the end of process `pid` if it is about to end: one whose first thread is gone has no
/// memory any more, while another of its threads may still be in the middle of a system call.
pub fn await_dying(pid: u32, limit: Duration) {
    let Some(watched) = Watched::open(pid).filter(|one| !one.is_dead() && !is_over(pid)) else {
        return;
    };
    // Its size, which the kernel tells without a lock of its memory.
    let size = |stat: String| stat.split_ascii_whitespace().nth(20)?.parse::<u64>().ok();
    if stat(pid).ok().flatten().and_then(size).unwrap_or(0) == 0 {
        watched.wait_end(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn descendants_are_found_and_exceptions_left_out() {
        let me = std::process::id();
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let watched = Watched::open(child.id()).expect("pidfd");
        assert!(descendants(&[me], &[]).contains(&child.id()));
        assert!(!descendants(&[me], &[child.id()]).contains(&child.id()));
        assert!(!watched.is_dead());
        assert_eq!(ended_child(child.id()), None);
        assert!(!is_stopped(child.id()));
        watched.signal(19).expect("stop");
        let end = Instant::now() + Duration::from_secs(5);
        while !is_stopped(child.id()) {
            assert!(Instant::now() < end, "it is stopped");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_over(child.id()), "it may be woken");
        watched.signal(9).expect("kill");
        assert!(watched.wait_end(Duration::from_secs(5)));
        assert_eq!(ended_child(child.id()), Some(Exit::Signal(9)));
        assert_eq!(ended_child(child.id()), Some(Exit::Signal(9)), "its status is still there");
        assert!(is_over(child.id()) && is_kept(child.id()) && !is_over(me) && !is_kept(me));
        assert_eq!((end_of(child.id()), end_of(me)), (Some(Exit::Signal(9)), None));
        child.wait().expect("wait");
        assert_eq!(ended_child(child.id()), None);
        assert!(watched.signal(9).is_ok(), "signalling the dead is no error");
    }

    #[test]
    fn a_mapped_file_is_recognised() {
        use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
        let file = memfd_create("belay-test", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&file, 4096).expect("size");
        let me = std::process::id();
        assert!(!maps_file(me, file.as_fd()).expect("maps"));
        let mapping = belay_sys::Mapping::new(file.as_fd(), 4096).expect("map");
        assert!(maps_file(me, file.as_fd()).expect("maps"));
        drop(mapping);
        let of = |pid| started(pid).expect("it is seen");
        assert!(of(me) >= of(1) && of(me).is_some());
        assert_eq!(of(0), None);
        assert!(resident_bytes(me).expect("statm") > 4096);
    }
}

//! fusermount, which mounts for ordinary users, as the daemon starts it (`exec`): it gets belay's
//! mailbox to answer to.
//!
//! In the first life fusermount is really started. In the others it is not: the mount is there, and
//! the daemon is handed the device that is held. A daemon that unmounts by fusermount has nothing
//! unmounted: it is told that it has, and the supervisor decides what that means, as for umount(2).

use super::words::{is_fusermount, parse, parse_unmount};
use crate::mailbox::watch;
use crate::patience::patiently;
use crate::real::{self, Strings};
use crate::shim::Shim;
use belay_recorder::control::Flags;
use libc::{c_char, c_int, pid_t};
use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The variable in which a FUSE library names the socket that it waits at.
const COMM: &[u8] = b"_FUSE_COMMFD=";
/// How long another start is waited for.
const SPAWN: Duration = Duration::from_secs(5);
/// More arguments than any FUSE library gives to fusermount.
const MOST_WORDS: usize = 64;

/// A request to fusermount for a mount.
pub(super) struct Mounting<'a> {
    /// The socket that its caller waits at the other end of.
    comm: c_int,
    mountpoint: &'a CStr,
    options: &'a [u8],
}

/// The strings of a NULL-terminated array such as `argv`, at most `most`.
///
/// # Safety
/// `list` is null or such an array of C strings, readable for `'a`.
unsafe fn strings<'a>(list: Strings, most: usize) -> Vec<&'a CStr> {
    let mut found = Vec::new();
    while !list.is_null() && found.len() < most {
        let place = list.wrapping_add(found.len());
        // SAFETY: within the array: every entry before this one was not its terminator.
        let entry = unsafe { *place };
        if entry.is_null() {
            break;
        }
        // SAFETY: an entry of the array, a C string by the caller's contract.
        found.push(unsafe { CStr::from_ptr(entry) });
    }
    found
}

/// What would be mounted if `path` were started so; `None` for all other programs and uses.
///
/// # Safety
/// `path` is a C string or null, `words` and `variables` are as for execve(2).
pub(super) unsafe fn mounting<'a>(
    path: *const c_char,
    words: Strings,
    variables: Strings,
) -> Option<Mounting<'a>> {
    // SAFETY: the caller's contract.
    if !unsafe { is_fusermount(path) } {
        return None;
    }
    // SAFETY: as for execve(2), by the caller's contract.
    let variables = unsafe { strings(variables, usize::MAX) };
    let comm = variables.iter().find_map(|text| text.to_bytes().strip_prefix(COMM))?;
    let comm: c_int = std::str::from_utf8(comm).ok()?.parse().ok().filter(|fd| *fd >= 0)?;
    // SAFETY: any number may be asked for; one that is not open gives an error.
    let comm_fd = unsafe { BorrowedFd::borrow_raw(comm) };
    rustix::net::sockopt::socket_type(comm_fd).ok()?;
    // SAFETY: as for execve(2), by the caller's contract.
    let words = unsafe { strings(words, MOST_WORDS) };
    let (mountpoint, options) = parse(&words)?;
    Some(Mounting { comm, mountpoint, options })
}

/// What `path` would unmount if it were started so; `None` for all other programs and uses.
///
/// # Safety
/// `path` is a C string or null, `words` is as for execve(2).
pub(super) unsafe fn unmounting<'a>(path: *const c_char, words: Strings) -> Option<&'a CStr> {
    // SAFETY: the caller's contract.
    if !unsafe { is_fusermount(path) } {
        return None;
    }
    // SAFETY: as for execve(2), by the caller's contract.
    let words = unsafe { strings(words, MOST_WORDS) };
    parse_unmount(&words)
}

impl Shim {
    /// Takes down what is about to be mounted, in the form that mount(2) would be given.
    fn note_mounting(&self, mounting: &Mounting<'_>) {
        // Nothing is mounted there yet, so it can be looked at.
        let mode = rustix::fs::stat(mounting.mountpoint).map_or(0o40000, |stat| stat.st_mode);
        let kind = mode & libc::S_IFMT;
        let mut data = mounting.options.to_vec();
        data.extend_from_slice(format!(",rootmode={kind:o}").as_bytes());
        self.control().set_mount(mounting.mountpoint.to_bytes(), &data);
    }

    /// Whether fusermount is to mount something besides the held mount: that is the daemon's own.
    fn mounts_another(&self, mounting: &Mounting<'_>) -> bool {
        let settled = self.mailbox.is_settled() || {
            let mounted = self.mailbox.look().is_some();
            if mounted {
                self.control().raise(Flags::MOUNTED); // who relays it is about to say so
            }
            mounted
        };
        settled && self.is_another(mounting.mountpoint.to_bytes(), None)
    }

    /// In a child that is about to become fusermount: waits while another is that. Whether it is
    /// for the held mount.
    fn becomes_first(&self, mounting: &Mounting<'_>) -> bool {
        let control = self.control();
        loop {
            if self.mounts_another(mounting) {
                return false;
            }
            let other = control.helper();
            let living = i32::try_from(other).ok().filter(|pid| *pid > 0).and_then(watch);
            match living.filter(|_| !self.mailbox.has_mail()) {
                Some(process) => self.mailbox.wait_for(&process),
                None if control.change_helper(other, std::process::id()) => return true,
                None => {}
            }
        }
    }

    /// In a child that is about to become fusermount: returns if it is to do so.
    pub(super) fn becoming_helper(&self, mounting: &Mounting<'_>) {
        if self.mounts_another(mounting) {
            return;
        }
        static RELAYED: AtomicBool = AtomicBool::new(false);
        if RELAYED.swap(true, Relaxed) {
            return; // the library tries a second path for the same program
        }
        if self.mailbox.is_settled() {
            let given = self.hand_out(mounting.comm);
            leave(!given);
        }
        if !self.becomes_first(mounting) {
            return;
        }
        self.note_mounting(mounting);
        let own = std::process::id();
        let Some(helper) = i32::try_from(own).ok().and_then(watch) else { return };
        // What fusermount sends is passed on by a process of its own, which nobody waits for but
        // whoever collects belay's orphans.
        // SAFETY: this child has one thread, so all that the new process does is defined.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: as above.
                if unsafe { libc::fork() } == 0 {
                    let relayed = self.relay(Some(&helper), mounting.comm);
                    if !relayed {
                        self.control().change_helper(own, 0);
                    }
                    leave(!relayed);
                }
                leave(false);
            }
            -1 => return, // then fusermount answers directly, and the device is held a little later
            // SAFETY: waits for the child just made; no status is wanted.
            child => unsafe {
                libc::waitpid(child, std::ptr::null_mut(), 0);
            },
        }
        self.mailbox.replace(mounting.comm);
    }

    /// posix_spawn(3) of fusermount; `start` starts it with the environment it is given.
    ///
    /// # Safety
    /// `pid` is null, or the place of an id; `variables` is as for execve(2).
    pub(super) unsafe fn spawn_helper(
        &self,
        mounting: &Mounting<'_>,
        pid: *mut pid_t,
        variables: Strings,
        start: impl FnOnce(*mut pid_t, Strings) -> c_int,
    ) -> c_int {
        static SPAWNING: Mutex<()> = Mutex::new(());
        let _one = patiently(&SPAWNING, SPAWN);
        if self.mounts_another(mounting) {
            return start(pid, variables);
        }
        if self.mailbox.is_settled() {
            // SAFETY: the caller's contract.
            return unsafe { stand_in(pid, || self.hand_out(mounting.comm)) };
        }
        self.note_mounting(mounting);
        let post = self.mailbox.post_for_child();
        let Ok(ours) = CString::new(format!("_FUSE_COMMFD={post}")) else { return libc::EINVAL };
        // SAFETY: as for execve(2), by the caller's contract.
        let mut list: Vec<*const c_char> = unsafe { strings(variables, usize::MAX) }
            .into_iter()
            .filter(|text| !text.to_bytes().starts_with(COMM))
            .map(CStr::as_ptr)
            .collect();
        list.extend([ours.as_ptr(), std::ptr::null()]);
        let mut child = 0;
        let result = start(&raw mut child, list.as_ptr());
        // SAFETY: a number that was made above for this child alone.
        unsafe { libc::close(post) };
        if result == 0 {
            if !pid.is_null() {
                // SAFETY: not null, so the place of an id, by the caller's contract.
                unsafe { *pid = child };
            }
            // The library would wait for the same message next. Its process may have been quick,
            // and reaped by who reaps all.
            self.relay(watch(child).as_ref(), mounting.comm);
        }
        result
    }
}

/// A child that does `work` instead of the program that was to be started; its id goes to `pid`, as
/// posix_spawn(3) has it.
///
/// # Safety
/// `pid` is null, or the place of an id.
pub(super) unsafe fn stand_in(pid: *mut pid_t, work: impl FnOnce() -> bool) -> c_int {
    // SAFETY: the child does at most send a message, and ends: nothing that needs other threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let done = work();
        leave(!done);
    }
    if child < 0 {
        return real::errno();
    }
    if !pid.is_null() {
        // SAFETY: not null, so the place of an id, by the caller's contract.
        unsafe { *pid = child };
    }
    0
}

pub(super) fn leave(failed: bool) -> ! {
    // SAFETY: _exit ends this process at once; it is a copy whose exit handlers are the daemon's.
    unsafe { libc::_exit(c_int::from(failed)) }
}

//! fsopen, fsconfig, fsmount, move_mount and mount_setattr: mounting in steps. As for mount(2),
//! generation 0 mounts, and the others find it mounted: what they make on their way there is
//! nothing, and leads nowhere.

use super::second::{device_in, give_own_device};
use crate::argument::Text;
use crate::descriptors::is_device;
use crate::patience::patiently;
use crate::real::{errno, set_errno};
use crate::shim::{Shim, shim};
use belay_recorder::control::Flags;
use libc::{c_char, c_int, c_uint, c_void, size_t};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, StatxFlags};
use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// As many are known at a time: a daemon mounts once, and some try first what the kernel can do.
const MOST: usize = 16;
/// Bytes of options that are kept; the recorder has no room for more.
const OPTIONS: usize = 511;

const SET_FLAG: c_uint = 0;
const SET_STRING: c_uint = 1;
const SET_FD: c_uint = 5;
const CREATE: c_uint = 6;
const CREATE_EXCL: c_uint = 8;

/// What a successor has in the place of what it is not to make is a memory file with this in it:
/// whatever number it comes to have in the daemon, and whoever it is passed to.
const NOTHING: &[u8] = b"belay: an earlier life has mounted this";

/// A FUSE file system on its way to a place, in the first life.
#[derive(Clone)]
struct Step {
    what: What,
    options: Vec<u8>,
    /// It is not the held mount.
    another: bool,
}

/// By what it is known.
#[derive(Clone, Copy, PartialEq)]
enum What {
    /// The number of a descriptor that fsopen gave. Nothing else that has it means anything to
    /// fsconfig, but what fspick gives.
    Context(c_int),
    /// The device of a mount, by whatever descriptor.
    Mounted(u32, u32),
}

static STEPS: Mutex<Vec<Step>> = Mutex::new(Vec::new());

/// Who has them does nothing but look or change them.
fn steps() -> Option<MutexGuard<'static, Vec<Step>>> {
    patiently(&STEPS, Duration::from_millis(20))
}

/// What is new: it has these options, or is none of these.
fn note(what: What, options: Option<(Vec<u8>, bool)>) {
    let Some(mut steps) = steps() else { return };
    steps.retain(|step| step.what != what);
    if let Some((options, another)) = options {
        if steps.len() == MOST {
            steps.remove(0);
        }
        steps.push(Step { what, options, another });
    }
}

fn options_of(what: What) -> Option<(Vec<u8>, bool)> {
    let steps = steps()?;
    let step = steps.iter().find(|step| step.what == what)?;
    Some((step.options.clone(), step.another))
}

/// The device of what is mounted, of which no daemon is asked: it does not serve yet.
fn mounted(fd: c_int) -> Option<What> {
    if fd < 0 {
        return None;
    }
    // SAFETY: a number of the caller's, that is open during the call; where it is not, the kernel
    // says so.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(fd, c"", flags, StatxFlags::empty()).ok()?;
    Some(What::Mounted(stat.stx_dev_major, stat.stx_dev_minor))
}

/// What a successor gets in the place of a file system that it is not to make.
fn nothing(close_on_exec: bool) -> c_int {
    let flags = if close_on_exec { libc::MFD_CLOEXEC } else { 0 };
    let make = |flags: c_uint| {
        // SAFETY: a C string and flags; the kernel gives a descriptor that is the daemon's to
        // close.
        unsafe { belay_sys::raw::syscall(libc::SYS_memfd_create, c"fuse".as_ptr(), flags) }
    };
    let mut fd = make(flags | libc::MFD_NOEXEC_SEAL);
    if fd < 0 && errno() == libc::EINVAL {
        fd = make(flags); // before Linux 6.3
    }
    if let Ok(number) = u32::try_from(fd) {
        // SAFETY: the descriptor that was just made, and bytes that are readable during the call.
        unsafe {
            belay_sys::raw::syscall(libc::SYS_write, number, NOTHING.as_ptr(), NOTHING.len());
        }
    }
    fd as c_int
}

/// Whether `fd` is [`nothing`], which only a successor has. Says nothing in errno.
fn is_nothing(fd: c_int) -> bool {
    if successor().is_none() {
        return false;
    }
    let before = errno();
    // SAFETY: a number; where it is no memory file, the kernel says so and asks nobody.
    let seals = unsafe { belay_sys::raw::syscall(libc::SYS_fcntl, fd, libc::F_GET_SEALS) };
    let mut found = [0_u8; NOTHING.len() + 1];
    let length = if seals < 0 {
        -1
    } else {
        let (room, start) = (found.len(), 0_i64);
        // SAFETY: room for as many bytes, during the call.
        unsafe { belay_sys::raw::syscall(libc::SYS_pread64, fd, found.as_mut_ptr(), room, start) }
    };
    set_errno(before);
    usize::try_from(length) == Ok(NOTHING.len()) && found.starts_with(NOTHING)
}

/// Whether that is the name of a kind of FUSE mounts: it may have a subtype.
fn is_fuse(kind: &[u8]) -> bool {
    matches!(kind.split(|byte| *byte == b'.').next(), Some(b"fuse" | b"fuseblk"))
}

/// The shim, in a successor.
fn successor() -> Option<&'static Shim> {
    shim().filter(|shim| shim.host.generation() > 0)
}

/// fsopen(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fsopen(kind: *const c_char, open_flags: c_uint) -> c_int {
    // SAFETY: fsopen(2) takes a string, or null, which its caller leaves as it is until it returns.
    let ours = shim().is_some() && is_fuse(unsafe { Text::new(kind) }.bytes());
    let another = shim().is_some_and(Shim::begins_another);
    let fd = if ours && successor().is_some() && !another {
        nothing(open_flags & 1 != 0)
    } else {
        // SAFETY: the caller's arguments, unchanged.
        unsafe { belay_sys::raw::syscall(libc::SYS_fsopen, kind, open_flags) as c_int }
    };
    if fd >= 0 && !is_nothing(fd) {
        note(What::Context(fd), ours.then(|| (Vec::new(), another)));
    }
    fd
}

/// fsconfig(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fsconfig(
    fd: c_int,
    command: c_uint,
    key: *const c_char,
    value: *const c_void,
    aux: c_int,
) -> c_int {
    if is_nothing(fd) {
        return 0;
    }
    // SAFETY: fsconfig(2) takes a string for the key, or null, with each of these commands, which
    // its caller leaves as it is until it returns.
    let name = unsafe { text(key, matches!(command, SET_FLAG | SET_STRING | SET_FD)) };
    // SAFETY: the same of the value with this one.
    let text = unsafe { text(value.cast(), command == SET_STRING) };
    if shim().is_some() {
        let device = match command {
            SET_FD if name.bytes() == b"fd" => Some(aux),
            SET_STRING if name.bytes() == b"fd" => device_in(&[b"fd=", text.bytes()].concat()),
            _ => None,
        };
        let another = || options_of(What::Context(fd)).is_some_and(|(_, another)| another);
        if let Some(device) = device.filter(|device| is_device(*device) && another())
            && !give_own_device(device)
        {
            return -1;
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe {
        belay_sys::raw::syscall(libc::SYS_fsconfig, fd, command, key, value, aux) as c_int
    };
    let Some(shim) = shim() else { return result };
    if result == 0 {
        let added = match command {
            SET_FLAG => Some(name.bytes().to_vec()),
            SET_STRING => Some([name.bytes(), b"=", text.bytes()].concat()),
            SET_FD => Some([name.bytes(), b"=", aux.to_string().as_bytes()].concat()),
            _ => None,
        };
        if let Some(added) = added {
            add(fd, &added);
        }
        if matches!(command, CREATE | CREATE_EXCL) {
            // From here on the kernel asks the daemon. Where it is to be is still to be said.
            if let Some((options, false)) = options_of(What::Context(fd)) {
                shim.claim_mount(device_in(&options));
                shim.note_mounted(b"", &options);
            }
        }
    }
    result
}

/// The string at `at`, if there `is` one.
///
/// # Safety
/// If there is, what [`Text::new`] asks holds for it.
unsafe fn text<'c>(at: *const c_char, is: bool) -> Text<'c> {
    // SAFETY: the caller's contract.
    if is { unsafe { Text::new(at) } } else { Text::NONE }
}

fn add(fd: c_int, option: &[u8]) {
    let Some(mut steps) = steps() else { return };
    let Some(step) = steps.iter_mut().find(|step| step.what == What::Context(fd)) else { return };
    let comma: &[u8] = if step.options.is_empty() { b"" } else { b"," };
    if step.options.len() + comma.len() + option.len() <= OPTIONS {
        step.options.extend_from_slice(comma);
        step.options.extend_from_slice(option);
    }
}

/// fsmount(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fsmount(
    fd: c_int,
    mount_flags: c_uint,
    attributes: c_uint,
) -> c_int {
    if is_nothing(fd) {
        return nothing(mount_flags & 1 != 0);
    }
    // SAFETY: the caller's arguments, unchanged.
    let mount =
        unsafe { belay_sys::raw::syscall(libc::SYS_fsmount, fd, mount_flags, attributes) as c_int };
    // Also of what is none of these: it may have the device of one that is gone.
    if let Some(what) = mounted(mount) {
        note(what, options_of(What::Context(fd)));
    }
    mount
}

/// move_mount(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn move_mount(
    from: c_int,
    from_path: *const c_char,
    to: c_int,
    to_path: *const c_char,
    move_flags: c_uint,
) -> c_int {
    // SAFETY: move_mount(2) takes two strings, or nulls, which its caller leaves as they are until
    // it returns.
    let (source, goal) = unsafe { Text::both(from_path, to_path) };
    let whole = source.bytes().is_empty();
    if whole
        && is_nothing(from)
        && let Some(shim) = shim()
    {
        if shim.is_another(&target(to, goal.bytes()), None) {
            // Which mount it begins with a daemon that mounts so does not say: the first is taken
            // for the held one.
            eprintln!("belay: the held mount must be made before others: this one is refused");
            set_errno(libc::EBUSY);
            return -1;
        }
        shim.claim_mount(None);
        return 0;
    }
    let known = if whole { mounted(from).and_then(options_of) } else { None };
    if let Some((shim, (_, true))) = shim().zip(known.as_ref()) {
        let target = target(to, goal.bytes());
        let act = |at: &CStr| {
            // SAFETY: the caller's arguments, but for the place, which is the same.
            unsafe { move_mount_to(from, from_path, libc::AT_FDCWD, at.as_ptr(), move_flags) }
        };
        return shim.mount_another(&target, None, act);
    }
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { move_mount_to(from, from_path, to, to_path, move_flags) };
    if result == 0
        && let Some((shim, (options, _))) = shim().zip(known)
    {
        shim.note_mounted(&target(to, goal.bytes()), &options);
    }
    result
}

/// # Safety
/// As that of move_mount(2).
unsafe fn move_mount_to(
    from: c_int,
    from_path: *const c_char,
    to: c_int,
    to_path: *const c_char,
    move_flags: c_uint,
) -> c_int {
    // SAFETY: by the caller's contract.
    unsafe {
        belay_sys::raw::syscall(libc::SYS_move_mount, from, from_path, to, to_path, move_flags)
            as c_int
    }
}

/// The place that is named by a directory and a path.
fn target(dir: c_int, path: &[u8]) -> Vec<u8> {
    if path.starts_with(b"/") || dir == libc::AT_FDCWD {
        return path.to_vec();
    }
    let Ok(found) = rustix::fs::readlink(format!("/proc/self/fd/{dir}"), Vec::new()) else {
        return path.to_vec();
    };
    let mut place = found.into_bytes();
    if !path.is_empty() {
        place.push(b'/');
        place.extend_from_slice(path);
    }
    place
}

/// mount_setattr(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mount_setattr(
    fd: c_int,
    path: *const c_char,
    how: c_uint,
    attributes: *mut c_void,
    size: size_t,
) -> c_int {
    // SAFETY: mount_setattr(2) takes a string, or null, which its caller leaves as it is until it
    // returns.
    let ours = unsafe { Text::new(path) }.bytes().is_empty() && is_nothing(fd);
    if ours {
        return 0;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe {
        belay_sys::raw::syscall(libc::SYS_mount_setattr, fd, path, how, attributes, size) as c_int
    }
}

impl Shim {
    /// The daemon has mounted at `place`, or is about to, with these options.
    pub(super) fn note_mounted(&self, place: &[u8], options: &[u8]) {
        // A successor's are those of the first.
        if self.host.generation() > 0 {
            return;
        }
        let control = self.control();
        control.set_mount(place, options);
        control.raise(Flags::MOUNTED);
        self.mailbox.settle();
        self.tell();
    }
}

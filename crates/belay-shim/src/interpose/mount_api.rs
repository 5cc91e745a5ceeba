//! fsopen, fsconfig, fsmount, move_mount and mount_setattr: mounting in steps. As for mount(2), generation 0 mounts, and the others
//! find it mounted: what they make on their way there is nothing, and leads nowhere.

use crate::start::{Shim, shim};
use belay_recorder::control::flags;
use libc::{c_char, c_int, c_uint, c_void, size_t};
use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// As many descriptors are known at a time: a daemon mounts once, and some try first what the kernel can do.
const MOST: usize = 16;
/// Bytes of options that are kept; the recorder has no room for more.
const OPTIONS: usize = 511;

const SET_FLAG: c_uint = 0;
const SET_STRING: c_uint = 1;
const SET_FD: c_uint = 5;
const CREATE: c_uint = 6;
const CREATE_EXCL: c_uint = 8;

/// A FUSE file system on its way to a place, by a descriptor of the daemon's.
struct Step {
    fd: c_int,
    options: Vec<u8>,
}

/// Of a number that is closed and given again, what is known goes when it is given by one of these calls; no other means anything
/// to them.
static STEPS: Mutex<Vec<Step>> = Mutex::new(Vec::new());

fn steps() -> MutexGuard<'static, Vec<Step>> {
    STEPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `fd` is new: it is one of these with `options`, or it is none.
fn note(fd: c_int, options: Option<Vec<u8>>) {
    let mut steps = steps();
    steps.retain(|step| step.fd != fd);
    if let Some(options) = options.filter(|_| fd >= 0) {
        if steps.len() == MOST {
            steps.remove(0);
        }
        steps.push(Step { fd, options });
    }
}

fn options_of(fd: c_int) -> Option<Vec<u8>> {
    steps().iter().find(|step| step.fd == fd).map(|step| step.options.clone())
}

fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: these calls take NUL-terminated strings, readable during the call, and the result is used only within it.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// What a successor gets in the place of a file system that it is not to make.
fn nothing(close_on_exec: bool) -> c_int {
    let flags = if close_on_exec { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: a C string and flags; the kernel gives a descriptor that is the daemon's to close.
    unsafe { belay_sys::raw::syscall(libc::SYS_memfd_create, c"fuse".as_ptr(), flags) as c_int }
}

/// The shim, in a successor.
fn successor() -> Option<&'static Shim> {
    shim().filter(|shim| shim.generation > 0)
}

/// fsopen(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fsopen(kind: *const c_char, open_flags: c_uint) -> c_int {
    let ours = shim().is_some() && bytes(kind).starts_with(b"fuse");
    let fd = if ours && successor().is_some() {
        nothing(open_flags & 1 != 0)
    } else {
        // SAFETY: the caller's arguments, unchanged.
        unsafe { belay_sys::raw::syscall(libc::SYS_fsopen, kind, open_flags) as c_int }
    };
    note(fd, ours.then(Vec::new));
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
    let Some(shim) = shim().filter(|_| options_of(fd).is_some()) else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe {
            belay_sys::raw::syscall(libc::SYS_fsconfig, fd, command, key, value, aux) as c_int
        };
    };
    let result = if shim.generation > 0 {
        0
    } else {
        // SAFETY: the caller's arguments, unchanged.
        unsafe {
            belay_sys::raw::syscall(libc::SYS_fsconfig, fd, command, key, value, aux) as c_int
        }
    };
    if result == 0 {
        let added = match command {
            SET_FLAG => Some(bytes(key).to_vec()),
            SET_STRING => Some([bytes(key), b"=", bytes(value.cast())].concat()),
            SET_FD => Some([bytes(key), b"=", aux.to_string().as_bytes()].concat()),
            _ => None,
        };
        if let Some(added) = added {
            add(fd, &added);
        }
        if matches!(command, CREATE | CREATE_EXCL) {
            // From here on the kernel asks the daemon. Where it is to be is still to be said.
            shim.note_mounted(b"", &options_of(fd).unwrap_or_default());
        }
    }
    result
}

fn add(fd: c_int, option: &[u8]) {
    let mut steps = steps();
    let Some(step) = steps.iter_mut().find(|step| step.fd == fd) else { return };
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
    let options = options_of(fd);
    let mount = if options.is_some() && successor().is_some() {
        nothing(mount_flags & 1 != 0)
    } else {
        // SAFETY: the caller's arguments, unchanged.
        unsafe { belay_sys::raw::syscall(libc::SYS_fsmount, fd, mount_flags, attributes) as c_int }
    };
    note(mount, options);
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
    let options = options_of(from).filter(|_| bytes(from_path).is_empty());
    let Some((shim, options)) = shim().zip(options) else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { place(from, from_path, to, to_path, move_flags) };
    };
    if shim.generation > 0 {
        return 0;
    }
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { place(from, from_path, to, to_path, move_flags) };
    if result == 0 {
        shim.note_mounted(&target(to, bytes(to_path)), &options);
    }
    result
}

/// # Safety
/// As that of move_mount(2).
unsafe fn place(
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
    let ours = successor().is_some() && bytes(path).is_empty() && options_of(fd).is_some();
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
        if self.generation > 0 {
            return;
        }
        let control = self.control();
        control.set_mount(place, options);
        control.raise(flags::MOUNTED);
        self.mailbox.settle();
        self.tell();
    }
}

//! mount and umount: generation 0 mounts, the others find it mounted; unmounting is the
//! supervisor's, so that a daemon's own exit is told from a crash.

use crate::real;
use crate::start::{Shim, shim};
use belay_recorder::control::{ending, flags};
use libc::{c_char, c_int, c_ulong, c_void};
use std::ffi::CStr;

fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: mount(2) and umount(2) take NUL-terminated strings, readable during the call, and
    // the result is used only within it.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// mount(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mount(
    source: *const c_char,
    target: *const c_char,
    kind: *const c_char,
    mount_flags: c_ulong,
    data: *const c_void,
) -> c_int {
    let ours = bytes(kind).starts_with(b"fuse") && !data.is_null();
    let Some(shim) = shim().filter(|_| ours) else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::mount(source, target, kind, mount_flags, data) };
    };
    if shim.generation > 0 {
        return 0;
    }
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::mount(source, target, kind, mount_flags, data) };
    if result == 0 {
        shim.note_mounted(bytes(target), bytes(data.cast()));
    }
    result
}

impl Shim {
    /// Whether `target` is the held mount; then the supervisor is told that the daemon gives it up. What that means is the
    /// supervisor's to say (`verdict.rs`): a daemon that cannot start, or has lost its server, unmounts as well.
    pub(super) fn gives_up(&self, target: &[u8]) -> bool {
        let control = self.control();
        if !control.has(flags::MOUNTED) || control.mountpoint() != target {
            return false;
        }
        // One that is only told so, to have it write what it holds, is not to unmount anything.
        if !self.epochs.is_retiring() {
            control.note_ending(self.generation, ending::UNMOUNTS);
            self.tell();
        }
        true
    }
}

fn given_up(target: *const c_char) -> bool {
    shim().is_some_and(|shim| shim.gives_up(bytes(target)))
}

/// umount(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn umount(target: *const c_char) -> c_int {
    if given_up(target) {
        return 0;
    }
    // SAFETY: the caller's argument, unchanged.
    unsafe { real::umount(target) }
}

/// umount2(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn umount2(target: *const c_char, flags: c_int) -> c_int {
    if given_up(target) {
        return 0;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::umount2(target, flags) }
}

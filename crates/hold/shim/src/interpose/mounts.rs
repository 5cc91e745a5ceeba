//! mount and umount: generation 0 mounts, the others find it mounted (and what they mount besides
//! is their own, `second`); unmounting is the supervisor's, so that a daemon's own exit is told
//! from a crash.

use super::second::{device_in, mount_at, unmounts_another};
use crate::argument::Text;
use crate::real;
use crate::shim::{Shim, shim};
use belay_recorder::control::{Flags, ending};
use libc::{c_char, c_int, c_ulong, c_void};
use std::borrow::Cow;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

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
    // SAFETY: mount(2) takes two strings here, or nulls, which its caller leaves as they are until
    // it returns.
    let (goal, name) = unsafe { Text::both(target, kind) };
    let ours = name.bytes().starts_with(b"fuse") && !data.is_null();
    let Some(shim) = shim().filter(|_| ours) else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::mount(source, target, kind, mount_flags, data) };
    };
    // SAFETY: what a FUSE file system is mounted with is a string as well, for which the same
    // holds.
    let options = unsafe { Text::new(data.cast()) }.bytes();
    let place = behind_descriptor(goal.bytes());
    let (place, device) = (&*place, device_in(options));
    let Some(_making) = shim.make_held(place, device) else {
        // SAFETY: the caller's arguments, but for the place, which is the same.
        let act = |place: &CStr| unsafe { mount_at(place, source, kind, mount_flags, data) };
        return shim.mount_another(place, device, act);
    };
    if shim.host.generation() > 0 {
        shim.claim_mount(device);
        return 0;
    }
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::mount(source, target, kind, mount_flags, data) };
    if result == 0 {
        shim.claim_mount(device);
        shim.note_mounted(place, options);
    }
    result
}

/// Where a daemon mounts that names its mountpoint by a descriptor, as who has opened it beforehand
/// does, so that nobody puts something else into its place.
fn behind_descriptor(target: &[u8]) -> Cow<'_, [u8]> {
    let is_descriptor = target.starts_with(b"/proc/self/fd/");
    let path = is_descriptor.then(|| std::fs::read_link(OsStr::from_bytes(target)).ok()).flatten();
    path.map_or(Cow::Borrowed(target), |path| Cow::Owned(path.into_os_string().into_vec()))
}

impl Shim {
    /// Whether `target` is the held mount; then the supervisor is told that the daemon gives it up.
    /// What that means is the supervisor's to say (`verdict.rs`): a daemon that cannot start, or
    /// has lost its server, unmounts as well.
    pub(super) fn gives_up(&self, target: &[u8]) -> bool {
        let control = self.control();
        if !control.has(Flags::MOUNTED) || control.mountpoint() != target {
            return false;
        }
        // One that is only told so, to have it write what it holds, is not to unmount anything.
        if !self.host.is_retiring() {
            control.note_ending(self.host.generation(), ending::UNMOUNTS);
            self.tell();
        }
        true
    }
}

/// Whether what is mounted at `target` needs no unmounting by this process any more.
fn is_unmounted(target: Text<'_>, flags: c_int) -> bool {
    shim().is_some_and(|shim| shim.gives_up(target.bytes()))
        || target.string().is_some_and(|target| unmounts_another(target, flags))
}

/// umount(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn umount(target: *const c_char) -> c_int {
    // SAFETY: umount(2) takes a string, or null, which its caller leaves as it is until it returns.
    if is_unmounted(unsafe { Text::new(target) }, 0) {
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
    // SAFETY: umount2(2) takes a string, or null, which its caller leaves as it is until it
    // returns.
    if is_unmounted(unsafe { Text::new(target) }, flags) {
        return 0;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::umount2(target, flags) }
}

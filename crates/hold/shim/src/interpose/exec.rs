//! exec and spawn, as the daemon calls them: what belay has to do with it is in `helper`.

use super::helper::{leave, mounting, stand_in, unmounting};
use crate::real::{self, Strings};
use crate::shim::shim;
use libc::{c_char, c_int, c_void, pid_t};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn environment() -> Strings {
    unsafe extern "C" {
        static environ: Strings;
    }
    // SAFETY: libc's own variable, read as exec itself reads it.
    unsafe { environ }
}

/// Sees to the exec of fusermount; returns if the exec is to go on.
///
/// # Safety
/// The arguments are as for execve(2).
unsafe fn before_exec(path: *const c_char, words: Strings, variables: Strings) {
    if let Some(shim) = shim() {
        // SAFETY: the caller's contract.
        if let Some(mounting) = unsafe { mounting(path, words, variables) } {
            shim.becoming_helper(&mounting);
        // SAFETY: the caller's contract.
        } else if let Some(mountpoint) = unsafe { unmounting(path, words) }
            && shim.gives_up(mountpoint.to_bytes())
        {
            leave(false);
        } else if shim.is_starting() && !path.is_null() {
            // SAFETY: a C string, by the contract of exec(3).
            let path = unsafe { CStr::from_ptr(path) };
            if may_run(path) {
                end_wrapper(path);
            }
        }
    }
}

/// Whether there is such a program, by its path or, as execvp(3) looks for it, in PATH.
fn may_run(name: &CStr) -> bool {
    let runs = |path: &Path| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    let name = Path::new(OsStr::from_bytes(name.to_bytes()));
    if name.parent().is_none_or(|dir| !dir.as_os_str().is_empty()) {
        return runs(name);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into()); // as glibc
    std::env::split_paths(&path).any(|dir| runs(&dir.join(name)))
}

/// The program that belay has started becomes another before it has mounted anything, as `nice` or
/// a shell does. That one would not be held, and nobody would know.
#[cold]
fn end_wrapper(path: &CStr) -> ! {
    let other = path.to_string_lossy();
    eprintln!(
        "belay: what was started is not the daemon: it becomes {other}, which would not be held. Give belay the daemon \
         itself, and start belay by what was to start the daemon: `nice belay run -- DAEMON ...`"
    );
    leave(true)
}

/// execv(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execv(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { execve(path, argv, environment()) }
}

/// execve(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { before_exec(path, argv, envp) };
    // SAFETY: the caller's arguments, unchanged. No look-up of a symbol: this may be the child of a
    // process with threads, where the loader's lock may be held for ever.
    unsafe { belay_sys::raw::syscall(libc::SYS_execve, path, argv, envp) as c_int }
}

/// execvp(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execvp(file: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { execvpe(file, argv, environment()) }
}

/// execvpe(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execvpe(
    file: *const c_char,
    argv: Strings,
    envp: Strings,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { before_exec(file, argv, envp) };
    // SAFETY: the caller's arguments, unchanged; looked up before (`real::prepare`).
    unsafe { real::execvpe(file, argv, envp) }
}

/// posix_spawn(3) or posix_spawnp(3), which `start` is with all but the place of the id and the
/// environment.
///
/// # Safety
/// As libc's.
unsafe fn spawned(
    path: *const c_char,
    pid: *mut pid_t,
    argv: Strings,
    envp: Strings,
    start: impl FnOnce(*mut pid_t, Strings) -> c_int,
) -> c_int {
    crate::effects::journal::beyond();
    crate::effects::journal::left();
    crate::positions::hand_all_back();
    let Some(shim) = shim() else { return start(pid, envp) };
    // SAFETY: the caller's arguments.
    if let Some(mounting) = unsafe { mounting(path, argv, envp) } {
        // SAFETY: the caller's arguments.
        return unsafe { shim.spawn_helper(&mounting, pid, envp, start) };
    }
    // SAFETY: the caller's arguments.
    if let Some(mountpoint) = unsafe { unmounting(path, argv) }
        && shim.gives_up(mountpoint.to_bytes())
    {
        // SAFETY: the caller's argument.
        return unsafe { stand_in(pid, || true) };
    }
    start(pid, envp)
}

/// posix_spawn(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    // SAFETY: the caller's arguments but for the place of the id and the environment.
    let start =
        |pid, envp| unsafe { real::posix_spawn(pid, path, actions, attributes, argv, envp) };
    // SAFETY: the caller's arguments.
    unsafe { spawned(path, pid, argv, envp, start) }
}

/// posix_spawnp(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    // SAFETY: the caller's arguments but for the place of the id and the environment.
    let start =
        |pid, envp| unsafe { real::posix_spawnp(pid, file, actions, attributes, argv, envp) };
    // SAFETY: the caller's arguments.
    unsafe { spawned(file, pid, argv, envp, start) }
}

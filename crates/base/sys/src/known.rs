//! Ways that the kernel knows, gone without asking whoever serves a file system.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::path::Arg;

/// How often the kernel is asked. What lies on file systems of this machine it always knows, as the
/// mount there keeps it.
const TRIES: u32 = 100;

/// Opens `path` from `folder` on as far as the kernel knows it: nobody is asked, or waited for.
/// Allocates nothing for a `CStr`.
///
/// # Errors
/// Those of openat2(2): `EAGAIN` if the kernel does not know it.
pub fn open_known<P: Arg + Copy>(
    folder: impl AsFd,
    path: P,
    flags: OFlags,
    resolve: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    let open = || openat2(&folder, path, flags, Mode::empty(), resolve | ResolveFlags::CACHED);
    let mut found = open();
    // What is known is refused too while somebody mounts or renames something anywhere.
    for _ in 0..TRIES {
        if found.as_ref().err() != Some(&Errno::AGAIN) {
            break;
        }
        found = open();
    }
    found
}

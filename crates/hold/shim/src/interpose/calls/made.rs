//! How the calls of this folder are made: as raw system calls, and as effects of the request that
//! they belong to.

use crate::argument::Text;
use crate::effects::journal::{About, Call, arguments, effect};
use belay_effects::Kind;
use libc::c_int;

/// Makes a system call and gives its result, -1 with errno set if it fails.
macro_rules! syscall {
    ($number:ident $(, $argument:expr)* $(,)?) => {
        // SAFETY: the daemon's own arguments to this system call, unchanged: numbers, and memory
        // for which the contract of the function that the daemon called vouches, or a type of
        // `argument` for it.
        unsafe { belay_sys::raw::syscall(libc::$number $(, $argument)*) as isize }
    };
}
pub(super) use syscall;

/// An effectful call about one name.
pub(super) fn on_name(
    kind: Kind,
    (dir, path): (c_int, Text<'_>),
    numbers: &[u64],
    make: impl Fn() -> isize,
) -> c_int {
    let call = || Call {
        kind,
        digest: arguments(kind, &[path.bytes()], numbers),
        about: About::Name(dir, path),
        length: 0,
    };
    effect(call, make, || 0) as c_int
}

/// An effectful call about two names.
pub(super) fn on_names(
    kind: Kind,
    first: (c_int, Text<'_>),
    second: (c_int, Text<'_>),
    numbers: &[u64],
    make: impl Fn() -> isize,
) -> c_int {
    let call = || Call {
        kind,
        digest: arguments(kind, &[first.1.bytes(), second.1.bytes()], numbers),
        about: About::Names(first, second),
        length: 0,
    };
    effect(call, make, || 0) as c_int
}

/// An effectful call about an open file. Which one is not compared: the number differs between
/// lives.
pub(super) fn on_file(kind: Kind, fd: c_int, numbers: &[u64], make: impl Fn() -> isize) -> isize {
    let call =
        || Call { kind, digest: arguments(kind, &[], numbers), about: About::File(fd), length: 0 };
    effect(call, make, || 0)
}

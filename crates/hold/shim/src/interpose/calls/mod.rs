//! The effectful system calls of the daemon, and the reads that it decides by: logged under the
//! policy `journal`, turned to the overlay under `transaction`, passed on otherwise.
//!
//! * [`names`]: calls that make, remove and move names.
//! * [`files`]: calls that write files and read them.
//! * [`sizes`]: calls that set how long a file is and what of it is allocated.
//! * [`copies`]: copies within the kernel.
//! * [`image`]: what becomes of the image under the policy `transaction`.
//! * [`aio`]: asynchronous I/O of POSIX.
//! * [`attributes`]: modes, owners, times, extended attributes.
//! * [`streams`]: connections and pipes.
//! * [`looks`]: calls that ask only.
//! * [`beyond`]: calls that a journal cannot hold.
//!
//! They are made as raw system calls where the C library adds nothing to them.

mod aio;
mod attributes;
mod beyond;
pub(super) mod copies;
pub(super) mod files;
pub(super) mod image;
mod looks;
mod names;
mod sizes;
mod streams;

use crate::argument::Text;
use crate::effects::journal::{About, Call, arguments, effect};
use belay_effects::Kind;
use libc::c_int;

/// Makes a system call and gives its result, -1 with errno set if it fails.
macro_rules! syscall {
    ($number:ident $(, $argument:expr)* $(,)?) => {
        // SAFETY: the daemon's own arguments to this system call, unchanged: numbers, and memory for which the contract of the
        // function that the daemon called vouches, or a type of `argument` for it.
        unsafe { belay_sys::raw::syscall(libc::$number $(, $argument)*) as isize }
    };
}
pub(super) use looks::look;
pub(super) use names::{open_changing, reopen};
use syscall;

/// An effectful call about one name.
fn on_name(
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
fn on_names(
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

/// An effectful call about an open file. Which one is not compared: the number differs between lives.
fn on_file(kind: Kind, fd: c_int, numbers: &[u64], make: impl Fn() -> isize) -> isize {
    let call =
        || Call { kind, digest: arguments(kind, &[], numbers), about: About::File(fd), length: 0 };
    effect(call, make, || 0)
}

//! The effectful system calls of the daemon, and the reads that it decides by: logged under the
//! policy `journal`, turned to the write set under `transaction`, passed on otherwise.
//!
//! * [`names`]: calls that make, remove and move names.
//! * [`files`]: calls that write files and read them.
//! * [`sizes`]: calls that set how long a file is and what of it is allocated.
//! * [`copies`]: copies within the kernel.
//! * [`image_io`]: what becomes of the image under the policy `transaction`.
//! * [`aio`]: asynchronous I/O of POSIX.
//! * [`attributes`]: modes, owners, times, extended attributes.
//! * [`streams`]: connections and pipes.
//! * [`looks`]: calls that ask only.
//! * [`beyond`]: calls that a journal cannot hold.
//!
//! [`made`] says how. They are made as raw system calls where the C library adds nothing to them.

mod aio;
mod attributes;
mod beyond;
pub(super) mod copies;
pub(super) mod files;
pub(super) mod image_io;
mod looks;
mod made;
mod names;
mod sizes;
mod streams;

pub(super) use looks::look;
pub(super) use names::{open_changing, reopen};

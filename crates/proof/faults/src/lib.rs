//! Crashes a running FUSE daemon at an exactly chosen point of one request.
//!
//! A [`Tracer`] watches the system calls of all of a daemon's threads (`ptrace(2)`), bare or held.
//! It knows a request by the message that a thread takes from `/dev/fuse`, and its end by the write
//! of the reply. Between them lie the calls that change something outside of the process: the
//! *effects*. A [`Fault`] names one [`Point`] before, between or behind them and what the daemon
//! dies of there; without one the tracer only tells what it saw, which is how one learns how many
//! points a request has.
//!
//! Where the daemon's calls end in a library that keeps what they would do (belay's shim, under a
//! policy that holds back writes), there are no system calls to stop at. Then the tracer stops at
//! the library's functions ([`Scope`]). And it can follow another process than the daemon: whoever
//! brings its writes to the disk.
//!
//! | module | question |
//! | --- | --- |
//! | [`plan`] | where is the crash to be, and what was seen |
//! | `calls` | which system calls have effects, and which touch the device |
//! | `breakpoints` | where do threads stop at functions of a library instead of system calls |
//! | `registers` | what does a stopped thread ask the kernel for |
//! | `memory` | what is in the buffers of a stopped thread |
//! | `watch` | which request is being served, and where is it |
//! | `tracer` | how are threads attached, resumed and let go |
//! | `tracing` | what has whoever started a thread that traces |
//! | `countdown` | how is a process killed at any system call, whatever it works on |
#![forbid(unsafe_code)]

mod breakpoints;
mod calls;
mod countdown;
mod memory;
pub mod plan;
mod registers;
mod tracer;
mod tracing;
mod watch;

pub use countdown::Countdown;
pub use plan::{Effect, Fault, FaultSignal, Plan, Point, Report, Request, Scope, Target};
pub use tracer::Tracer;

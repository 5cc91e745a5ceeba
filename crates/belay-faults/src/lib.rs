//! Crashes a running FUSE daemon at an exactly chosen point of one request.
//!
//! A [`Tracer`] watches the system calls of all of a daemon's threads (`ptrace(2)`), bare or held. It knows a request
//! by the message that a thread takes from `/dev/fuse`, and its end by the write of the reply. Between them lie the
//! calls that change something outside of the process: the *effects*. A [`Fault`] names one [`Point`] before, between
//! or behind them and what the daemon dies of there; without one the tracer only tells what it saw, which is how one
//! learns how many points a request has.
//!
//! | module | question |
//! | --- | --- |
//! | [`plan`] | where is the crash to be, and what was seen |
//! | `calls` | which system calls have effects, and which touch the device |
//! | `registers` | what does a stopped thread ask the kernel for |
//! | `memory` | what is in the buffers of a stopped thread |
//! | `watch` | which request is being served, and where is it |
//! | `tracer` | how are threads attached, resumed and let go |
#![forbid(unsafe_code)]

mod calls;
mod memory;
pub mod plan;
mod registers;
mod tracer;
mod watch;

pub use plan::{Effect, Fault, FaultSignal, Plan, Point, Report, Request, Target};
pub use tracer::Tracer;

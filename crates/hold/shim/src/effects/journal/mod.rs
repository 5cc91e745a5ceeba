//! The journal's part of the shim: every effectful call of a request goes through [`effect`], and
//! every read by which it may decide something through [`read`].
//!
//! | module | answers |
//! | --- | --- |
//! | [`call`] | what an effectful call is |
//! | [`tagged`] | when a request's log is begun and ended, and whether it can be trusted |
//! | [`replay`] | how an effectful call is logged, and what becomes of it when it comes again |
//! | [`reads`] | the same of reads |
//! | [`kept`] | what a daemon answers and keeps to itself |
//! | [`temporary`] | files that nobody finds in a later life |
//! | [`watched`] | what a daemon answers and keeps to itself, where there is no journal |

mod call;
mod kept;
mod reads;
mod replay;
mod tagged;
mod temporary;
mod watched;

pub(crate) use call::{About, Call, arguments};
pub(crate) use kept::{is_all_seen, left, mapping, stream, told, unseen};
pub(crate) use temporary::drawn;
pub(crate) use watched::{is_looked_for, note_image};

use super::policy::Policy;
use super::tag::{self, State, Tag};
use crate::argument::Output;
use crate::real;
use crate::shim::{Shim, policy, shim};
use belay_effects::Kind;
use belay_effects::area::Tally;
use belay_recorder::Store;
use belay_recorder::control::{Decision, Loss};
use belay_wire::{Opcode, describe::describe_parts};
use libc::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Makes an effectful call, or takes what it gave before. `again` is what to do instead of `make`
/// if it was made and opened something.
#[inline]
pub(crate) fn effect<'c>(
    call: impl FnOnce() -> Call<'c>,
    make: impl Fn() -> isize,
    again: impl Fn() -> isize,
) -> isize {
    match policy() {
        Policy::None => return make(),
        Policy::Watched => {
            watched::note(call);
            return make();
        }
        Policy::Transaction(_) => {
            // Not to the image, so not in the transaction.
            if let Some(shim) = shim() {
                if let Some(transaction) = shim.transaction() {
                    transaction.aside();
                }
                watched::note(call);
            }
            return make();
        }
        // What it changes besides its image it changes twice if the request is reissued.
        Policy::Epoch(_) => return make(),
        Policy::Journal => {}
    }
    let mut tag = tag::get();
    match (tag.state, shim()) {
        (State::Logged | State::Replaying, Some(shim)) => {
            let call = call();
            // Of what belay looks at besides the daemon sees nothing: its errno stays.
            let errno = real::errno();
            if !tag.acted && shim.is_watched(&tag) && kept::lasts(&call) {
                tag.acted = true;
                tag::set(tag);
            }
            let result = shim.effect(
                tag,
                &call,
                || {
                    real::set_errno(errno);
                    make()
                },
                again,
            );
            if result >= 0 {
                real::set_errno(errno);
            }
            result
        }
        (State::Diverged, Some(shim)) if shim.is_over(&tag) => {
            shim.untagged();
            make()
        }
        (State::Diverged, _) => fail(),
        (State::Idle, Some(shim)) => {
            shim.untagged();
            make()
        }
        (State::Plain, Some(shim)) if !tag.acted && shim.is_watched(&tag) => {
            let errno = real::errno();
            if kept::lasts(&call()) {
                left();
            }
            real::set_errno(errno);
            make()
        }
        _ => make(),
    }
}

/// Makes a read, or gives what it gave before. It fills as much of `out` as `length` says for
/// its result.
#[inline]
pub(crate) fn read(
    kind: Kind,
    arguments: impl FnOnce() -> u64,
    out: Output<'_>,
    length: impl Fn(isize) -> usize,
    make: impl Fn() -> isize,
    moved: Option<c_int>,
) -> isize {
    if !policy().is_journal() {
        return make();
    }
    let tag = tag::get();
    match (tag.state, shim()) {
        (State::Logged | State::Replaying, Some(shim)) => {
            let errno = real::errno();
            let result = shim.read_logged(tag, (kind, arguments()), out, length, make, moved);
            if result >= 0 {
                real::set_errno(errno);
            }
            result
        }
        (State::Diverged, Some(shim)) if shim.is_over(&tag) => make(),
        (State::Diverged, _) => fail(),
        _ => make(),
    }
}

/// The calling thread's request is about to do what a journal cannot hold (a file without a lasting
/// name, a process): it is reconciled.
pub(crate) fn beyond() {
    let tag = tag::get();
    if let (State::Logged | State::Replaying, Some(shim)) = (tag.state, shim()) {
        shim.area().log(tag.slot).mark_opaque(tag.unique);
    }
}

fn fail() -> isize {
    real::set_errno(libc::EIO);
    -1
}

/// The result and errno of a call that has just been made.
fn outcome(result: isize) -> (i64, i32) {
    (result as i64, if result < 0 { real::errno() } else { 0 })
}

fn give((result, errno): (i64, i32)) -> isize {
    if result < 0 {
        real::set_errno(errno);
    }
    result as isize
}

/// Guards the logs of requests that several threads work on.
static SHARED: Mutex<()> = Mutex::new(());

/// Held while the log of a shared request is changed.
fn turn(tag: &Tag) -> Option<MutexGuard<'static, ()>> {
    tag.shared.then(|| SHARED.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Shim {
    /// The request with its arguments, as it is on record.
    #[cold]
    fn describe(&self, tag: &Tag) -> Option<String> {
        let store = Store::new(Arc::clone(self.host.memory()), *self.host.layout());
        let request =
            store.slot_request(tag.slot).filter(|request| request.unique == tag.unique)?;
        let who = [request.uid, request.gid, request.pid];
        let (body, _) = store.slot_body(tag.slot);
        Some(describe_parts(request.opcode, [request.unique, request.node], who, &body))
    }

    /// A request that is done again does something else: it fails, and that is said.
    #[cold]
    fn diverged(&self, mut tag: Tag, what: &str) {
        tag.state = State::Diverged;
        tag::set(tag);
        self.area().log(tag.slot).mark_diverged(tag.unique);
        self.tally(Tally::Diverged);
        self.control().decide(&Decision {
            generation: self.host.generation(),
            opcode: tag.opcode,
            unique: tag.unique,
            node: 0,
            row: 0,
            errno: libc::EIO,
            text: format!("{} diverges when it is reissued: {what}", Opcode(tag.opcode).name()),
        });
        let name = Opcode(tag.opcode).name();
        let which = self.describe(&tag).unwrap_or_else(|| format!("{name} unique={}", tag.unique));
        let why = "failed with EIO, as it went another way when it was reissued after a crash";
        self.control().lose(Loss::Request, &format!("{which}: {why}: it {what}"));
        self.tell();
    }
}

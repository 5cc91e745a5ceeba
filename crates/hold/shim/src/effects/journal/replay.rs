//! Effectful calls of a request: made and logged, or taken from the log.

use super::super::log_of;
use super::super::probe::{before, observe};
use super::super::tag::{self, State, Tag};
use super::call::{About, Call};
use super::{fail, give, outcome, turn};
use crate::dying::in_call;
use crate::real;
use crate::shim::Shim;
use belay_effects::area::Tally;
use belay_effects::journal::Further;
use belay_effects::log::Head;
use belay_effects::{Advice, Cursor, Entry, Kind, Log, Settled, probe};
use belay_recorder::Store;
use belay_sys::Mapping;
use belay_wire::abi::{SetattrIn, SetattrValid, WriteIn};
use belay_wire::{Opcode, OpcodeSet};
use std::sync::Arc;
use zerocopy::FromBytes;

/// Requests that leave the same however often they are done.
const REPEATABLE: OpcodeSet = OpcodeSet::new(&[Opcode::WRITE, Opcode::SETATTR]);

impl Shim {
    pub(super) fn effect(
        &self,
        mut tag: Tag,
        call: &Call<'_>,
        make: impl Fn() -> isize,
        again: impl Fn() -> isize,
    ) -> isize {
        if self.is_over(&tag) {
            self.untagged(); // started for a request that is over
            return make();
        }
        let turn = self::turn(&tag);
        let log = log_of(self, Some(tag.slot));
        if tag.state == State::Replaying {
            let mut cursor = Cursor::load(&log);
            let mut advice = cursor.advise(&log, call.kind, call.digest);
            if advice == Advice::Diverged
                && REPEATABLE.has(Opcode(tag.opcode))
                && cursor.goes_on(&log, call.kind, &self.further(&tag, call))
            {
                advice = Advice::Make;
            }
            cursor.store(&log);
            match advice {
                Advice::Make => {
                    tag.state = State::Logged; // it has come to where it was
                    tag::set(tag);
                }
                Advice::Recorded(entry) => {
                    drop(turn);
                    return self.recorded(&entry, call, again);
                }
                Advice::Unsettled(entry) => {
                    drop(turn);
                    return self.unsettled(tag, &log, entry, call, make, again);
                }
                Advice::Over(entry) => {
                    drop(turn);
                    return self.over(tag, &log, entry, call, make);
                }
                Advice::Diverged => {
                    let expected = cursor.expected(&log).map_or("nothing", Kind::name);
                    let what = call.kind.name();
                    self.diverged(tag, &format!("makes {what} where it made {expected} before"));
                    return fail();
                }
            }
        }
        let head =
            Head { kind: call.kind as u32, digest: call.digest, before: before(call, tag.asked) };
        let entry = log.append(&head, &[]);
        drop(turn);
        if entry.is_none() {
            log.mark_opaque(tag.unique); // before it happens
        }
        in_call(|| {
            let result = make();
            let errno = real::errno();
            if let Some(mut entry) = entry {
                log.finish(&mut entry, outcome(result));
            }
            real::set_errno(errno);
            result
        })
    }

    /// A call that is not on record, and what its request is to change.
    #[cold]
    fn further(&self, tag: &Tag, call: &Call<'_>) -> Further {
        let start = if let About::Offset(_, offset) = call.about { offset } else { 0 };
        let asked = self.asked_from(tag).unwrap_or(0);
        Further { digest: call.digest, start, length: call.length, asked }
    }

    /// From where on a WRITE, or a SETATTR of the size, is to change the file.
    fn asked_from(&self, tag: &Tag) -> Option<u64> {
        let store = Store::new(Arc::clone(self.host.memory()), *self.host.layout());
        store.slot_request(tag.slot).filter(|request| request.unique == tag.unique)?;
        let (body, _) = store.slot_body(tag.slot);
        match Opcode(tag.opcode) {
            Opcode::WRITE => Some(WriteIn::read_from_prefix(&body).ok()?.0.offset),
            Opcode::SETATTR => {
                let (asked, _) = SetattrIn::read_from_prefix(&body).ok()?;
                (asked.valid.contains(SetattrValid::SIZE)).then_some(asked.size)
            }
            _ => None,
        }
    }

    /// A call that was made before.
    fn recorded(&self, entry: &Entry, call: &Call<'_>, again: impl Fn() -> isize) -> isize {
        self.tally(Tally::Replayed);
        let (result, errno) = entry.outcome.unwrap_or((-1, libc::EIO));
        if result < 0 {
            return give((result, errno));
        }
        self.as_if_made(call, result as isize, again)
    }

    /// What the daemon's own state needs of a call that is not made again.
    fn as_if_made(&self, call: &Call<'_>, result: isize, again: impl Fn() -> isize) -> isize {
        if call.kind.opens() || call.kind == Kind::Copy {
            return again();
        }
        if call.kind.moves()
            && let About::File(fd) = call.about
        {
            // SAFETY: lseek(2) on the daemon's own descriptor; of a pipe or socket it fails.
            unsafe { libc::lseek(fd, result as i64, libc::SEEK_CUR) };
        }
        result
    }

    /// A write that has other bytes now.
    #[cold]
    fn over(
        &self,
        tag: Tag,
        log: &Log<'_, Arc<Mapping>>,
        mut entry: Entry,
        call: &Call<'_>,
        make: impl Fn() -> isize,
    ) -> isize {
        let settled = probe::settle_over(call.kind, &entry, &observe(call), call.length);
        if settled == Settled::Unknown {
            let what = call.kind.name();
            self.diverged(
                tag,
                &format!("{what}: other bytes than before, with others behind them"),
            );
            return fail();
        }
        cut(settled, call);
        remake(log, &mut entry, make)
    }

    /// A call of which it is not known whether it was made.
    #[cold]
    fn unsettled(
        &self,
        tag: Tag,
        log: &Log<'_, Arc<Mapping>>,
        mut entry: Entry,
        call: &Call<'_>,
        make: impl Fn() -> isize,
        again: impl Fn() -> isize,
    ) -> isize {
        self.tally(Tally::Probed);
        let settled = probe::settle(call.kind, &entry, &observe(call), call.length);
        match settled {
            Settled::Done(result) => {
                log.finish(&mut entry, (result, 0));
                self.as_if_made(call, result as isize, again)
            }
            Settled::Again | Settled::Cut(_) => {
                cut(settled, call);
                remake(log, &mut entry, make)
            }
            Settled::Unknown => {
                let what = call.kind.name();
                self.diverged(tag, &format!("{what}: whether it was carried out cannot be told"));
                fail()
            }
        }
    }
}

/// Takes back what was appended, if it is to be appended anew.
fn cut(settled: Settled, call: &Call<'_>) {
    if let (Settled::Cut(size), About::File(fd)) = (settled, call.about) {
        // SAFETY: ftruncate(2) on the daemon's own descriptor.
        unsafe { belay_sys::raw::syscall(libc::SYS_ftruncate, fd, size) };
    }
}

/// Makes a call that is on record, whose outcome is this one from now on.
fn remake(log: &Log<'_, Arc<Mapping>>, entry: &mut Entry, make: impl Fn() -> isize) -> isize {
    in_call(|| {
        let result = make();
        let errno = real::errno();
        log.finish(entry, outcome(result));
        real::set_errno(errno);
        result
    })
}

//! The journal's part of the shim: every effectful call of a request goes through [`effect`], and
//! every read by which it may decide something through [`read`].

use super::probe::{before, facts};
use super::tag::{self, State, Tag};
use super::{CHANGES, Policy, log_of, policy};
use crate::dying::{checkpoint, in_call};
use crate::real;
use crate::start::{Shim, shim};
use belay_effects::area::Tally;
use belay_effects::log::{Head, digest};
use belay_effects::{Advice, Cursor, Entry, Kind, Log, Settled, probe};
use belay_recorder::Slot;
use belay_recorder::control::Decision;
use belay_sys::Mapping;
use belay_wire::Opcode;
use libc::{c_char, c_int};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a call is about, as far as a probe needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About {
    /// A name below a directory.
    Name(c_int, *const c_char),
    /// Two names.
    Names((c_int, *const c_char), (c_int, *const c_char)),
    /// Two names, the last link of the first of which is followed.
    Link((c_int, *const c_char), (c_int, *const c_char)),
    /// An open file.
    File(c_int),
    /// An extended attribute of a name; whether its last link is followed.
    NameAttribute(*const c_char, bool, *const c_char),
    /// An extended attribute of an open file.
    FileAttribute(c_int, *const c_char),
}

/// An effectful call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    /// Its arguments, but for numbers of descriptors, which differ between lives.
    pub(crate) digest: u64,
    pub(crate) about: About,
    /// How much it is to write.
    pub(crate) length: u64,
}

/// A number for the arguments of a call: strings, and numbers.
pub(crate) fn arguments(kind: Kind, strings: &[&[u8]], numbers: &[u64]) -> u64 {
    let mut state = kind as u64;
    for string in strings {
        state = digest(state, without_number(string));
    }
    let mut bytes = [0; 48];
    for (number, place) in numbers.iter().zip(bytes.chunks_exact_mut(8)) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    digest(state, &bytes)
}

/// What is behind the number, if a string is a path by a descriptor.
fn without_number(path: &[u8]) -> &[u8] {
    const BY_NUMBER: [&[u8]; 2] = [b"/proc/self/fd/", b"/dev/fd/"];
    let rest = BY_NUMBER.iter().find_map(|folder| path.strip_prefix(*folder));
    let digits = |rest: &[u8]| rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    rest.and_then(|rest| rest.get(digits(rest)..)).unwrap_or(path)
}

/// Makes an effectful call, or takes what it gave before. `again` is what to do instead of `make` if
/// it was made and opened something.
#[inline]
pub(crate) fn effect(
    call: impl FnOnce() -> Call,
    make: impl Fn() -> isize,
    again: impl Fn() -> isize,
) -> isize {
    match policy() {
        Policy::None => return make(),
        Policy::Transaction => {
            // Not to the image, so not in the transaction.
            if let Some(shim) = shim() {
                shim.image_aside();
            }
            return make();
        }
        Policy::Journal => {}
    }
    let tag = tag::get();
    match (tag.state, shim()) {
        (State::Logged | State::Replaying, Some(shim)) => {
            // Of what belay looks at besides the daemon sees nothing: its errno stays.
            let errno = real::errno();
            let result = shim.effect(
                tag,
                &call(),
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
        _ => make(),
    }
}

/// Makes a read, or gives what it gave before. It gives at most `len` bytes at `out`, as many as
/// `length` says for its result.
#[inline]
pub(crate) fn read(
    kind: Kind,
    arguments: impl FnOnce() -> u64,
    out: (*mut u8, usize),
    length: impl Fn(isize) -> usize,
    make: impl Fn() -> isize,
    moved: Option<c_int>,
) -> isize {
    if policy() != Policy::Journal {
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

/// The calling thread's request is about to do what a journal cannot hold (a file without a lasting name,
/// a process): it is reconciled.
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

fn coarse_time() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Guards the logs of requests that several threads work on.
static SHARED: Mutex<()> = Mutex::new(());

/// Held while the log of a shared request is changed.
fn turn(tag: &Tag) -> Option<MutexGuard<'static, ()>> {
    tag.shared.then(|| SHARED.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Shim {
    /// The calling thread is about to give a request to the daemon.
    pub(super) fn journal_begin(&self, unique: u64, slot: Option<Slot>, message: &[u8]) {
        let opcode = crate::device::opcode(message);
        let truncates = || {
            let flags = message.get(40..44).and_then(|bytes| bytes.try_into().ok());
            flags.map_or(0, i32::from_ne_bytes) & libc::O_TRUNC != 0
        };
        let changes = CHANGES.has(opcode) || (opcode == Opcode::OPEN && truncates());
        let Some(slot) = slot.filter(|_| changes) else {
            tag::set(Tag { unique, opcode: opcode.0, state: State::Plain, ..Tag::IDLE });
            return;
        };
        let log = self.area().log(slot);
        let state = if log.unique() == unique { State::Replaying } else { State::Logged };
        match state {
            State::Replaying => Cursor::START.store(&log),
            _ => log.begin(unique),
        }
        if self.handed_over.load(Relaxed) {
            log.mark_opaque(unique);
        }
        tag::set(Tag { unique, slot, opcode: opcode.0, state, ..Tag::IDLE });
    }

    /// The daemon has answered `unique`. `Some` is the error that its caller gets instead.
    pub(crate) fn journal_replied(&self, unique: u64) -> Option<i32> {
        let tag = tag::get();
        if tag.unique != unique {
            self.answered_elsewhere(unique);
            return None;
        }
        let error = match tag.state {
            State::Diverged => Some(libc::EIO),
            _ if tag.shared && self.area().log(tag.slot).is_diverged(unique) => Some(libc::EIO),
            State::Replaying => self.cut_short(tag),
            _ => None,
        };
        // What the thread does from now on it does not do for this request, whose slot may be another's
        // at any time.
        tag::clear();
        error
    }

    /// A request that is done again is answered: before it has done what it had done before?
    fn cut_short(&self, tag: Tag) -> Option<i32> {
        let log = self.area().log(tag.slot);
        let cursor = Cursor::load(&log);
        if cursor.is_done(&log) {
            return None;
        }
        let left = cursor.expected(&log).map_or("something else", Kind::name);
        self.diverged(tag, &format!("is answered before the {left} that it made before"));
        Some(libc::EIO)
    }

    /// The calling thread asks for more to do.
    #[inline]
    pub(super) fn journal_rest(&self) {
        let tag = tag::get();
        if matches!(tag.state, State::Logged | State::Replaying | State::Diverged) && !tag.shared {
            self.void_all(); // and has not answered: somebody else is to
        }
        tag::clear();
    }

    /// Requests are handed between threads in a way that cannot be seen: no journal is to be trusted.
    #[cold]
    fn void_all(&self) {
        self.tally(Tally::HandedOver);
        self.handed_over.store(true, Relaxed);
        self.void();
    }

    /// Whatever is in the daemon's hands may have done what its journal does not tell. Gives whether
    /// anything is that changes something.
    fn void(&self) -> bool {
        let session = self.session();
        let mut any = false;
        for (unique, slot, opcode) in session.in_hand() {
            if CHANGES.has(opcode) {
                self.area().log(slot).mark_opaque(unique);
                any = true;
            }
        }
        any
    }

    /// A thread answers a request that another one took: what it did for it was not logged.
    #[cold]
    fn answered_elsewhere(&self, unique: u64) {
        let session = self.session();
        let opcode = session.opcode_in_hand(unique);
        drop(session);
        if opcode.is_some_and(|opcode| CHANGES.has(opcode)) {
            self.void_all();
        }
    }

    /// A thread without a request makes an effectful call: it may do so for any request that is under
    /// way, whose journals are of no use then.
    #[cold]
    fn untagged(&self) {
        if !self.ready.load(Relaxed) {
            return; // the daemon starts
        }
        if self.void() {
            self.tally(Tally::Untagged);
        }
    }

    /// A thread that was started for a request has outlived it.
    fn is_over(&self, tag: &Tag) -> bool {
        tag.shared && (!self.is_in_hand(tag) || self.area().log(tag.slot).unique() != tag.unique)
    }

    fn is_in_hand(&self, tag: &Tag) -> bool {
        self.session().slot_in_hand(tag.unique) == Some(tag.slot)
    }

    fn effect(
        &self,
        mut tag: Tag,
        call: &Call,
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
            let advice = cursor.advise(&log, call.kind, call.digest);
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
                Advice::Diverged => {
                    let expected = cursor.expected(&log).map_or("nothing", Kind::name);
                    let what = call.kind.name();
                    self.diverged(tag, &format!("makes {what} where it made {expected} before"));
                    return fail();
                }
            }
        }
        let head = Head {
            kind: call.kind as u32,
            digest: call.digest,
            time: coarse_time(),
            before: before(call),
        };
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

    /// A call that was made before.
    fn recorded(&self, entry: &Entry, call: &Call, again: impl Fn() -> isize) -> isize {
        self.tally(Tally::Replayed);
        let (result, errno) = entry.outcome.unwrap_or((-1, libc::EIO));
        if result < 0 {
            return give((result, errno));
        }
        self.as_if_made(call, result as isize, again)
    }

    /// What the daemon's own state needs of a call that is not made again.
    fn as_if_made(&self, call: &Call, result: isize, again: impl Fn() -> isize) -> isize {
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

    /// A call of which it is not known whether it was made.
    #[cold]
    fn unsettled(
        &self,
        tag: Tag,
        log: &Log<'_, Arc<Mapping>>,
        mut entry: Entry,
        call: &Call,
        make: impl Fn() -> isize,
        again: impl Fn() -> isize,
    ) -> isize {
        self.tally(Tally::Probed);
        let settled = probe::settle(call.kind, &entry, &facts(call), call.length);
        if let (Settled::Cut(size), About::File(fd)) = (settled, call.about) {
            // SAFETY: ftruncate(2) on the daemon's own descriptor.
            unsafe { libc::syscall(libc::SYS_ftruncate, fd, size) };
        }
        match settled {
            Settled::Done(result) => {
                log.finish(&mut entry, (result, 0));
                self.as_if_made(call, result as isize, again)
            }
            Settled::Again | Settled::Cut(_) => in_call(|| {
                let result = make();
                let errno = real::errno();
                log.finish(&mut entry, outcome(result));
                real::set_errno(errno);
                result
            }),
            Settled::Unknown => {
                let what = call.kind.name();
                self.diverged(tag, &format!("{what}: whether it was carried out cannot be told"));
                fail()
            }
        }
    }

    fn read_logged(
        &self,
        mut tag: Tag,
        (kind, digest): (Kind, u64),
        (out, room): (*mut u8, usize),
        length: impl Fn(isize) -> usize,
        make: impl Fn() -> isize,
        moved: Option<c_int>,
    ) -> isize {
        if self.is_over(&tag) {
            return make();
        }
        let turn = self::turn(&tag);
        let log = log_of(self, Some(tag.slot));
        if tag.state == State::Replaying {
            let mut cursor = Cursor::load(&log);
            let advice = cursor.advise(&log, kind, digest);
            if advice == Advice::Make && cursor.is_done(&log) {
                cursor = Cursor::END; // what is left on record are reads that do not come again
            }
            cursor.store(&log);
            if cursor.is_at_end(&log) {
                tag.state = State::Logged;
                tag::set(tag);
            }
            match advice {
                Advice::Recorded(entry) => {
                    return self.give_read(&log, &entry, (out, room), moved);
                }
                // It has come to where it was: this is new, and the next life has to see it as it is now.
                Advice::Make if tag.state == State::Logged => {}
                // What was read then and is not on record, or is read now and was not then.
                Advice::Make | Advice::Unsettled(_) => {
                    drop(turn);
                    return make();
                }
                Advice::Diverged => {
                    self.diverged(tag, "its record is spoilt");
                    return fail();
                }
            }
        }
        drop(turn);
        let result = make();
        let errno = real::errno();
        let n = length(result).min(room);
        let bytes = if n == 0 {
            &[][..]
        } else {
            // SAFETY: the call has just filled `n` bytes there, at most the `room` that the daemon's
            // buffer has, and the daemon's thread waits for us.
            unsafe { std::slice::from_raw_parts(out, n) }
        };
        let head = Head { kind: kind as u32, digest, ..Head::default() };
        let turn = self::turn(&tag);
        let appended = log.append_done(&head, bytes, outcome(result));
        drop(turn);
        if appended.is_none() {
            log.mark_opaque(tag.unique);
        }
        checkpoint();
        real::set_errno(errno);
        result
    }

    fn give_read(
        &self,
        log: &Log<'_, Arc<Mapping>>,
        entry: &Entry,
        (out, room): (*mut u8, usize),
        moved: Option<c_int>,
    ) -> isize {
        self.tally(Tally::Replayed);
        let mut bytes = vec![0; entry.payload.min(room)];
        let n = log.payload(entry, &mut bytes);
        if n > 0 {
            // SAFETY: the daemon's buffer has `room` bytes, `n` is at most that, and `bytes` is ours.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out, n) };
        }
        let recorded = entry.outcome.unwrap_or((-1, libc::EIO));
        if let (Some(fd), true) = (moved, recorded.0 > 0) {
            // SAFETY: lseek(2) on the daemon's own descriptor.
            unsafe { libc::lseek(fd, recorded.0, libc::SEEK_CUR) };
        }
        give(recorded)
    }

    /// A request that is done again does something else: it fails, and that is said.
    #[cold]
    fn diverged(&self, mut tag: Tag, what: &str) {
        tag.state = State::Diverged;
        tag::set(tag);
        self.area().log(tag.slot).mark_diverged(tag.unique);
        self.tally(Tally::Diverged);
        self.control().decide(&Decision {
            generation: self.generation,
            opcode: tag.opcode,
            unique: tag.unique,
            node: 0,
            row: 0,
            errno: libc::EIO,
            text: format!("{} diverges when it is done again: {what}", Opcode(tag.opcode).name()),
        });
    }
}

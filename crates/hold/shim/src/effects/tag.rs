//! Request tagging (Re-FUSE, section 4.2.1): which request the calling thread works on.
//!
//! A thread has the request that it read last, until it asks for the next. A thread that is started
//! by one that has a request has it too (explicit hand-over). A request that is answered by another
//! thread than the one that took it was handed over in a way that cannot be seen, and is not
//! trusted to the journal.

use belay_recorder::Slot;
use std::cell::Cell;

/// What is done about the calls of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has no request.
    Idle,
    /// It has one that changes nothing, or one of belay's own.
    Plain,
    /// Without a journal: it is looked for whether something of it leaves the daemon.
    Watched,
    /// Its calls are logged.
    Logged,
    /// The same, of a request that is done again and has not come to where it was.
    Replaying,
    /// It did something else than before: its calls fail, and so does the request.
    Diverged,
}

/// What a thread works on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    pub(crate) unique: u64,
    pub(crate) slot: Slot,
    pub(crate) opcode: u32,
    pub(crate) state: State,
    /// Several threads work on the request.
    pub(crate) shared: bool,
    /// The thread has made an effectful call for it, of which something is there when the daemon is
    /// not any more, or may have; of a request that is not watched for that, it is not looked at.
    pub(crate) acted: bool,
    /// It is a CREATE with O_APPEND.
    pub(crate) appends: bool,
    /// From where on a WRITE is to change the file; `u64::MAX` of a SETATTR, of which that is not
    /// known here; 0 of all others.
    pub(crate) asked: u64,
}

impl Tag {
    pub(crate) const IDLE: Self = Self {
        unique: 0,
        slot: Slot(0),
        opcode: 0,
        state: State::Idle,
        shared: false,
        acted: false,
        appends: false,
        asked: 0,
    };
}

thread_local! {
    static TAG: Cell<Tag> = const { Cell::new(Tag::IDLE) };
}

/// What the calling thread works on.
#[inline]
pub(crate) fn get() -> Tag {
    TAG.get()
}

/// Sets it.
#[inline]
pub(crate) fn set(tag: Tag) {
    TAG.set(tag);
}

/// The calling thread has no request any more.
#[inline]
pub(crate) fn clear() {
    TAG.set(Tag::IDLE);
}

/// What a thread works on that the calling thread starts: the same. One that is started in a
/// request that changes nothing may be there for others (the first of a pool): it has none.
pub(crate) fn hand_over() -> Tag {
    let tag = TAG.get();
    if matches!(tag.state, State::Idle | State::Plain) {
        return Tag::IDLE;
    }
    let tag = Tag { shared: true, ..tag };
    TAG.set(tag);
    tag
}

//! The journal: what is to be done with a call that the dead generation may have made already.
//!
//! Effects must come again in the order in which they were recorded, with the same arguments: the
//! daemon is deterministic in what it does for a request (Re-FUSE, section 3.3, *output
//! determinism*), and where it is not, that is found out here, before it does harm. Reads are
//! looser: a successor's caches are cold, so it may read more than the dead generation did. A read
//! that is on record gives what it gave then, since what it looked at may have changed by the
//! request's own effects. An effect that failed has changed nothing, and is as loose: a daemon that
//! removes a name only where it may be there (a white-out of an overlay) knows more, or less, in
//! its next life. What was written to a place and cut may be left out as well: a daemon that finds
//! a file as short as it is to be has no block to write before it cuts it, and one that finds its
//! last block filled up does not fill it up. A request that leaves the same however often it is
//! done (WRITE, SETATTR) may go on from there by a cut, or by a write that cannot be the one that
//! was left out, made at another place: who appends to what it finds would append twice
//! ([`Cursor::goes_on`]). What is asked for is a place in the file that is shown, and what is
//! written one in some file of the daemon's, which may hold many such. So it is from that file
//! itself that a last block that is filled up is told from what is appended: it begins in what was
//! there ([`before_write`]).

use crate::call::Kind;
use crate::log::{Entry, Log};
use crate::probe::is_in_vain;
use belay_memory::Memory;

/// How far a request that is done again has come in its journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    at: usize,
}

/// What to do with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It was not made before: make it.
    Make,
    /// It was made, with this outcome: do not make it again.
    Recorded(Entry),
    /// It was begun, and its outcome is not known: find out, then record it here.
    Unsettled(Entry),
    /// It writes as much to the same place as before, but other bytes: a daemon takes a new random
    /// number, or the time, in each life. It is made again, over what was written before.
    Over(Entry),
    /// The request does not do what it did before.
    Diverged,
}

/// The digest of a write: of its place and length in one half, of its bytes in the other.
pub fn digest_of_write(place: u64, bytes: u64) -> u64 {
    place & PLACE | bytes & !PLACE
}

/// A write to a place, or a cut, of a request that is done again, and is not on record.
#[derive(Clone, Copy, Debug)]
pub struct Further {
    /// See [`digest_of_write`].
    pub digest: u64,
    /// Where it writes.
    pub start: u64,
    /// How many bytes.
    pub length: u64,
    /// From where on the request itself is to change the file; 0 if that is not known.
    pub asked: u64,
}

impl Further {
    /// Whether it may come behind `left_out`, which it does not repeat: it is made over that or
    /// before it; or that filled up the last block of the file, which ended before what was asked
    /// for, and has other bytes than this one, which gets there.
    fn may_follow(&self, left_out: &Entry) -> bool {
        if Kind::from_number(left_out.kind) != Some(Kind::WriteAt) {
            return true;
        }
        let written = left_out.outcome.and_then(|(result, _)| u64::try_from(result).ok());
        let start = left_out.before & !FILLS;
        let end = start.saturating_add(written.unwrap_or(0));
        let behind = self.start.saturating_add(self.length);
        let same_bytes = (left_out.digest ^ self.digest) & !PLACE == 0;
        let filled_up = left_out.before & FILLS != 0 && start < self.asked;
        let gets_there = self.start >= end && behind >= self.asked;
        behind <= end || filled_up && gets_there && !same_bytes
    }
}

/// What is known before a write to a place: that place, and whether it begins in a file of `size`
/// bytes and goes to its end or beyond, as who fills up a last block does. One that begins at the
/// end may append.
pub fn before_write(start: u64, length: u64, size: u64) -> u64 {
    let fills = start < size && start.saturating_add(length) >= size;
    start & !FILLS | if fills { FILLS } else { 0 }
}

/// No place in a file is as far as that.
const FILLS: u64 = 1 << 63;

/// The half of the place.
const PLACE: u64 = 0xffff_ffff_0000_0000;

fn is_over(entry: &Entry, kind: Kind, digest: u64) -> bool {
    kind.is_write() && entry.kind == kind as u32 && (entry.digest ^ digest) & PLACE == 0
}

/// Whether an entry is of an effect that may have changed something.
fn has_changed(entry: &Entry) -> bool {
    let Some(kind) = Kind::from_number(entry.kind) else { return true };
    let failed = match entry.outcome {
        Some((result, _)) => result < 0,
        None => is_in_vain(kind, entry),
    };
    kind.is_effect() && !failed
}

/// Whether an entry is of an effect that was carried out, and may be left out by who finds it done:
/// made later after all, it changes nothing.
fn may_be_left_out(entry: &Entry) -> bool {
    entry.outcome.is_some() && Kind::from_number(entry.kind).is_some_and(is_placed)
}

/// Whether such an effect leaves the same however often it is made.
fn is_placed(kind: Kind) -> bool {
    matches!(kind, Kind::WriteAt | Kind::Truncate)
}

impl Cursor {
    /// Before the first entry.
    pub const START: Self = Self { at: 0 };
    /// Behind the last entry, also behind those that are appended from now on.
    pub const END: Self = Self { at: usize::MAX };

    /// Where the threads of a request have come. They share it: it is kept with the log.
    pub fn load<M: Memory>(log: &Log<'_, M>) -> Self {
        Self { at: log.cursor() }
    }

    /// Keeps it with the log.
    pub fn store<M: Memory>(self, log: &Log<'_, M>) {
        log.set_cursor(self.at);
    }

    /// Looks up a call.
    pub fn advise<M: Memory>(&mut self, log: &Log<'_, M>, kind: Kind, digest: u64) -> Advice {
        let mut next = log.entry(self.at);
        loop {
            let Ok(found) = next else { return Advice::Diverged };
            let Some(entry) = found else {
                if kind.is_effect() {
                    // What is on record from now on is of this life: no other thread is to compare
                    // with it.
                    *self = Self::END;
                }
                return Advice::Make;
            };
            let same = entry.kind == kind as u32 && entry.digest == digest;
            let effect = has_changed(&entry);
            match (same, effect, kind.is_effect()) {
                (true, ..) => return self.again(log, entry),
                (false, true, true) if is_over(&entry, kind, digest) => {
                    self.pass(log, &entry);
                    return Advice::Over(entry);
                }
                // Another read, or an effect in vain: not asked for this time, or later.
                (false, false, _) => next = log.after(&entry),
                // A read that was not made before this effect.
                (false, true, false) => return Advice::Make,
                (false, true, true) if is_placed(kind) => {
                    return self.advise_behind(log, &entry, kind, digest);
                }
                (false, true, true) => return Advice::Diverged,
            }
        }
    }

    /// Looks up a cut, or a write to a place, behind `first`, which is another effect: it comes
    /// again if all before it may be left out.
    fn advise_behind<M: Memory>(
        &mut self,
        log: &Log<'_, M>,
        first: &Entry,
        kind: Kind,
        digest: u64,
    ) -> Advice {
        let mut left_out = *first;
        while !has_changed(&left_out) || may_be_left_out(&left_out) {
            let Ok(Some(entry)) = log.after(&left_out) else { break };
            if entry.kind == kind as u32 && entry.digest == digest {
                return self.again(log, entry);
            }
            if is_over(&entry, kind, digest) {
                self.pass(log, &entry);
                return Advice::Over(entry);
            }
            left_out = entry;
        }
        Advice::Diverged
    }

    /// The call of an entry comes again.
    fn again<M: Memory>(&mut self, log: &Log<'_, M>, entry: Entry) -> Advice {
        self.pass(log, &entry);
        match entry.outcome {
            Some(_) => Advice::Recorded(entry),
            None => Advice::Unsettled(entry),
        }
    }

    /// Moves behind an entry.
    pub fn pass<M: Memory>(&mut self, log: &Log<'_, M>, entry: &Entry) {
        self.at = match log.after(entry) {
            Ok(Some(next)) => next.at,
            _ => Self::END.at,
        };
    }

    /// Whether all effects on record have come again.
    pub fn is_done<M: Memory>(&self, log: &Log<'_, M>) -> bool {
        self.is_behind(log, |_| false)
    }

    /// Whether all effects on record have come again that may not be left out.
    pub fn may_end<M: Memory>(&self, log: &Log<'_, M>) -> bool {
        self.is_behind(log, may_be_left_out)
    }

    /// Whether a request that leaves the same however often it is done may go on with an effect
    /// that is not on record: it has found what it had done before, and that was whole. From here
    /// on it is as new.
    pub fn goes_on<M: Memory>(&mut self, log: &Log<'_, M>, kind: Kind, further: &Further) -> bool {
        let follows = |left_out: &Entry| {
            may_be_left_out(left_out) && (kind == Kind::Truncate || further.may_follow(left_out))
        };
        let goes_on = is_placed(kind) && self.is_behind(log, follows);
        if goes_on {
            *self = Self::END;
        }
        goes_on
    }

    fn is_behind<M: Memory>(&self, log: &Log<'_, M>, is_needless: impl Fn(&Entry) -> bool) -> bool {
        let mut next = log.entry(self.at);
        while let Ok(Some(entry)) = next {
            if has_changed(&entry) && !is_needless(&entry) {
                return false;
            }
            next = log.after(&entry);
        }
        next.is_ok()
    }

    /// Nothing is left to be compared: what comes from now on is new.
    pub fn is_at_end<M: Memory>(&self, log: &Log<'_, M>) -> bool {
        matches!(log.entry(self.at), Ok(None))
    }

    /// The next effect on record, for reports.
    pub fn expected<M: Memory>(&self, log: &Log<'_, M>) -> Option<Kind> {
        let mut next = log.entry(self.at);
        while let Ok(Some(entry)) = next {
            match Kind::from_number(entry.kind) {
                Some(kind) if has_changed(&entry) => return Some(kind),
                _ => next = log.after(&entry),
            }
        }
        None
    }
}

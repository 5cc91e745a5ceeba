//! Reads of a request by which it may decide something: made and logged, or given from the log.

use super::super::log_of;
use super::super::tag::{self, State, Tag};
use super::{fail, give, outcome, turn};
use crate::argument::Output;
use crate::dying::safepoint;
use crate::real;
use crate::shim::Shim;
use belay_effects::area::Tally;
use belay_effects::log::Head;
use belay_effects::{Advice, Cursor, Entry, Kind, Log};
use belay_sys::Mapping;
use libc::c_int;
use std::sync::Arc;

impl Shim {
    pub(super) fn read_logged(
        &self,
        mut tag: Tag,
        (kind, digest): (Kind, u64),
        mut out: Output<'_>,
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
                    return self.give_read(&log, &entry, out, moved);
                }
                // It has come to where it was: this is new, and the next life has to see it as it
                // is now.
                Advice::Make if tag.state == State::Logged => {}
                // What was read then and is not on record, or is read now and was not then.
                Advice::Make | Advice::Unsettled(_) => {
                    drop(turn);
                    return make();
                }
                Advice::Diverged | Advice::Over(_) => {
                    self.diverged(tag, "its record is corrupt");
                    return fail();
                }
            }
        }
        drop(turn);
        let result = make();
        let errno = real::errno();
        let bytes = out.filled(length(result));
        let head = Head { kind: kind as u32, digest, ..Head::default() };
        let turn = self::turn(&tag);
        let appended = log.append_done(&head, bytes, outcome(result));
        drop(turn);
        if appended.is_none() {
            log.mark_opaque(tag.unique);
        }
        safepoint();
        real::set_errno(errno);
        result
    }

    fn give_read(
        &self,
        log: &Log<'_, Arc<Mapping>>,
        entry: &Entry,
        mut out: Output<'_>,
        moved: Option<c_int>,
    ) -> isize {
        self.tally(Tally::Replayed);
        log.payload(entry, out.bytes());
        let recorded = entry.outcome.unwrap_or((-1, libc::EIO));
        if let (Some(fd), true) = (moved, recorded.0 > 0) {
            // SAFETY: lseek(2) on the daemon's own descriptor.
            unsafe { libc::lseek(fd, recorded.0, libc::SEEK_CUR) };
        }
        give(recorded)
    }
}

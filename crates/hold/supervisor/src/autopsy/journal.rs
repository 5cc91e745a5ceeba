//! What requests in flight had done outside of the daemon at its death, from their logs.

use crate::inflight::FileView;
use belay_effects::{Area, Entry, Kind};
use belay_recorder::{Layout, Slot};
use serde::{Deserialize, Serialize};

/// Calls that are shown of one request, and of all together.
const CALLS: usize = 100;
const CALLS_IN_ALL: usize = 1000;

/// What a request had done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// The kernel's id of the request.
    pub unique: u64,
    /// Its calls on record, in their order.
    pub calls: Vec<Call>,
    /// There are more than are shown here.
    pub more: bool,
    /// The record is whole: it has all that the request did, and nobody has altered it.
    pub whole: bool,
}

/// One system call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its name.
    pub call: String,
    /// What it gave; `null` if it was begun, and its result is not known.
    pub result: Option<i64>,
    /// Its errno if it failed; `null` if it did not, or is not known.
    pub errno: Option<i32>,
}

impl From<&Entry> for Call {
    fn from(entry: &Entry) -> Self {
        let name = Kind::from_number(entry.kind).map_or("unknown call", Kind::name);
        Self {
            call: name.to_owned(),
            result: entry.outcome.map(|(result, _)| result),
            errno: entry.outcome.filter(|(result, _)| *result < 0).map(|(_, errno)| errno),
        }
    }
}

/// Copies the journals of these requests, before a successor goes on with them.
pub(crate) fn copy(
    view: &FileView<'_>,
    layout: Layout,
    requests: impl Iterator<Item = (Slot, u64)>,
) -> Vec<Journal> {
    let area = Area::new(view, layout);
    let mut left = CALLS_IN_ALL;
    let journal = |(slot, unique): (Slot, u64)| {
        let log = area.log(slot);
        let opaque = log.is_opaque(unique);
        if unique == 0 || log.unique() != unique && !opaque {
            return None;
        }
        let mut journal = Journal { unique, whole: !opaque, ..Journal::default() };
        if log.unique() != unique {
            return Some(journal);
        }
        let mut next = log.entry(0);
        loop {
            match &next {
                Ok(None) => break,
                Ok(Some(_)) if journal.calls.len() >= CALLS.min(left) => {
                    journal.more = true;
                    break;
                }
                Ok(Some(entry)) => {
                    journal.calls.push(Call::from(entry));
                    next = log.after(entry);
                }
                Err(_) => {
                    journal.whole = false;
                    break;
                }
            }
        }
        left -= journal.calls.len();
        Some(journal)
    };
    requests.filter_map(journal).collect()
}

impl Journal {
    /// Lines for people.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let unique = self.unique;
        for call in &self.calls {
            lines.push(match (call.result, call.errno) {
                (None, _) => format!("unique {unique}: {}, result not known", call.call),
                (Some(_), Some(errno)) => format!("unique {unique}: {}, errno {errno}", call.call),
                (Some(result), None) => format!("unique {unique}: {} = {result}", call.call),
            });
        }
        if self.more {
            lines.push(format!("unique {unique}: and more"));
        }
        if !self.whole {
            lines.push(format!("unique {unique}: this is not all, or not to be trusted"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inflight::Requests;
    use belay_effects::log::Head;
    use belay_recorder::{Capacity, InFlight, SlotState, Store};
    use belay_sys::Mapping;
    use rustix::fd::AsFd;

    #[test]
    fn journals_are_copied_and_no_page_is_filled_by_that() {
        let layout = Layout::new(Capacity { effect_bytes: 1 << 20, ..Capacity::SMALL });
        let file = crate::memfile::create("belay-test").expect("memfd");
        rustix::fs::ftruncate(&file, layout.bytes() as u64).expect("size");
        let map = std::sync::Arc::new(Mapping::new(file.as_fd(), layout.bytes()).expect("map"));
        let store = Store::new(std::sync::Arc::clone(&map), layout);
        for (slot, unique) in [(0, 40), (1, 42), (2, 44)] {
            let request = InFlight {
                state: SlotState::Started,
                opcode: 13,
                unique,
                node: 1,
                uid: 0,
                gid: 0,
                pid: 1,
                generation: 0,
            };
            store.slot_fill(Slot(slot), &request, b"name\0", 45);
        }
        let log = Area::new(&map, layout).log(Slot(1));
        log.begin(42);
        let head = |kind: Kind| Head { kind: kind as u32, ..Head::default() };
        let mut first = log.append(&head(Kind::Mkdir), &[]).expect("room");
        log.finish(&mut first, (-1, 17));
        log.append_done(&head(Kind::ReadAt), b"bytes", (5, 0)).expect("room");
        log.append(&head(Kind::Rename), &[]).expect("room");
        Area::new(&map, layout).log(Slot(0)).mark_opaque(40);
        let blocks = || rustix::fs::fstat(&file).expect("stat").st_blocks;
        let before = blocks();
        let found = Requests::new(file.as_fd(), layout).journals();
        assert_eq!(blocks(), before, "looking has filled pages");
        let uniques: Vec<u64> = found.iter().map(|journal| journal.unique).collect();
        assert_eq!(uniques, [40, 42], "44 has none");
        assert!(!found[0].whole && found[1].whole);
        assert_eq!(
            found[1].lines(),
            [
                "unique 42: mkdir, errno 17",
                "unique 42: pread = 5",
                "unique 42: rename, result not known"
            ]
        );
        for n in 0..2 * CALLS {
            log.append_done(&head(Kind::Stat), &[n as u8], (0, 0)).expect("room");
        }
        let found = Requests::new(file.as_fd(), layout).journals();
        assert_eq!((found[1].calls.len(), found[1].more), (CALLS, true));
    }
}

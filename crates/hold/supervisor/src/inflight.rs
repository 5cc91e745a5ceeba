//! The requests in flight, as the recorder shows them.
//!
//! The recorder's areas are sparse: looking at a page through a mapping would make the kernel
//! fill it with memory, so they are read from the file instead; but for the [`Snapshot`], which
//! applications wait for.

use crate::autopsy::journal::Journal;
use crate::clock;
use belay_memory::Memory;
use belay_recorder::{InFlight, Layout, Slot, SlotState, Store};
use belay_wire::{Opcode, Unique, describe::describe_parts};
use rustix::fd::BorrowedFd;
use std::collections::HashMap;

/// The recorder's file, read and never written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileView<'f>(BorrowedFd<'f>);

impl Memory for FileView<'_> {
    fn load(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        let offset = (at as u64).saturating_mul(8);
        match rustix::io::pread(self.0, &mut word, offset) {
            Ok(8) => u64::from_ne_bytes(word),
            _ => 0,
        }
    }
    fn store(&self, _at: usize, _value: u64) {}
    fn compare_exchange(&self, at: usize, _old: u64, _new: u64) -> Result<u64, u64> {
        Err(self.load(at))
    }
    fn add(&self, at: usize, _by: u64) -> u64 {
        self.load(at)
    }
    fn load_fields<const N: usize>(&self, at: usize, fields: [usize; N]) -> [u64; N] {
        let mut bytes = [0; 16 * 8];
        let words = fields.iter().fold(0, |most, field| field.saturating_add(1).max(most));
        if words > 16 {
            return fields.map(|field| self.load(at.wrapping_add(field)));
        }
        // One look for one record.
        self.load_bytes(at, bytes.get_mut(..words * 8).unwrap_or_default());
        let (words, _) = bytes.as_chunks::<8>();
        fields.map(|field| words.get(field).map_or(0, |word| u64::from_ne_bytes(*word)))
    }
    fn load_bytes(&self, at: usize, out: &mut [u8]) {
        let offset = (at as u64).saturating_mul(8);
        let n = rustix::io::pread(self.0, &mut *out, offset).unwrap_or(0);
        if let Some(rest) = out.get_mut(n..) {
            rest.fill(0);
        }
    }
}

/// Looks at the requests in flight.
#[derive(Clone, Copy, Debug)]
pub struct Requests<'f> {
    file: BorrowedFd<'f>,
    layout: Layout,
}

impl<'f> Requests<'f> {
    /// Those that the recorder in `file` holds.
    pub fn new(file: BorrowedFd<'f>, layout: Layout) -> Self {
        Self { file, layout }
    }

    /// The recorder's file, without a page of it being filled by a look at it.
    pub(crate) fn view(&self) -> FileView<'f> {
        FileView(self.file)
    }

    /// What those in flight have done outside of the daemon, as far as it is logged.
    pub(crate) fn journals(&self) -> Vec<Journal> {
        let mut requests = self.all();
        requests.sort_by_key(|(_, request)| request.unique);
        let requests = requests.iter().map(|(slot, request)| (*slot, request.unique));
        crate::autopsy::journal::copy(&self.view(), self.layout, requests)
    }

    fn all(&self) -> Vec<(Slot, InFlight)> {
        all(&Store::new(FileView(self.file), self.layout))
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.all().len() as u64
    }

    /// How many the kernel has made, as far as they are known.
    pub(crate) fn of_kernel(&self) -> u64 {
        let is_own = |unique| Unique::new(unique).is_own();
        self.all().iter().filter(|(_, request)| !is_own(request.unique)).count() as u64
    }

    /// Whether `generation` has, or died having, a request while all others wait.
    pub fn has_alone(&self, generation: u32) -> bool {
        self.all().iter().any(|(slot, _)| self.is_alone(*slot, generation))
    }

    fn is_alone(&self, slot: Slot, generation: u32) -> bool {
        let solo = Store::new(FileView(self.file), self.layout).slot_solo(slot);
        solo.is_tried_by(generation) && !solo.late
    }
}

fn all<M: Memory>(store: &Store<M>) -> Vec<(Slot, InFlight)> {
    store
        .slot_requests()
        // A thread that waits for work has a slot for what it may read: not a request yet.
        .filter(|(_, request)| request.state != SlotState::Reading)
        .collect()
}

/// The requests that were in flight at some time, with their bodies. Taken while applications are
/// waiting, put into words when there is time.
#[derive(Debug)]
pub struct Snapshot(Vec<(InFlight, Vec<u8>)>);

impl Snapshot {
    /// Copies them. Through the mapping, which is many times faster than the file; the slots that
    /// are looked at have been in use, so the kernel need not fill a page.
    pub fn take<M: Memory>(store: &Store<M>) -> Self {
        let copy = |(slot, request)| (request, store.slot_body(slot).0);
        Self(all(store).into_iter().map(copy).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each in one line, with its arguments, in the order in which they were issued.
    pub fn describe(mut self) -> Vec<String> {
        self.0.sort_by_key(|(request, _)| request.unique);
        self.0.iter().map(|(request, body)| line(request, body)).collect()
    }
}

fn line(request: &InFlight, body: &[u8]) -> String {
    let who = [request.uid, request.gid, request.pid];
    describe_parts(request.opcode, [request.unique, request.node], who, body)
}

/// How long each request has been in flight, as far as repeated looks tell.
#[derive(Debug, Default)]
pub struct Ages {
    seen: HashMap<u64, u64>,
}

impl Ages {
    /// Looks at the requests now; gives the oldest with its age in nanoseconds (at most that much
    /// has passed since it was first seen here). Requests that may take forever, such as a lock
    /// that is waited for, are left out; and all but the one that generation `alone` has alone.
    pub fn oldest_in_flight(
        &mut self,
        requests: Requests<'_>,
        alone: Option<u32>,
    ) -> Option<(String, u64)> {
        let now = clock::now();
        let waits = |opcode| matches!(Opcode(opcode), Opcode::SETLKW | Opcode::POLL);
        let mut current = requests.all();
        if let Some(generation) = alone {
            current.retain(|(slot, _)| requests.is_alone(*slot, generation));
        }
        let current = current.iter().filter(|(_, request)| !waits(request.opcode));
        let mut seen = HashMap::new();
        let mut oldest: Option<(Slot, &InFlight, u64)> = None;
        for (slot, request) in current {
            let since = self.seen.get(&request.unique).copied().unwrap_or(now);
            seen.insert(request.unique, since);
            if oldest.is_none_or(|(_, _, found)| since < found) {
                oldest = Some((*slot, request, since));
            }
        }
        self.seen = seen;
        let (slot, request, since) = oldest?;
        let store = Store::new(requests.view(), requests.layout);
        let (body, _) = store.slot_body(slot);
        // If it is answered meanwhile, that is another's by now: then there is no such request any
        // more.
        let still = store.slot_is(slot, request.unique);
        still.then(|| (line(request, &body), now.saturating_sub(since)))
    }

    /// Forgets all ages: a new generation has all the time again.
    pub fn clear(&mut self) {
        self.seen.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_recorder::{Capacity, Solo};
    use belay_sys::Mapping;
    use rustix::fd::AsFd;

    #[test]
    fn requests_are_seen_through_the_file() {
        let layout = Layout::new(Capacity::SMALL);
        let file = crate::memfile::create("belay-test").expect("memfd");
        rustix::fs::ftruncate(&file, layout.bytes() as u64).expect("size");
        let map = Mapping::new(file.as_fd(), layout.bytes()).expect("map");
        let store = Store::new(map, layout);
        let look = Requests::new(file.as_fd(), layout);
        assert_eq!(look.count(), 0);
        let mut ages = Ages::default();
        assert_eq!(ages.oldest_in_flight(look, None), None);
        for (slot, unique, opcode) in [(7, 40, Opcode::UNLINK), (3, 42, Opcode::SETLKW)] {
            let request = InFlight {
                state: SlotState::Started,
                opcode: opcode.0,
                unique,
                node: 1,
                uid: 0,
                gid: 0,
                pid: 1,
                generation: 0,
            };
            store.slot_fill(Slot(slot), &request, b"name\0", 45);
        }
        store.slot_prepare(Slot(5)); // a thread waiting for a request to copy
        assert_eq!(look.count(), 2);
        let snapshot = Snapshot::take(&store);
        let lines = Snapshot::take(&store).describe();
        assert!(lines[0].contains("UNLINK") && lines[0].contains("\"name\""), "{lines:?}");
        let (oldest, _) = ages.oldest_in_flight(look, None).expect("one");
        assert!(oldest.contains("UNLINK") && oldest.contains("\"name\""), "{oldest}");
        assert!(ages.oldest_in_flight(look, Some(4)).is_none() && !look.has_alone(4));
        let solo = Solo::default().begin(4);
        store.slot_set_solo(Slot(7), solo);
        assert!(ages.oldest_in_flight(look, Some(4)).is_some() && look.has_alone(4));
        assert!(ages.oldest_in_flight(look, Some(5)).is_none() && !look.has_alone(5));
        let mut late = solo;
        late.late = true;
        store.slot_set_solo(Slot(7), late);
        assert!(!look.has_alone(4));
        store.slot_free(Slot(7)); // settled by a successor
        store.slot_advance(Slot(3), SlotState::Reading);
        assert_eq!(look.count(), 0);
        assert_eq!(snapshot.describe(), lines);
    }
}

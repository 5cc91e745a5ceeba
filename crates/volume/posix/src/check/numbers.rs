//! Whether the numbers that are taken are those of the objects that something leads to.

use super::{Checker, Known};
use crate::attributes::Kind;
use crate::own::{FIRST, IDS};
use belay_object::{Lower, ObjectId, PAGE};
use roaring::RoaringTreemap;

/// Bits in a page of the list of the objects' numbers.
const BITS: u64 = PAGE as u64 * 8;
/// Objects that a block of the stores can hold at most: so many inodes.
const OBJECTS_A_BLOCK: u64 = 16;

impl<B: Lower> Checker<'_, B> {
    /// The numbers that are taken are those of the objects that something leads to.
    pub(super) fn numbers(&mut self, objects: impl IntoIterator<Item = u64>) {
        self.seen.insert_range(0..FIRST);
        let Some(mut taken) = self.taken() else { return };
        for number in &(&self.seen - &taken) {
            let what = "its number is not marked as taken: a new file would get it";
            self.add(Some(ObjectId(number)), None, what);
        }
        let there: RoaringTreemap = objects.into_iter().collect();
        taken |= &there;
        for number in &(&taken - &self.seen) {
            let object = ObjectId(number);
            let what = match self.known(object) {
                Ok(Known { size, metadata }) => {
                    let kind = match metadata.kind() {
                        Kind::File => "a file",
                        Kind::Directory => "a directory",
                        Kind::Link => "a symbolic link",
                        Kind::Special => "a device, FIFO or socket",
                    };
                    format!("{kind} of {size} bytes has lost its name")
                }
                Err(_) if !there.contains(number) => {
                    "its number is marked as taken, and there is none".to_owned()
                }
                Err(why) => format!("nothing leads to it: {why}"),
            };
            self.add(Some(object), None, what);
        }
    }

    /// The numbers that are marked as taken; `None` if that cannot be told.
    fn taken(&mut self) -> Option<RoaringTreemap> {
        let mut taken = RoaringTreemap::new();
        let room = self.below.room().map_err(|why| why.to_string());
        let found = room.and_then(|room| Ok((room, self.known(IDS)?.size)));
        let (room, size) = match found {
            Ok(found) => found,
            Err(why) => {
                self.add(Some(IDS), None, format!("the list of the objects' numbers: {why}"));
                return None;
            }
        };
        // The least number that is free is taken first, so it is no longer than for as many objects
        // as there is room for.
        let most = room.capacity.saturating_mul(OBJECTS_A_BLOCK).div_ceil(BITS).saturating_add(1);
        let pages = size.div_ceil(PAGE as u64);
        if pages > most {
            self.add(Some(IDS), None, "the list of the objects' numbers is longer than it can be");
            return None;
        }
        for page in 0..pages {
            let mut content = [0; PAGE];
            if let Err(why) = self.below.read(IDS, page, &mut content) {
                self.add(Some(IDS), None, format!("the list of the objects' numbers: {why}"));
                return None;
            }
            let set =
                content.iter().zip((page * BITS..).step_by(8)).filter(|(byte, _)| **byte != 0);
            for (byte, first) in set {
                let bits = (0..8).filter(|bit| byte & (1 << bit) != 0);
                bits.for_each(|bit| {
                    taken.insert(first + bit);
                });
            }
        }
        Some(taken)
    }
}

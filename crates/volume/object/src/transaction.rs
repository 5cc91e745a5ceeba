//! Operations that happen together, and how they are written down: in the log, in a ring, and on a
//! disk.
//!
//! An operation is a head of 32 bytes, and its bytes, which are filled up to a multiple of 8.
//! Whoever reads one does not trust who wrote it.

use crate::id::{ATTRIBUTES, ObjectId, PAGE};
use crate::operation::{Class, Operation};
use thiserror::Error;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What was written down is no operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Undecodable(&'static str);

impl Undecodable {
    /// For this reason.
    pub fn new(why: &'static str) -> Self {
        Self(why)
    }

    /// Why.
    pub fn why(&self) -> &'static str {
        self.0
    }
}

const CREATE: u16 = 1;
const DELETE: u16 = 2;
const WRITE: u16 = 3;
const SET_SIZE: u16 = 4;
const SET_ATTRIBUTES: u16 = 5;
const PUNCH: u16 = 6;
const PAGES: u16 = 7;
const KEEP: u16 = 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    kind: U16,
    /// Of a new object: 1 for metadata.
    class: U16,
    /// Of the bytes behind it, before they are filled up.
    length: U32,
    object: U64,
    /// A page, or a length.
    at: U64,
    count: U64,
}

const _: () = assert!(size_of::<Head>() == 32);

/// Operations that happen all or not at all, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    bytes: Vec<u8>,
}

impl Transaction {
    /// Without operations.
    pub fn new() -> Self {
        Self::default()
    }

    /// What was written down; each operation is looked at.
    ///
    /// # Errors
    /// If it is none, or not as a whole.
    pub fn decode(bytes: Vec<u8>) -> Result<Self, Undecodable> {
        let this = Self { bytes };
        for operation in this.operations() {
            operation?;
        }
        Ok(this)
    }

    /// How it is written down.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether nothing is to happen.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether all of it can be undone while it is being done, as direct I/O takes: no operation
    /// but the last one takes anything away (namespace transactions III-C).
    pub fn is_revocable(&self) -> bool {
        let mut rest = self.operations();
        let mut last = false;
        rest.all(|operation| {
            let fine = !last;
            last = operation.is_ok_and(|operation| operation.is_final());
            fine
        })
    }

    /// All of this, and another one behind it.
    #[must_use]
    pub fn then(&self, other: &Self) -> Self {
        Self { bytes: [self.bytes(), other.bytes()].concat() }
    }

    /// Adds an operation.
    pub fn add(&mut self, operation: &Operation<'_>) {
        let head = |kind: u16, object: ObjectId| Head {
            kind: kind.into(),
            class: U16::ZERO,
            length: U32::ZERO,
            object: object.0.into(),
            at: U64::ZERO,
            count: U64::ZERO,
        };
        let (head, bytes): (Head, &[u8]) = match *operation {
            Operation::Create { object, class, attributes } => {
                let class = u16::from(class == Class::Metadata).into();
                (Head { class, ..head(CREATE, object) }, attributes)
            }
            Operation::Delete { object } => (head(DELETE, object), &[]),
            Operation::Keep { object } => (head(KEEP, object), &[]),
            Operation::Write { object, page, data } => {
                (Head { at: page.into(), ..head(WRITE, object) }, data)
            }
            Operation::Pages { object, page, frames } => {
                (Head { at: page.into(), ..head(PAGES, object) }, frames.as_bytes())
            }
            Operation::SetSize { object, size } => {
                (Head { at: size.into(), ..head(SET_SIZE, object) }, &[])
            }
            Operation::SetAttributes { object, attributes } => {
                (head(SET_ATTRIBUTES, object), attributes)
            }
            Operation::Punch { object, page, count } => {
                let head = head(PUNCH, object);
                (Head { at: page.into(), count: count.into(), ..head }, &[])
            }
        };
        let head = Head { length: (bytes.len() as u32).into(), ..head };
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    /// Its operations, in their order.
    pub fn operations(&self) -> Operations<'_> {
        Operations { rest: &self.bytes }
    }
}

/// The operations of a transaction.
#[derive(Clone, Debug)]
pub struct Operations<'t> {
    rest: &'t [u8],
}

impl<'t> Iterator for Operations<'t> {
    type Item = Result<Operation<'t>, Undecodable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let next = next(&mut self.rest);
        if next.is_err() {
            self.rest = &[];
        }
        Some(next)
    }
}

fn next<'t>(rest: &mut &'t [u8]) -> Result<Operation<'t>, Undecodable> {
    let (head, behind) =
        Head::read_from_prefix(rest).map_err(|_| Undecodable("a head is cut off"))?;
    let length = head.length.get() as usize;
    let filled = length.next_multiple_of(8);
    let bytes = behind.get(..length).ok_or(Undecodable("its bytes are cut off"))?;
    *rest = behind.get(filled..).ok_or(Undecodable("its bytes are cut off"))?;
    let object = ObjectId(head.object.get());
    let at = head.at.get();
    let operation = match head.kind.get() {
        CREATE => {
            let class = match head.class.get() {
                0 => Class::Data,
                1 => Class::Metadata,
                _ => return Err(Undecodable("there is no such class")),
            };
            Operation::Create { object, class, attributes: bytes }
        }
        DELETE => Operation::Delete { object },
        KEEP => Operation::Keep { object },
        WRITE => Operation::Write { object, page: at, data: bytes },
        PAGES => {
            let frames = <[U64]>::ref_from_bytes(bytes);
            let frames = frames.map_err(|_| Undecodable("its frames are cut off"))?;
            Operation::Pages { object, page: at, frames }
        }
        SET_SIZE => Operation::SetSize { object, size: at },
        SET_ATTRIBUTES => Operation::SetAttributes { object, attributes: bytes },
        PUNCH => Operation::Punch { object, page: at, count: head.count.get() },
        _ => return Err(Undecodable("there is no such operation")),
    };
    let fits = match operation {
        Operation::Create { attributes, .. } | Operation::SetAttributes { attributes, .. } => {
            attributes.len() <= ATTRIBUTES
        }
        Operation::Write { data, page, .. } => {
            let pages = (data.len() / PAGE) as u64;
            pages > 0 && data.len().is_multiple_of(PAGE) && page.checked_add(pages).is_some()
        }
        Operation::Pages { frames, page, .. } => {
            !frames.is_empty() && page.checked_add(frames.len() as u64).is_some()
        }
        Operation::Punch { page, count, .. } => {
            bytes.is_empty() && page.checked_add(count).is_some()
        }
        Operation::Delete { .. } | Operation::SetSize { .. } | Operation::Keep { .. } => {
            bytes.is_empty()
        }
    };
    if fits { Ok(operation) } else { Err(Undecodable("its bytes are not what it takes")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Transaction {
        let object = ObjectId(7);
        let mut all = Transaction::new();
        all.add(&Operation::Create { object, class: Class::Metadata, attributes: b"abc" });
        all.add(&Operation::Write { object, page: 3, data: &[5; 2 * PAGE] });
        all.add(&Operation::SetAttributes { object, attributes: &[1; ATTRIBUTES] });
        all.add(&Operation::SetSize { object, size: 1 << 40 });
        all
    }

    #[test]
    fn what_is_written_down_is_read_again() {
        let all = all();
        let read = Transaction::decode(all.bytes().to_vec()).unwrap();
        assert_eq!(read, all);
        let kinds: Vec<_> = read.operations().map(|one| one.unwrap()).collect();
        assert!(
            matches!(kinds[1], Operation::Write { page: 3, data, .. } if data.len() == 2 * PAGE)
        );
        assert!(matches!(kinds[3], Operation::SetSize { size, .. } if size == 1 << 40));
        for object in [
            Operation::Delete { object: ObjectId(1) },
            Operation::Punch { object: ObjectId(1), page: 2, count: 3 },
            Operation::Keep { object: ObjectId(1) },
        ] {
            let mut one = Transaction::new();
            one.add(&object);
            assert_eq!(one.operations().next().unwrap().unwrap(), object);
        }
    }

    #[test]
    fn what_cannot_be_undone_is_the_last() {
        let mut two = all();
        assert!(two.is_revocable() && Transaction::new().is_revocable());
        two.add(&Operation::Delete { object: ObjectId(7) });
        assert!(!two.is_revocable());
    }

    #[test]
    fn what_is_cut_off_or_too_much_is_refused() {
        let all = all();
        let ends: Vec<usize> = {
            let mut rest = all.operations();
            let mut ends = vec![0];
            while rest.next().is_some() {
                ends.push(all.bytes().len() - rest.rest.len());
            }
            ends
        };
        for end in (0..all.bytes().len()).filter(|end| !ends.contains(end)).step_by(13) {
            assert!(Transaction::decode(all.bytes()[..end].to_vec()).is_err(), "{end}");
        }
        let mut long = Transaction::new();
        long.add(&Operation::SetAttributes {
            object: ObjectId(1),
            attributes: &[0; ATTRIBUTES + 1],
        });
        assert!(Transaction::decode(long.bytes().to_vec()).is_err());
        let mut part = Transaction::new();
        part.add(&Operation::Write { object: ObjectId(1), page: 0, data: &[0; PAGE / 2] });
        assert!(Transaction::decode(part.bytes().to_vec()).is_err());
        let mut far = Transaction::new();
        far.add(&Operation::Punch { object: ObjectId(1), page: u64::MAX, count: 2 });
        assert!(Transaction::decode(far.bytes().to_vec()).is_err());
    }

    proptest! {
        #![proptest_config(belay_seeds::cases!())]

        #[test]
        fn whatever_it_reads_it_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..9_u8) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            let _ = Transaction::decode(bytes);
        }
    }
}

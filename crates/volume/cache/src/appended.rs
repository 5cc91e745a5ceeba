//! What an append to the intent log holds: transactions, each with its number.

use belay_object::Undecodable;

/// Bytes before each transaction: its number, and its length.
const HEAD: usize = 16;
/// In such a number: these are data, as they were when this transaction was the last one.
const DATA: u64 = 1 << 63;

/// A transaction of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Its number; of data, that of the last transaction that they include.
    pub number: u64,
    /// Whether it is data of files, which a sync has added.
    pub is_data: bool,
    /// Its operations.
    pub bytes: &'a [u8],
}

impl Part<'_> {
    /// Whether it is in all that has the transactions up to `upto`, or was done again up to `next`.
    pub fn is_done(&self, upto: u64, next: u64) -> bool {
        self.number < if self.is_data { upto } else { next }
    }
}

/// Adds a transaction to an append.
pub fn append(bytes: &mut Vec<u8>, part: &Part<'_>) {
    let number = part.number | if part.is_data { DATA } else { 0 };
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&(part.bytes.len() as u64).to_le_bytes());
    bytes.extend_from_slice(part.bytes);
}

/// The transactions of an append, in their order.
pub fn parts(append: &[u8]) -> Parts<'_> {
    Parts { rest: append }
}

/// See [`parts`].
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Parts<'a> {
    type Item = Result<Part<'a>, Undecodable>;

    fn next(&mut self) -> Option<Self::Item> {
        let (head, behind) = self.rest.split_first_chunk::<HEAD>()?;
        self.rest = &[];
        let (number, length) = head.split_at(HEAD / 2);
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let length = usize::try_from(word(length)).unwrap_or(usize::MAX);
        let Some((bytes, rest)) = behind.split_at_checked(length) else {
            return Some(Err(Undecodable::new("an intent is cut off")));
        };
        self.rest = rest;
        let number = word(number);
        Some(Ok(Part { number: number & !DATA, is_data: number & DATA != 0, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_is_read_and_what_is_cut_off_is_told() {
        let all = [
            Part { number: 7, is_data: false, bytes: b"one" },
            Part { number: 7, is_data: true, bytes: b"" },
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|part| append(&mut bytes, part));
        assert_eq!(parts(&bytes).collect::<Result<Vec<_>, _>>().unwrap(), all);
        assert!(parts(&bytes[..18]).next().unwrap().is_err());
        assert_eq!(parts(&bytes[..18]).count(), 1, "it ends there");
        let mut far = bytes.clone();
        far[8..16].fill(0xff);
        assert!(parts(&far).next().unwrap().is_err());
    }

    #[test]
    fn data_are_done_when_a_checkpoint_has_them() {
        let (names, data) = (|number| Part { number, is_data: false, bytes: b"" }, true);
        assert!(names(4).is_done(3, 5) && !names(5).is_done(3, 5));
        let data = |number| Part { is_data: data, ..names(number) };
        assert!(data(2).is_done(3, 5) && !data(4).is_done(3, 5));
    }
}

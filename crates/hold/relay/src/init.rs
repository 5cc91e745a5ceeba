//! INIT, as the daemon sees it.
//!
//! A message of the device is one message of the socket, and such a one lies in memory in one piece
//! in the kernel. So messages are kept to the size that FUSE had for its first fifteen years, which
//! is also what an ordinary user's socket takes (`net.core.wmem_max`); and what moves replies in
//! pieces, splice(2), is not offered.

use belay_wire::abi::InitFlags;
use belay_wire::{InitIn, InitOut};
use zerocopy::IntoBytes;

/// Bytes of a request's head, and of a reply's.
pub(crate) const HEAD: usize = 40;
pub(crate) const REPLY_HEAD: usize = 16;
/// The most that a READ or WRITE carries.
pub(crate) const MOST: u32 = 128 << 10;
/// The same in pages: more than the kernel's smallest if its pages are small ones.
const PAGES: u16 = 32;

/// What moves replies in pieces.
const SPLICES: InitFlags =
    InitFlags::SPLICE_WRITE.union(InitFlags::SPLICE_MOVE).union(InitFlags::SPLICE_READ);

/// Takes out of the kernel's INIT what the daemon is not to have, in place.
pub(crate) fn offer(message: &mut [u8]) {
    let Some(body) = message.get_mut(HEAD..) else { return };
    let Some(mut init) = InitIn::from_prefix(body) else { return };
    init.set_flags64(init.flags64().difference(SPLICES));
    for (to, from) in body.iter_mut().zip(init.as_bytes()) {
        *to = *from;
    }
}

/// Keeps what the daemon takes in its answer to the size of messages, in place.
pub(crate) fn limit(message: &mut [u8]) {
    let Some(body) = message.get_mut(REPLY_HEAD..) else { return };
    let Some(mut init) = InitOut::from_prefix(body) else { return };
    init.max_write = init.max_write.min(MOST);
    if init.flags64().contains(InitFlags::MAX_PAGES) {
        init.max_pages = init.max_pages.min(PAGES);
    }
    // A short form stays short.
    for (to, from) in body.iter_mut().zip(init.as_bytes()) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(head: usize, body: &[u8]) -> Vec<u8> {
        [&vec![7; head], body].concat()
    }

    #[test]
    fn splicing_is_not_offered() {
        let mut init = InitIn { major: 7, minor: 45, max_readahead: 1 << 20, ..InitIn::default() };
        let short = InitFlags::MAX_PAGES | InitFlags::INIT_EXT;
        let long = short | InitFlags::HAS_EXPIRE_ONLY;
        init.set_flags64(long | InitFlags::SPLICE_READ | InitFlags::SPLICE_WRITE);
        for length in [16, 64] {
            let mut message = message(HEAD, &init.as_bytes()[..length]);
            offer(&mut message);
            let seen = InitIn::from_prefix(&message[HEAD..]).unwrap();
            let kept = if length == 64 { long } else { short };
            assert_eq!((seen.flags64(), seen.minor, message.len()), (kept, 45, HEAD + length));
        }
        offer(&mut [0; 40]);
    }

    #[test]
    fn messages_are_kept_small() {
        let mut init = InitOut { major: 7, minor: 31, max_write: 1 << 20, ..InitOut::default() };
        init.max_pages = 256;
        init.set_flags64(InitFlags::MAX_PAGES);
        let mut long = message(REPLY_HEAD, init.as_bytes());
        limit(&mut long);
        let seen = InitOut::from_prefix(&long[REPLY_HEAD..]).unwrap();
        assert_eq!((seen.max_write, seen.max_pages, seen.minor), (MOST, PAGES, 31));
        let mut short = message(REPLY_HEAD, &init.as_bytes()[..24]);
        limit(&mut short);
        let seen = InitOut::from_prefix(&short[REPLY_HEAD..]).unwrap();
        assert_eq!((seen.max_write, short.len()), (MOST, REPLY_HEAD + 24));
        limit(&mut message(REPLY_HEAD, &[0; 4]));
    }
}

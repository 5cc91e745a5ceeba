//! Reading the buffers of a stopped thread.

use std::io::IoSliceMut;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

/// At most so much of a message is looked at: headers and names.
pub(crate) const ENOUGH: usize = 8192;
/// Buffers of one call that are looked at; libfuse uses up to four.
const BUFFERS: usize = 16;

/// Up to `len` bytes at an address; fewer where less can be read.
pub(crate) fn bytes(thread: Pid, address: u64, len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len.min(ENOUGH)];
    let base = usize::try_from(address).unwrap_or(0);
    let remote = [RemoteIoVec { base, len: buffer.len() }];
    let got = process_vm_readv(thread, &mut [IoSliceMut::new(&mut buffer)], &remote).unwrap_or(0);
    buffer.truncate(got);
    buffer
}

/// The first `len` bytes of the buffers that an array of `struct iovec` names.
pub(crate) fn gathered(thread: Pid, vector: u64, count: u64, len: usize) -> Vec<u8> {
    let count = usize::try_from(count).unwrap_or(0).min(BUFFERS);
    let words = bytes(thread, vector, count * 16);
    let word = |half: &[u8]| u64::from_ne_bytes(half.try_into().unwrap_or_default());
    let mut out = Vec::new();
    for pair in words.chunks_exact(16) {
        let (base, size) = pair.split_at(8);
        let left = len.min(ENOUGH).saturating_sub(out.len());
        if left == 0 {
            break;
        }
        let size = usize::try_from(word(size)).unwrap_or(0);
        out.extend(bytes(thread, word(base), size.min(left)));
    }
    out
}

/// A 64-bit word.
pub(crate) fn word(thread: Pid, address: u64) -> u64 {
    bytes(thread, address, 8).try_into().map_or(0, u64::from_ne_bytes)
}

//! FUSE_INIT, which the kernel sends once per mount and every generation must see.

use belay_wire::abi::InitFlags;
use belay_wire::{InitIn, InitOut, Reply, Request};
use zerocopy::IntoBytes;

/// Features that no daemon may negotiate: their state lives in the kernel and outlives a
/// generation in ways that cannot be taken over (kernel-facts: io_uring queues are not resent,
/// passthrough backing ids belong to the connection).
pub const WITHHELD: InitFlags = InitFlags::OVER_IO_URING.union(InitFlags::PASSTHROUGH);

/// Takes the withheld features out of a kernel's INIT request, in place.
pub fn withhold(message: &mut [u8]) {
    let Ok(request) = Request::parse(message) else { return };
    let Some(mut init) = request.body_as::<InitIn>() else { return };
    // Whether the high half counts or not.
    init.flags &= !(WITHHELD.bits() as u32);
    init.flags2 &= !((WITHHELD.bits() >> 32) as u32);
    let bytes = init.as_bytes();
    if let Some(body) = message.get_mut(40..40 + bytes.len()) {
        body.copy_from_slice(bytes);
    }
}

/// Whether the kernel that sent this INIT has RESEND (Linux 6.9, fs/fuse/inode.c).
pub fn kernel_has_resend(message: &[u8]) -> bool {
    Request::parse(message)
        .ok()
        .and_then(|request| request.body_as::<InitIn>())
        .is_some_and(|init| u64::from(init.flags2) & (InitFlags::HAS_RESEND.bits() >> 32) != 0)
}

/// The parts of INIT's reply that the kernel goes by. Short replies of old minors count as zeros.
fn read_init(reply: &[u8]) -> Option<InitOut> {
    let reply = Reply::parse(reply).ok()?;
    if reply.header.error != 0 {
        return None;
    }
    let mut bytes = [0; size_of::<InitOut>()];
    let n = reply.body.len().min(bytes.len());
    bytes.get_mut(..n)?.copy_from_slice(reply.body.get(..n)?);
    zerocopy::FromBytes::read_from_bytes(&bytes).ok()
}

/// The largest write that a reply to INIT promises to take, in bytes.
pub fn max_write(reply: &[u8]) -> Option<u32> {
    read_init(reply).map(|out| out.max_write.max(4096))
}

/// How a successor's reply to INIT differs from the first daemon's; empty if it does not.
pub fn differences(first: &[u8], second: &[u8]) -> Vec<String> {
    let (Some(first), Some(second)) = (read_init(first), read_init(second)) else {
        return vec!["INIT was refused".into()];
    };
    let mut out = Vec::new();
    let mut compare = |what: &str, a: u64, b: u64| {
        if a != b {
            out.push(format!("{what} was {a:#x}, is {b:#x}"));
        }
    };
    compare("flags", first.flags.into(), second.flags.into());
    compare("flags2", first.flags2.into(), second.flags2.into());
    compare("minor", first.minor.into(), second.minor.into());
    compare("max_write", first.max_write.into(), second.max_write.into());
    compare("max_readahead", first.max_readahead.into(), second.max_readahead.into());
    out
}

//! What is on a disk that is to become a store of a volume, and what the processes of a volume have
//! left of what they said of themselves, as they read it.
#![no_main]

use belay::signature::of_blocks;
use belay_stack::report::{CacheReport, StoreReport};
use belay_supervisor::contents::START;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = serde_json::from_slice::<StoreReport>(data);
    let _ = serde_json::from_slice::<CacheReport>(data);
    let Some((&[length, low, high], bytes)) = data.split_first_chunk() else { return };
    // Disks of any length, with what is there anywhere.
    let mut start = vec![0; (usize::from(length) << 12).min(START)];
    let at = usize::from(u16::from_le_bytes([low, high])) << 1;
    for (byte, there) in bytes.iter().zip(start.iter_mut().skip(at)) {
        *there = *byte;
    }
    let _ = of_blocks(&start, bytes);
    // Whatever else is there, a store of a volume is never taken for nothing.
    if let Some(root) = start.get_mut(4096..4104) {
        root.copy_from_slice(&belay_store::layout::MAGIC);
        assert_eq!(of_blocks(&start, bytes).as_deref(), Some("a store of a belay volume"));
    }
});

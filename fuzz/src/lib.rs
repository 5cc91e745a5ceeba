//! What the fuzz targets share: how bytes become writes to a memory.

/// Reads `data` as writes of words: four bytes say where, eight say what.
pub fn scribbles(data: &[u8]) -> impl Iterator<Item = (usize, u64)> + '_ {
    data.chunks_exact(12).map(|chunk| {
        let at = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        let mut word = [0; 8];
        word.copy_from_slice(&chunk[4..]);
        (at as usize, u64::from_le_bytes(word))
    })
}

//! Reading and writing blocks of the disk, with errors that say which.

use crate::error::{Error, Result};
use belay_disk::{BLOCK, Block, Disk, ZEROS};

/// Reads one block.
///
/// # Errors
/// Those of the disk.
pub fn read(disk: &impl Disk, block: u64) -> Result<Block> {
    let mut content = ZEROS;
    disk.read(block, &mut content).map_err(|why| Error::Disk { what: "read", block, why })?;
    Ok(content)
}

/// Writes whole blocks, from `block` on.
///
/// # Errors
/// Those of the disk.
pub fn write(disk: &impl Disk, block: u64, content: &[u8]) -> Result<()> {
    disk.write(block, content).map_err(|why| Error::Disk { what: "write", block, why })
}

/// Writes blocks in the order of their places, which ascends, neighbours at once.
///
/// # Errors
/// Those of the disk, and of what gives the blocks.
pub fn write_in_order<'b>(
    disk: &impl Disk,
    writes: impl IntoIterator<Item = Result<(u64, &'b Block)>>,
) -> Result<()> {
    /// Blocks written at once.
    const MOST: usize = 64;
    let mut together: Vec<u8> = Vec::new();
    let mut first = 0;
    let put = |first: u64, bytes: &[u8]| match bytes.is_empty() {
        true => Ok(()),
        false => write(disk, first, bytes),
    };
    for one in writes {
        let (block, content) = one?;
        let next = first + (together.len() / BLOCK) as u64;
        if block != next || together.len() >= MOST * BLOCK {
            put(first, &together)?;
            together.clear();
            first = block;
        }
        together.extend_from_slice(content);
    }
    put(first, &together)
}

/// Makes durable what was written.
///
/// # Errors
/// Those of the disk.
pub fn flush(disk: &impl Disk) -> Result<()> {
    disk.flush().map_err(|why| Error::Disk { what: "flush", block: 0, why })
}

//! Reading and writing blocks of the disk, with errors that say which.

use crate::error::{Error, Result};
use belay_disk::{Block, Disk, ZEROS};

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

/// Makes durable what was written.
///
/// # Errors
/// Those of the disk.
pub fn flush(disk: &impl Disk) -> Result<()> {
    disk.flush().map_err(|why| Error::Disk { what: "flush", block: 0, why })
}

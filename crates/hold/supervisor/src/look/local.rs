//! Whether anybody but this machine's kernel knows of a file.

use super::found::FileStat;
use crate::mounts::table::{Mount, table};
use rustix::fd::AsFd;
use std::path::Path;

/// Whether what is known of an open file is all that there is to know, as no server has it.
pub fn is_local(file: &impl AsFd) -> bool {
    let Ok(stat) = FileStat::known(file) else { return false };
    let number = format!("{}:{}", rustix::fs::major(stat.device), rustix::fs::minor(stat.device));
    table()
        .is_ok_and(|table| !table.iter().any(|mount| mount.device == number && mount.is_served()))
}

/// Whether what somebody else serves is mounted at `path`.
pub(super) fn is_place_of_served(path: &Path) -> bool {
    let here = |mount: &Mount| mount.mountpoint == path.as_os_str().as_encoded_bytes();
    table().map_or(true, |table| table.iter().any(|mount| mount.is_served() && here(mount)))
}

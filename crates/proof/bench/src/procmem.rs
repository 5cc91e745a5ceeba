//! What processes use, from `/proc`: memory, memfd files, counted system calls.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::machine::field;
use crate::model::ProcessMemory;

/// Memory of the process `pid`, from `/proc/PID/smaps_rollup`.
pub fn memory(pid: u32) -> Result<ProcessMemory> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    parse_rollup(&text).with_context(|| format!("{path} lacks a field"))
}

/// Parses the text of a `smaps_rollup` file.
fn parse_rollup(text: &str) -> Option<ProcessMemory> {
    let bytes = |key: &str| -> Option<u64> {
        let value = field(text, key, ':')?;
        Some(value.strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some(ProcessMemory {
        rss: bytes("Rss")?,
        pss: bytes("Pss")?,
        pss_shmem: bytes("Pss_Shmem")?,
        private: bytes("Private_Clean")? + bytes("Private_Dirty")?,
    })
}

/// Bytes in the distinct memfd files that any of the processes has open or mapped.
///
/// A file that nobody maps is in no process's resident set and takes memory all the same.
pub fn memfd_bytes(pids: &[u32]) -> Result<u64> {
    let mut files = HashMap::new();
    for pid in pids {
        for kind in ["fd", "map_files"] {
            let dir = format!("/proc/{pid}/{kind}");
            let entries = match fs::read_dir(&dir) {
                Ok(entries) => entries,
                // Needs a capability that root in a container may lack; open files are seen anyway.
                Err(_) if kind == "map_files" => continue,
                Err(error) => return Err(error).with_context(|| format!("list {dir}")),
            };
            // Entries come and go while the process works.
            for entry in entries.flatten() {
                if let Some((id, bytes)) = memfd(&entry.path()) {
                    files.insert(id, bytes);
                }
            }
        }
    }
    Ok(files.values().sum())
}

/// `f_type` of a tmpfs (linux/magic.h).
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// Identity and size of a memory file of belay's kind behind a `/proc` link. Other files are not
/// touched: their file system may be the one under measurement.
fn memfd(link: &Path) -> Option<((u64, u64), u64)> {
    let target = fs::read_link(link).ok()?;
    let target = target.to_str()?;
    // The large ones lie in a tmpfs of belay's own, without a name.
    let unnamed = target.starts_with("/#") && target.ends_with(" (deleted)");
    let in_memory = || rustix::fs::statfs(link).is_ok_and(|fs| fs.f_type == TMPFS);
    if !(target.starts_with("/memfd:") || unnamed && in_memory()) {
        return None;
    }
    let meta = fs::metadata(link).ok()?;
    Some(((meta.dev(), meta.ino()), meta.blocks() * 512))
}

/// How many calls of the `read` and `write` families the process has made; `None` where the kernel
/// does not count.
pub fn io_calls(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let count = |key| field(&text, key, ':')?.parse::<u64>().ok();
    Some(count("syscr")? + count("syscw")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;

    #[test]
    fn rollup_is_parsed_in_bytes() {
        let text = "55d0-7ffd ---p 00000000 00:00 0 [rollup]\nRss:  1404 kB\nPss:  224 kB\nPss_Dirty: 120 kB\n\
                    Pss_Anon: 96 kB\nPss_File: 104 kB\nPss_Shmem: 24 kB\nPrivate_Clean: 80 kB\nPrivate_Dirty: 96 kB\n";
        let expected = ProcessMemory {
            rss: 1404 << 10,
            pss: 224 << 10,
            pss_shmem: 24 << 10,
            private: 176 << 10,
        };
        assert_eq!(parse_rollup(text), Some(expected));
        assert_eq!(parse_rollup("Rss: 3 kB"), None);
    }

    #[test]
    fn own_memory_and_memfd_are_seen_once() -> Result<()> {
        let own = std::process::id();
        assert!(memory(own)?.rss > 0);
        let before = memfd_bytes(&[own])?;
        let file = rustix::fs::memfd_create("belay-bench-test", MemfdFlags::CLOEXEC)?;
        rustix::io::pwrite(&file, &[1; 10_000], 0)?;
        let second = rustix::io::dup(&file)?;
        assert_eq!(memfd_bytes(&[own, own])? - before, 12_288);
        drop(second);
        Ok(())
    }
}

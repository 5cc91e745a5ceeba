//! Which file a daemon's program is, and whether a process runs with belay's library in it.

use crate::look::found::FileStat;
use crate::process::{OURS, of_memory};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fstat, open};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// What a program file is known by: another file, or another content, has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    /// When its content was last changed: seconds, and nanoseconds.
    modified: (i64, u64),
}

impl Identity {
    /// Of an open file, as far as the kernel knows it: no server is asked.
    pub fn of(file: &impl AsFd) -> Option<Self> {
        FileStat::known(file).ok().map(Self::from)
    }
}

impl From<FileStat> for Identity {
    fn from(stat: FileStat) -> Self {
        let FileStat { device, inode, size, modified: (seconds, nanoseconds), .. } = stat;
        Self { device, inode, size, modified: (seconds, nanoseconds.into()) }
    }
}

/// When something was last done to a file (it was written, put into its place, given other rights):
/// milliseconds since 1970.
pub fn changed_ms(stat: &FileStat) -> Option<u64> {
    u64::try_from(stat.changed.0.checked_mul(1000)?).ok()
}

/// Pins a file: it can be run, also when it has no name any more.
///
/// # Errors
/// Those of open(2).
pub fn pin(path: &Path) -> rustix::io::Result<OwnedFd> {
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Why process `pid` runs without the memory file `shim` in it, and always will; `None` if it does
/// not, or may load it yet.
///
/// The loader maps what is to be preloaded before any other library. So a process that has another
/// one and not this will never have it, nor will one that has no loader. How long it takes plays no
/// part in that.
pub fn unheld(pid: u32, shim: &impl AsFd) -> Option<&'static str> {
    // Libraries that watch the loader come before all others.
    if std::env::var_os("LD_AUDIT").is_some() {
        return None;
    }
    // In this order: what is mapped after the first look may be seen in the second.
    // The kernel fills the former last, when all that it maps itself is mapped.
    let [auxv, maps] = of_memory(pid, ["auxv", "maps"]).ok()?;
    if auxv.len() <= 32 {
        return None;
    }
    let maps = String::from_utf8_lossy(&maps).into_owned();
    let shim = fstat(shim).ok()?.st_ino.to_string();
    // By its name: whoever serves the file is not to be asked.
    let program = OURS.at(pid, move || fs::read_link(format!("/proc/{pid}/exe"))).ok()?.ok()?;
    let program = program.to_string_lossy();
    let program = maps.lines().find(|line| line.ends_with(&*program))?;
    let program = program.split_ascii_whitespace().nth(4)?.to_owned();
    judge(&auxv, &maps, &shim, &program)
}

/// What `auxv` and `maps` of a process say, whose program has this inode number, and the shim that.
fn judge(auxv: &[u8], maps: &str, shim: &str, program: &str) -> Option<&'static str> {
    const AT_BASE: u64 = 7;
    let mut has_code = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
        let (Some(inode), Some(file)) = (words.nth(2), words.next()) else { continue };
        if inode == shim && file.starts_with("/memfd:") {
            return None;
        }
        if rights.contains('x') && inode != "0" && inode != program {
            has_code.push((range, inode));
        }
    }
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
    let mut entries = auxv.chunks_exact(16).map(|entry| entry.split_at(8));
    let base = entries.find(|(key, _)| word(key) == AT_BASE).map_or(0, |(_, base)| word(base));
    if base == 0 {
        // One of 32 bits has other entries, in which nothing is found.
        return (!maps.is_empty()).then_some("it is linked statically, or is no 64-bit program");
    }
    // The loader is one file, wherever its parts are.
    let starts = |line: &&str| {
        let start = line.split('-').next().unwrap_or_default();
        u64::from_str_radix(start, 16).is_ok_and(|start| start == base)
    };
    let loader = maps.lines().find(starts)?.split_ascii_whitespace().nth(4)?;
    let other = has_code.iter().any(|(_, inode)| *inode != loader);
    other.then_some("the system's loader has left it out")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auxv(base: u64) -> Vec<u8> {
        [6_u64, 4096, 7, base, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    const START: &str = "\
        5500000000-5500001000 r-xp 00000000 08:01 10                       /usr/bin/daemon\n\
        7f0000100000-7f0000101000 r--p 00000000 08:01 20                   /lib/ld.so\n\
        7f0000101000-7f0000102000 r-xp 00001000 08:01 20                   /lib/ld.so\n\
        7fff00000000-7fff00001000 r-xp 00000000 00:00 0                    [vdso]\n";
    const LIBC: &str = "7f0000000000-7f0000001000 r-xp 00000000 08:01 30 /lib/libc.so.6\n";
    const SHIM: &str = "7f0000080000-7f0000081000 r--p 00000000 00:01 40 /memfd:x.so (deleted)\n";

    #[test]
    fn it_is_known_by_what_comes_first() {
        let judge = |maps: String, base| judge(&auxv(base), &maps, "40", "10");
        let base = 0x7f00_0010_0000;
        assert_eq!(judge(START.into(), base), None, "it may come yet");
        assert_eq!(judge(format!("{SHIM}{START}"), base), None);
        assert_eq!(judge(format!("{LIBC}{SHIM}{START}"), base), None);
        assert!(judge(format!("{LIBC}{START}"), base).is_some());
        assert!(judge(START.into(), 0).is_some(), "no loader");
        assert_eq!(judge(String::new(), 0), None, "nothing is known");
    }

    #[test]
    fn this_process_has_no_shim_and_another_may_have() {
        let memory = rustix::fs::memfd_create("x.so", rustix::fs::MemfdFlags::CLOEXEC);
        let memory = memory.expect("memfd");
        assert!(unheld(std::process::id(), &memory).is_some());
        rustix::fs::ftruncate(&memory, 4096).expect("size");
        let mapped = belay_sys::Mapping::new(memory.as_fd(), 4096).expect("map");
        assert_eq!(unheld(std::process::id(), &memory), None);
        drop(mapped);
        assert_eq!(unheld(0, &memory), None);
    }

    #[test]
    fn another_content_is_another_program() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&path, "1").expect("write");
        let at = |path: &Path| Identity::of(&pin(path).ok()?);
        let held = pin(&path).expect("open");
        let first = Identity::of(&held);
        assert!(first.is_some() && first == at(&path));
        fs::write(&other, "2").expect("write");
        fs::rename(&other, &path).expect("rename");
        assert_ne!(at(&path), first);
        assert_eq!(Identity::of(&held), first, "what is held stays");
        fs::remove_file(&path).expect("remove");
        assert_eq!(at(&path), None);
    }
}

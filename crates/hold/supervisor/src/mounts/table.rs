//! The mount table: what is mounted where, by the kernel's own words. Nobody else is asked.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mount {
    /// The kernel's number of the mount, which may come again once it is gone.
    pub id: u32,
    /// The number of the mount that it is on.
    pub parent: u32,
    /// `major:minor` of the file system.
    pub device: String,
    /// What of the file system is mounted: `/`, or the directory of a bind mount.
    pub root: Vec<u8>,
    /// Where it is mounted.
    pub mountpoint: Vec<u8>,
    /// Its type, such as `fuse.sshfs`.
    pub kind: String,
}

impl Mount {
    /// Whether it is a FUSE file system.
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse"
            || self.kind == "fuseblk"
            || self.kind.starts_with("fuse.")
            || self.kind.starts_with("fuseblk.")
    }

    /// Whether somebody else has what is on it: a program or another machine, which may not answer.
    pub fn is_served(&self) -> bool {
        const KINDS: [&str; 14] = [
            "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "afs", "coda", "lustre", "ocfs2",
            "gfs2", "virtiofs", "autofs",
        ];
        self.is_fuse() || KINDS.contains(&self.kind.as_str())
    }

    /// Whether `other`, of another table or another time, is the same thing at the same place.
    pub fn is_same(&self, other: &Self) -> bool {
        self.device == other.device
            && self.root == other.root
            && self.mountpoint == other.mountpoint
    }
}

/// What is mounted on all of `mount`.
pub(super) fn upper<'t>(table: &'t [Mount], mount: &Mount) -> Option<&'t Mount> {
    table.iter().find(|other| {
        other.parent == mount.id && other.id != mount.id && other.mountpoint == mount.mountpoint
    })
}

/// The mount table of this process.
///
/// # Errors
/// Those of reading it. That nothing is found in it says something only if it was read.
pub fn table() -> io::Result<Vec<Mount>> {
    Ok(parse_table(&fs::read("/proc/self/mountinfo")?))
}

/// Parses a mountinfo file; lines that are not understood are left out.
pub fn parse_table(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = words.iter().position(|word| *word == b"-")?;
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse().ok();
    Some(Mount {
        id: number(words.first()?)?,
        parent: number(words.get(1)?)?,
        device: text(words.get(2)?),
        root: unescape(words.get(3)?),
        mountpoint: unescape(words.get(4)?),
        kind: text(words.get(dash + 1)?),
    })
}

// The kernel writes blank, tab, newline and backslash as three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        rest = tail;
        let octal = tail.get(..3).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match (first, octal) {
            (b'\\', Some(digits)) => {
                let value = digits.iter().fold(0_u32, |sum, d| sum * 8 + u32::from(d - b'0'));
                out.push(value as u8);
                rest = tail.get(3..).unwrap_or_default();
            }
            _ => out.push(*first),
        }
    }
    out
}

/// What is mounted at exactly `path`, uppermost; nothing if that cannot be told, so this is for messages and for looks that come
/// again.
pub fn at(path: &Path) -> Option<Mount> {
    table().ok()?.into_iter().rev().find(|mount| mount.mountpoint == path.as_os_str().as_bytes())
}

/// The FUSE file systems in the mount table, by `major:minor`.
///
/// # Errors
/// Those of [`table`].
pub fn fuse_devices() -> io::Result<Vec<String>> {
    let table = table()?.into_iter().filter(Mount::is_fuse);
    let devices: std::collections::BTreeSet<String> = table.map(|mount| mount.device).collect();
    Ok(devices.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_tables_are_parsed() {
        let text = b"42 27 0:39 / /tmp/a\\040b rw,relatime - fuse.x x rw,user_id=0\n\
            27 1 254:0 / / rw shared:1 master:2 - ext4 /dev/vda rw\n\
            nonsense\n\n43 27 0:40 / /z\\\\ rw -\n";
        let table = parse_table(text);
        assert_eq!(table.len(), 2);
        assert_eq!(table[0].mountpoint, b"/tmp/a b");
        assert_eq!(table[0].device, "0:39");
        assert_eq!((table[0].id, table[0].parent, table[0].root.as_slice()), (42, 27, &b"/"[..]));
        assert!(table[0].is_fuse());
        assert!(!table[1].is_fuse());
        assert_eq!(unescape(b"a\\1"), b"a\\1");
        assert_eq!(unescape(b"\\777"), [0xff]);
    }
}

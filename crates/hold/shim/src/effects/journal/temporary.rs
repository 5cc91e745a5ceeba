//! Temporary files whose names are drawn at random (mkstemp(3) and its kin), in a directory for
//! such files. A daemon makes them for itself: nobody looks for them in a later life, so what is in
//! them dies with it, as if they had no names. Also where it only draws the name so, and makes the
//! file by another call.
//!
//! Of the names a digest is kept, in a table with a bound: one that is overwritten there is taken
//! for the name of a store, of which nothing is said.

use crate::argument::Text;
use belay_effects::log::digest;
use libc::c_int;
use std::ffi::{CStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const NAMES: usize = 4096;

/// Digests of names, each where it says; 0 for none.
static DRAWN: [AtomicU64; NAMES] = [const { AtomicU64::new(0) }; NAMES];
/// Whether there are any.
static ANY: AtomicBool = AtomicBool::new(false);

/// The part of a path that may be drawn: up to the first name below a directory for temporary
/// files.
fn drawn_part(path: &[u8]) -> Option<&[u8]> {
    static OWN: OnceLock<Option<OsString>> = OnceLock::new();
    let own = OWN.get_or_init(|| std::env::var_os("TMPDIR")).as_ref();
    let own = own.map(|dir| dir.as_bytes()).filter(|dir| dir.len() > 1 && dir.starts_with(b"/"));
    [Some(&b"/tmp"[..]), Some(b"/var/tmp"), own].into_iter().flatten().find_map(|dir| {
        let dir = dir.strip_suffix(b"/").unwrap_or(dir);
        let name = path.strip_prefix(dir)?.strip_prefix(b"/")?;
        let end = name.iter().position(|byte| *byte == b'/').unwrap_or(name.len());
        path.get(..path.len() - name.len() + end).filter(|_| end > 0)
    })
}

fn entry(part: &[u8]) -> (Option<&'static AtomicU64>, u64) {
    let digest = digest(1, part) | 1;
    (DRAWN.get((digest >> 1) as usize % NAMES), digest)
}

fn is_path(path: &[u8]) -> bool {
    drawn_part(path).is_some_and(|part| {
        let (entry, digest) = entry(part);
        entry.is_some_and(|entry| entry.load(Relaxed) == digest)
    })
}

/// The daemon has drawn a name. Gives whether it is one of those.
pub(crate) fn drawn(path: &CStr) -> bool {
    let path = path.to_bytes();
    if drawn_part(path) != Some(path) {
        return false;
    }
    if let (Some(entry), digest) = entry(path) {
        entry.store(digest, Relaxed);
        ANY.store(true, Relaxed);
    }
    true
}

/// Whether a name is one of those, or below a directory that has one.
#[inline]
pub(super) fn is_name(path: Text<'_>) -> bool {
    ANY.load(Relaxed) && is_path(path.bytes())
}

/// The same of a file that is open.
#[inline]
pub(super) fn is_open(fd: c_int) -> bool {
    ANY.load(Relaxed) && name_of(fd).is_some_and(|name| is_path(&name))
}

#[cold]
fn name_of(fd: c_int) -> Option<Vec<u8>> {
    std::fs::read_link(format!("/proc/self/fd/{fd}"))
        .ok()
        .map(|path| path.into_os_string().into_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_drawn_is_known_with_what_is_below() {
        assert!(!is_path(b"/tmp/a_1x2y3z"));
        assert!(drawn(c"/tmp/a_1x2y3z") && drawn(c"/var/tmp/dir_77"));
        for path in ["/tmp/a_1x2y3z", "/var/tmp/dir_77", "/var/tmp/dir_77/one/two"] {
            assert!(is_path(path.as_bytes()), "{path}");
        }
        for path in
            ["/tmp/a_1x2y3", "/tmp", "/tmp/", "/tmp/other/a_1x2y3z", "a_1x2y3z", "/tmp/dir_77", ""]
        {
            assert!(!is_path(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn a_store_is_not_temporary_by_its_place() {
        assert!(
            !drawn(c"/tmp/store/part_1x2y3z") && !drawn(c"/srv/part_1x2y3z") && !drawn(c"part")
        );
        assert!(!is_path(b"/tmp/store/part_1x2y3z"));
    }
}

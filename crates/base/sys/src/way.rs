//! Paths that lead to a mount nobody may look at: whoever serves it would have to answer.

use rustix::fs::readlink;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::CString;

/// As many links as the kernel follows (MAXSYMLINKS).
const MOST_LINKS: u32 = 40;

/// The part of `path` behind the mountpoint; `None` if it is not at or below it.
pub fn below<'a>(mountpoint: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(mountpoint)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// Follows `path`, link by link, and stops to look where it enters `mountpoint`, which is absolute
/// and free of links. What is behind that is text. `start` gives the path of the directory that
/// relative paths begin at. `follow`: whether the last part is followed.
///
/// `None` for what cannot be followed: the call itself tells why.
pub fn follow_up_to(
    mountpoint: &[u8],
    path: &[u8],
    follow: bool,
    start: impl FnOnce() -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    if path.is_empty() {
        return None;
    }
    // As the kernel has it: what ends so is a folder, whatever the call says of links.
    let follow = follow || path.ends_with(b"/") || path.ends_with(b"/.");
    let mut at = if path.starts_with(b"/") { Vec::new() } else { directory(start()?)? };
    let mut names: VecDeque<Vec<u8>> = split(path).collect();
    let mut links = 0;
    let mut inside = below(mountpoint, &at).is_some();
    while let Some(name) = names.pop_front() {
        if name == b".." {
            let cut = at.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            at.truncate(cut);
            inside &= at.len() >= mountpoint.len();
            continue;
        }
        let before = at.len();
        at.push(b'/');
        at.extend_from_slice(&name);
        inside |= at == mountpoint;
        // What the mountpoint is in is no link either, and need not be asked.
        if inside || below(&at, mountpoint).is_some() || (names.is_empty() && !follow) {
            continue;
        }
        let link = CString::new(at.as_slice()).ok()?;
        match readlink(&link, Vec::new()) {
            Ok(target) => {
                links += 1;
                if links > MOST_LINKS {
                    return None;
                }
                let target = target.to_bytes();
                at.truncate(if target.starts_with(b"/") { 0 } else { before });
                for name in split(target).collect::<Vec<_>>().into_iter().rev() {
                    names.push_front(name);
                }
            }
            Err(Errno::INVAL | Errno::NOENT) => {}
            Err(_) => return None,
        }
    }
    Some(at)
}

/// The path of a directory, as it is built on: the root is empty. `None` if it is not absolute.
fn directory(path: Vec<u8>) -> Option<Vec<u8>> {
    match path.as_slice() {
        b"/" => Some(Vec::new()),
        [b'/', ..] => Some(path),
        _ => None,
    }
}

fn split(path: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let names = path.split(|byte| *byte == b'/');
    names.filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_a_mountpoint_is_told_from_its_neighbours() {
        for (path, rest) in
            [("/elsewhere", None), ("/mntx", None), ("/mnt", Some("")), ("/mnt/x", Some("/x"))]
        {
            assert_eq!(below(b"/mnt", path.as_bytes()), rest.map(str::as_bytes), "{path}");
        }
    }
}

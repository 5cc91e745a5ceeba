//! What fusermount is asked to do, by its command line.

use libc::c_char;
use std::ffi::CStr;

/// Whether that is fusermount3, fusermount, mergerfs-fusermount.
///
/// # Safety
/// `path` is a C string or null.
pub(super) unsafe fn is_fusermount(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: a C string by the caller's contract.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    name.windows(10).any(|part| part == b"fusermount")
}

/// Mountpoint and options in fusermount's command line; `None` if it is to do something else.
pub(super) fn parse<'a>(words: &[&'a CStr]) -> Option<(&'a CStr, &'a [u8])> {
    let mut options: &[u8] = b"";
    let mut mountpoint = None;
    let mut rest = words.iter().skip(1);
    while let Some(word) = rest.next() {
        match word.to_bytes() {
            b"-o" => options = rest.next()?.to_bytes(),
            b"--" => mountpoint = rest.next(),
            b"--unmount" | b"--version" | b"--help" => return None,
            [b'-', b'-', ..] => {}
            [b'-', letters @ ..] if letters.iter().any(|l| b"uVh".contains(l)) => return None,
            [b'-', ..] => {}
            _ => mountpoint = Some(word),
        }
    }
    Some((mountpoint?, options))
}

/// The mountpoint in a command line of fusermount that unmounts.
pub(super) fn parse_unmount<'a>(words: &[&'a CStr]) -> Option<&'a CStr> {
    let is_wish = |word: &[u8]| match word {
        b"--unmount" => true,
        [b'-', b'-', ..] => false,
        [b'-', letters @ ..] => letters.contains(&b'u'),
        _ => false,
    };
    let mut wished = false;
    let mut mountpoint = None;
    let mut rest = words.iter().skip(1);
    while let Some(word) = rest.next() {
        match word.to_bytes() {
            b"--" => mountpoint = rest.next(),
            b"-o" => return None,
            [b'-', ..] => wished |= is_wish(word.to_bytes()),
            _ => mountpoint = Some(word),
        }
    }
    mountpoint.filter(|_| wished).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_to_mount_are_recognised() {
        let mount = [c"fusermount3", c"-o", c"rw,-u", c"--", c"/mnt"];
        assert_eq!(parse(&mount), Some((c"/mnt", &b"rw,-u"[..])));
        assert_eq!(parse(&[c"fusermount", c"/mnt"]), Some((c"/mnt", &b""[..])));
        for words in [
            &[c"fusermount3", c"-u", c"-q", c"-z", c"--", c"/mnt"][..],
            &[c"fusermount3", c"--unmount", c"--quiet", c"--lazy", c"--", c"/mnt"],
            &[c"fusermount3", c"-uz", c"/mnt"],
            &[c"fusermount3", c"-V"],
            &[c"fusermount3", c"-o"],
            &[c"fusermount3"],
            &[],
        ] {
            assert_eq!(parse(words), None, "{words:?}");
        }
    }

    #[test]
    fn requests_to_unmount_are_recognised() {
        for words in [
            &[c"fusermount3", c"-u", c"-q", c"-z", c"--", c"/mnt"][..],
            &[c"fusermount3", c"--unmount", c"--quiet", c"--lazy", c"--", c"/mnt"],
            &[c"fusermount", c"-uz", c"/mnt"],
            &[c"fusermount", c"/mnt", c"-u"],
        ] {
            assert_eq!(parse_unmount(words), Some(c"/mnt"), "{words:?}");
        }
        for words in [
            &[c"fusermount3", c"-o", c"rw,-u", c"--", c"/mnt"][..],
            &[c"fusermount", c"/mnt"],
            &[c"fusermount3", c"-u"],
            &[],
        ] {
            assert_eq!(parse_unmount(words), None, "{words:?}");
        }
    }
}

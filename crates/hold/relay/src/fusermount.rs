//! The held mount of an ordinary user, in the first life: fusermount3 makes it.
//!
//! The daemon has started a fusermount3 of its own, which cannot mount: whose calls are looked at
//! gains no rights by a program that is set-uid root. So the relay, whose calls nobody looks at,
//! starts another one, with the options that the first has asked the kernel for. That one checks
//! what it always does.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::ffi::{OsStr, OsString, c_ulong};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Command;

/// What it is called.
const NAMES: [&str; 2] = ["fusermount3", "fusermount"];
/// Options that it sets itself, and takes from nobody.
const ITS_OWN: [&[u8]; 4] = [b"fd=", b"rootmode=", b"user_id=", b"group_id="];
/// Options that the kernel has as flags; `nosuid` and `nodev` are set for all users.
const FLAGS: [(c_ulong, &[u8]); 6] = [
    (libc::MS_RDONLY, b"ro"),
    (libc::MS_NOEXEC, b"noexec"),
    (libc::MS_SYNCHRONOUS, b"sync"),
    (libc::MS_DIRSYNC, b"dirsync"),
    (libc::MS_NOATIME, b"noatime"),
    (libc::MS_NODIRATIME, b"nodiratime"),
];

/// Mounts. The device that comes back is the one of the mount: fusermount3 opens it, and a device
/// that somebody else has opened serves nothing. The shim holds it from the instant in which
/// fusermount3 has sent it (`mailbox.rs`).
///
/// # Errors
/// `EPERM` if fusermount3 refuses; it has said why. Those of starting it.
pub(crate) fn mount(
    place: &Path,
    (source, kind): (&[u8], &[u8]),
    flags: c_ulong,
    data: &[u8],
) -> io::Result<OwnedFd> {
    let flag = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flag, None)?;
    let options = OsString::from_vec(options(source, kind, flags, data));
    let start = |name: &str| {
        Command::new(name)
            .args([OsStr::new("-o"), &options, OsStr::new("--"), place.as_os_str()])
            .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
            .spawn()
    };
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let [first, second] = NAMES;
    let mut child = match start(first) {
        Err(error) if missing(&error) => start(second)?,
        started => started?,
    };
    // The shim has waited for it: what there is to be received has come.
    let device = belay_sys::receive(ours.as_fd());
    // Who follows the daemon's end may have reaped it.
    let failed = child.wait().is_ok_and(|status| !status.success());
    match device {
        Ok(Some(device)) if !failed => Ok(device),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EPERM)),
    }
}

/// The words behind `-o`.
fn options(source: &[u8], kind: &[u8], flags: c_ulong, data: &[u8]) -> Vec<u8> {
    let own = |word: &&[u8]| !word.is_empty() && !ITS_OWN.iter().any(|own| word.starts_with(own));
    let mut words: Vec<Vec<u8>> =
        data.split(|byte| *byte == b',').filter(own).map(<[u8]>::to_vec).collect();
    words.extend(FLAGS.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, word)| word.to_vec()));
    if !source.is_empty() {
        words.push([b"fsname=", &*escaped(source)].concat());
    }
    if let Some(name) = kind.strip_prefix(b"fuse.") {
        words.push([b"subtype=", &*escaped(name)].concat());
    }
    words.join(&b","[..])
}

/// As fusermount3 has it.
fn escaped(word: &[u8]) -> Vec<u8> {
    let special = |byte: &u8| matches!(byte, b',' | b'\\');
    word.iter().flat_map(|byte| special(byte).then_some(b'\\').into_iter().chain([*byte])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_that_the_kernel_was_to_get() {
        let data = b"fd=3,rootmode=40000,user_id=1000,group_id=1000,max_read=131072,allow_other";
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_RDONLY;
        let made = options(b"/a,b", b"fuse.loopback", flags, data);
        let wanted = r"max_read=131072,allow_other,ro,fsname=/a\,b,subtype=loopback";
        assert_eq!(String::from_utf8_lossy(&made), wanted);
        assert_eq!(options(b"", b"fuse", 0, b"fd=3"), b"");
    }
}

//! What a call of another process points to.
//!
//! It may change what is there at any moment: it is copied, and what is done goes by the copy.

use crate::standin::told_apart;
use rustix::fs::{Mode, OFlags, open};
use rustix::net::{SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Longest text that the kernel takes of such a call.
const LONGEST: usize = 4096;
/// It is read up to each such boundary: what is behind may not be there.
const PAGE: u64 = 4096;

/// A thread that waits in a system call.
#[derive(Debug)]
pub(crate) struct Caller {
    thread: u32,
    memory: File,
}

impl Caller {
    /// `None` if its memory cannot be looked at.
    pub(crate) fn new(thread: u32) -> Option<Self> {
        let path = format!("/proc/{thread}/mem");
        let memory = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        Some(Self { thread, memory: memory.into() })
    }

    /// Whether it may mount as the relay may: a daemon that has given up its privileges is not to
    /// have them by what the relay does for it. What it waits in keeps it from changing its rights
    /// meanwhile.
    pub(crate) fn may_mount_as_relay(&self) -> bool {
        let own = (capabilities("self"), user_namespace("self"));
        let its = self.thread.to_string();
        match (own, (capabilities(&its), user_namespace(&its))) {
            ((Some(own), Some(here)), (Some(its), Some(there))) => {
                here == there && (own & !its) & CAP_SYS_ADMIN == 0
            }
            _ => false,
        }
    }

    /// The text at an address; `None` if there is none.
    pub(crate) fn text(&self, address: u64) -> Option<CString> {
        let (mut text, mut at) = (Vec::new(), address);
        while address != 0 && text.len() < LONGEST {
            let mut piece = [0; PAGE as usize];
            let length = usize::try_from(PAGE - at % PAGE).ok()?;
            let piece = piece.get_mut(..length)?;
            let got = self.memory.read_at(piece, at).ok().filter(|got| *got > 0)?;
            let piece = piece.get(..got)?;
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                text.extend_from_slice(piece.get(..end)?);
                return CString::new(text).ok();
            }
            text.extend_from_slice(piece);
            at = at.checked_add(u64::try_from(got).ok()?)?;
        }
        None
    }

    /// The number at an address.
    pub(crate) fn number(&self, address: u64) -> Option<u32> {
        let mut word = [0; 4];
        self.memory.read_exact_at(&mut word, address).ok()?;
        Some(u32::from_ne_bytes(word))
    }

    /// A duplicate of its descriptor `number`, if that is a socket of the kind that devices are
    /// here.
    pub(crate) fn socket(&self, number: u32) -> Option<OwnedFd> {
        let process = fact(&format!("{}/status", self.thread), "Tgid:")?;
        let process = Pid::from_raw(process.parse().ok()?)?;
        let process = pidfd_open(process, PidfdFlags::empty()).ok()?;
        let number = i32::try_from(number).ok()?;
        let socket = pidfd_getfd(process, number, PidfdGetfdFlags::empty()).ok()?;
        let kind = sockopt::socket_type(&socket).ok()?;
        (kind == SocketType::SEQPACKET).then_some(socket)
    }

    /// Where the path `text` leads for it, from the root on. The last part is not looked at: it may
    /// be the held mount.
    pub(crate) fn place(&self, text: &[u8]) -> Option<PathBuf> {
        let text = told_apart(text, self.thread);
        let text = Path::new(std::ffi::OsStr::from_bytes(&text));
        // fusermount3 names a file that it mounts on by its descriptor.
        let is_descriptor = |path: &Path| {
            path.starts_with("/proc") && path.parent().is_some_and(|parent| parent.ends_with("fd"))
        };
        if is_descriptor(text)
            && let Ok(file) = std::fs::read_link(text)
        {
            return Some(file);
        }
        let folder = std::fs::read_link(format!("/proc/{}/cwd", self.thread)).ok()?;
        let path: PathBuf = folder.join(text).components().collect();
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Some(path);
        };
        let parent = std::fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned());
        Some(parent.join(name))
    }

    /// Whether its descriptor `number` is a FUSE device, and the flags that it has; `None` if it is
    /// none.
    pub(crate) fn device(&self, number: u32) -> Option<i32> {
        let link = std::fs::read_link(format!("/proc/{}/fd/{number}", self.thread)).ok()?;
        if link != Path::new("/dev/fuse") {
            return None;
        }
        let flags = fact(&format!("{}/fdinfo/{number}", self.thread), "flags:")?;
        i32::from_str_radix(&flags, 8).ok()
    }
}

/// In the sets that /proc shows.
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// The effective capabilities of a thread.
fn capabilities(thread: &str) -> Option<u64> {
    let set = fact(&format!("{thread}/status"), "CapEff:")?;
    u64::from_str_radix(&set, 16).ok()
}

/// What a file of /proc says behind a word at the beginning of a line.
pub(crate) fn fact(file: &str, word: &str) -> Option<String> {
    let status = std::fs::read_to_string(Path::new("/proc").join(file)).ok()?;
    let said = status.lines().find_map(|line| line.strip_prefix(word))?;
    Some(said.trim().to_owned())
}

fn user_namespace(thread: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{thread}/ns/user")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Caller {
        Caller::new(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).expect("me")
    }

    #[test]
    fn texts_are_read_as_far_as_they_are_texts() {
        let text = CString::new(vec![b'x'; 3000]).expect("text");
        let at = |text: &[u8]| text.as_ptr() as u64;
        assert_eq!(me().text(at(text.as_bytes_with_nul())), Some(text));
        let long = vec![b'x'; 3 * LONGEST];
        assert_eq!(me().text(at(&long)), None, "that is no text");
        assert_eq!(me().text(0), None);
        assert_eq!(me().text(8), None, "nothing is there");
    }

    #[test]
    fn places_are_the_callers() {
        let here = std::env::current_dir().expect("here");
        assert_eq!(me().place(b"name"), Some(here.join("name")));
        assert_eq!(me().place(b"/proc/self/../x"), Some(PathBuf::from("/proc/x")));
        assert_eq!(me().place(b"/tmp/./y//"), Some(PathBuf::from("/tmp/y")));
    }

    #[test]
    fn who_has_the_same_rights_may_mount() {
        assert!(me().may_mount_as_relay());
    }

    #[test]
    fn other_files_are_no_devices() {
        let file = File::open("/dev/null").expect("null");
        let number = std::os::fd::AsRawFd::as_raw_fd(&file).unsigned_abs();
        assert_eq!(me().device(number), None);
    }
}

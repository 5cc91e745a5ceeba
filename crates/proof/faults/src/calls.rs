//! Which system calls have an effect outside of the process.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use libc::{O_CREAT, O_TRUNC};
use nix::unistd::Pid;

use crate::memory;
use crate::registers::Call;

/// When a call counts.
#[derive(Clone, Copy, Debug)]
enum When {
    /// Whenever it is made.
    Always,
    /// If its flags, in this argument, make or cut a file.
    Flags(usize),
    /// Likewise, with the flags in memory (`openat2`).
    FlagsAt(usize),
    /// If the descriptor in this argument leads out of the process.
    Into(usize),
}
use When::{Always, Flags, FlagsAt, Into};

type Row = (i64, &'static str, When);

/// Calls this young have one number everywhere; libc does not yet name this one for every machine.
const FCHMODAT2: i64 = 452;

/// The calls of every machine.
const CALLS: &[Row] = &[
    (libc::SYS_openat, "openat", Flags(2)),
    (libc::SYS_openat2, "openat2", FlagsAt(2)),
    (libc::SYS_mkdirat, "mkdirat", Always),
    (libc::SYS_mknodat, "mknodat", Always),
    (libc::SYS_linkat, "linkat", Always),
    (libc::SYS_symlinkat, "symlinkat", Always),
    (libc::SYS_unlinkat, "unlinkat", Always),
    (libc::SYS_renameat2, "renameat2", Always),
    (libc::SYS_truncate, "truncate", Always),
    (libc::SYS_ftruncate, "ftruncate", Always),
    (libc::SYS_write, "write", Into(0)),
    (libc::SYS_writev, "writev", Into(0)),
    (libc::SYS_pwrite64, "pwrite64", Into(0)),
    (libc::SYS_pwritev, "pwritev", Into(0)),
    (libc::SYS_pwritev2, "pwritev2", Into(0)),
    (libc::SYS_fallocate, "fallocate", Always),
    (libc::SYS_copy_file_range, "copy_file_range", Into(2)),
    (libc::SYS_fchmod, "fchmod", Always),
    (libc::SYS_fchmodat, "fchmodat", Always),
    (FCHMODAT2, "fchmodat2", Always),
    (libc::SYS_fchown, "fchown", Always),
    (libc::SYS_fchownat, "fchownat", Always),
    (libc::SYS_utimensat, "utimensat", Always),
    (libc::SYS_setxattr, "setxattr", Always),
    (libc::SYS_lsetxattr, "lsetxattr", Always),
    (libc::SYS_fsetxattr, "fsetxattr", Always),
    (libc::SYS_removexattr, "removexattr", Always),
    (libc::SYS_lremovexattr, "lremovexattr", Always),
    (libc::SYS_fremovexattr, "fremovexattr", Always),
    (libc::SYS_sendto, "sendto", Into(0)),
    (libc::SYS_sendmsg, "sendmsg", Into(0)),
    (libc::SYS_sendmmsg, "sendmmsg", Into(0)),
    (libc::SYS_sendfile, "sendfile", Into(0)),
    (libc::SYS_splice, "splice", Into(2)),
];

/// What newer machines no longer have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[Row] = &[
    (libc::SYS_open, "open", Flags(1)),
    (libc::SYS_creat, "creat", Always),
    (libc::SYS_mkdir, "mkdir", Always),
    (libc::SYS_mknod, "mknod", Always),
    (libc::SYS_link, "link", Always),
    (libc::SYS_symlink, "symlink", Always),
    (libc::SYS_unlink, "unlink", Always),
    (libc::SYS_rmdir, "rmdir", Always),
    (libc::SYS_rename, "rename", Always),
    (libc::SYS_renameat, "renameat", Always),
    (libc::SYS_chmod, "chmod", Always),
    (libc::SYS_chown, "chown", Always),
    (libc::SYS_lchown, "lchown", Always),
    (libc::SYS_utime, "utime", Always),
    (libc::SYS_utimes, "utimes", Always),
    (libc::SYS_futimesat, "futimesat", Always),
];
#[cfg(target_arch = "aarch64")]
const OLD_CALLS: &[Row] = &[(libc::SYS_renameat, "renameat", Always)];

/// The name of a call that has an effect outside of the process; nothing for any other.
pub(crate) fn effect(process: Pid, thread: Pid, call: &Call) -> Option<&'static str> {
    let mut rows = CALLS.iter().chain(OLD_CALLS);
    let (_, name, when) = *rows.find(|(number, ..)| *number == call.number)?;
    let makes = |flags: u64| flags & flag_bits(O_CREAT | O_TRUNC) != 0;
    let counts = match when {
        Always => true,
        Flags(n) => makes(call.args[n]),
        FlagsAt(n) => makes(memory::word(thread, call.args[n])),
        Into(n) => leads_out(process, call.args[n]),
    };
    counts.then_some(name)
}

/// The name of a call that reads a file, or a disk; nothing for any other.
pub(crate) fn access(process: Pid, call: &Call) -> Option<&'static str> {
    let name = match call.number {
        libc::SYS_read => "read",
        libc::SYS_readv => "readv",
        libc::SYS_pread64 => "pread64",
        _ => return None,
    };
    is_file(process, call.args[0]).then_some(name)
}

/// The name of a call by which something is done to one of these files; nothing for any other.
pub(crate) fn commits(
    process: Pid,
    thread: Pid,
    call: &Call,
    files: &[PathBuf],
) -> Option<&'static str> {
    let (name, fd) = match call.number {
        libc::SYS_fsync => ("fsync", call.args[0]),
        libc::SYS_fdatasync => ("fdatasync", call.args[0]),
        libc::SYS_unlink | libc::SYS_unlinkat | libc::SYS_openat => {
            let name = effect(process, thread, call)?;
            let path = if call.number == libc::SYS_unlink { call.args[0] } else { call.args[1] };
            return files.iter().any(|file| is_at(thread, path, file)).then_some(name);
        }
        _ => (effect(process, thread, call)?, call.args[0]),
    };
    let target = link(process, fd)?;
    files.contains(&target).then_some(name)
}

/// Whether there is this path at an address.
fn is_at(thread: Pid, address: u64, path: &Path) -> bool {
    let wanted = path.as_os_str().as_encoded_bytes();
    let found = memory::bytes(thread, address, wanted.len() + 1);
    found.split_last() == Some((&0, wanted))
}

/// Whether a descriptor is a regular file or a block device.
fn is_file(process: Pid, fd: u64) -> bool {
    let fd = fd & u64::from(u32::MAX);
    let kind = std::fs::metadata(format!("/proc/{process}/fd/{fd}")).map(|meta| meta.file_type());
    kind.is_ok_and(|kind| kind.is_file() || kind.is_block_device())
}

fn flag_bits(flags: i32) -> u64 {
    u64::from(flags.unsigned_abs())
}

/// What a descriptor of the process is, in the kernel's words. Not kept for later: numbers are used
/// again.
fn link(process: Pid, fd: u64) -> Option<PathBuf> {
    // Only the lower half counts for the kernel.
    let fd = fd & u64::from(u32::MAX);
    std::fs::read_link(format!("/proc/{process}/fd/{fd}")).ok()
}

/// Whether a descriptor is the FUSE device. Behind a relay of belay's that is a socket, and each
/// socket is taken for it: what such a daemon sends to a server does not count as an effect.
pub(crate) fn is_device(process: Pid, fd: u64) -> bool {
    link(process, fd).is_some_and(|path| is_device_at(process, path.as_os_str().as_encoded_bytes()))
}

/// The same of a descriptor with this link.
fn is_device_at(process: Pid, link: &[u8]) -> bool {
    link == b"/dev/fuse" || link.starts_with(b"socket:") && is_behind_relay(process)
}

/// Whether it is a relay of belay's that has started the process.
fn is_behind_relay(process: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap_or_default();
    let line = std::fs::read(format!("/proc/{}/cmdline", parent.trim())).unwrap_or_default();
    // As the supervisor starts it (`supervisor/child.rs`).
    line.starts_with(b"belay\0relay\0")
}

/// Whether what is written to a descriptor is seen by anybody else. Not so: the device, words on
/// standard output and standard error, event counters and the like, and pipes whose both ends the
/// process has.
fn leads_out(process: Pid, fd: u64) -> bool {
    if matches!(fd, 1 | 2) {
        return false;
    }
    let Some(target) = link(process, fd) else { return false };
    let name = target.as_os_str().as_encoded_bytes();
    if is_device_at(process, name) || name.starts_with(b"anon_inode:") {
        return false;
    }
    if !name.starts_with(b"pipe:") {
        return true;
    }
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    entries.filter(|e| std::fs::read_link(e.path()).is_ok_and(|t| t == target)).count() < 2
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::os::fd::AsRawFd;

    use super::*;

    fn of_this_process(number: i64, args: [u64; 6]) -> Option<&'static str> {
        effect(Pid::this(), Pid::this(), &Call { number, args })
    }

    #[test]
    fn every_number_is_there_once() {
        let numbers: HashSet<_> = CALLS.iter().chain(OLD_CALLS).map(|row| row.0).collect();
        assert_eq!(numbers.len(), CALLS.len() + OLD_CALLS.len());
    }

    #[test]
    fn opens_count_if_they_make_or_cut() {
        let open =
            |flags: i32| of_this_process(libc::SYS_openat, [0, 0, flag_bits(flags), 0, 0, 0]);
        assert_eq!(open(libc::O_RDWR), None);
        assert_eq!(open(libc::O_RDWR | O_CREAT), Some("openat"));
        assert_eq!(open(libc::O_WRONLY | O_TRUNC), Some("openat"));
        assert_eq!(of_this_process(libc::SYS_read, [0; 6]), None);
    }

    #[test]
    fn writes_count_if_they_lead_out() {
        let write = |fd: i32| {
            of_this_process(libc::SYS_write, [u64::from(fd.unsigned_abs()), 0, 0, 0, 0, 0])
        };
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert_eq!(write(file.as_raw_fd()), Some("write"));
        let (reader, writer) = std::io::pipe().unwrap();
        assert_eq!(write(writer.as_raw_fd()), None);
        drop(reader);
        assert_eq!(write(writer.as_raw_fd()), Some("write"));
        assert_eq!(write(2), None);
        assert!(!is_device(Pid::this(), u64::from(file.as_raw_fd().unsigned_abs())));
    }
}

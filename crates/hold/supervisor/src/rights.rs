//! Programs that would run with other rights than those of whoever starts them. The loader ignores
//! the preload for these (AT_SECURE), so they would run unheld, with belay's descriptors; they are
//! not started.

use rustix::fs::{StatVfsMountFlags, fstat, fstatvfs, getxattr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

/// The attribute with a file's capabilities (capabilities(7)).
const CAPABILITIES: &str = "security.capability";

/// Which rights that this process has not would be given to `program`, for people; `None` if there
/// are none.
///
/// # Errors
/// Those of open(2) and stat(2).
pub fn gained(program: &Path) -> io::Result<Option<String>> {
    gained_by(open(program)?.as_fd())
}

/// The same of a program that is held.
///
/// # Errors
/// Those of stat(2).
pub fn gained_by(file: BorrowedFd<'_>) -> io::Result<Option<String>> {
    let stat = fstat(file)?;
    let ignored = fstatvfs(file)?.f_flag.contains(StatVfsMountFlags::NOSUID);
    if ignored || rustix::thread::no_new_privs().unwrap_or(false) {
        return Ok(None);
    }
    let user = rustix::process::geteuid();
    if stat.st_mode & 0o4000 != 0 && stat.st_uid != user.as_raw() {
        return Ok(Some(format!("set-uid for another user ({})", stat.st_uid)));
    }
    // Without the group's bit to execute, this one means something else.
    if stat.st_mode & 0o2010 == 0o2010 && stat.st_gid != rustix::process::getegid().as_raw() {
        return Ok(Some(format!("set-gid for another group ({})", stat.st_gid)));
    }
    // Root has them all.
    if user.is_root() {
        return Ok(None);
    }
    let mut value = [0_u8; 64];
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let length = getxattr(link, CAPABILITIES, &mut value[..]).unwrap_or(0);
    let gives = value.get(..length).is_some_and(gives_capabilities);
    Ok(gives.then(|| "given capabilities by its file (setcap)".to_owned()))
}

fn open(program: &Path) -> rustix::io::Result<std::os::fd::OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open(program, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Whether `struct vfs_cap_data` of linux/capability.h permits anything, or makes it effective.
fn gives_capabilities(data: &[u8]) -> bool {
    let word = |at: usize| {
        let bytes = data.get(at * 4..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    word(0) & 1 != 0 || word(1) != 0 || word(3) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn other_rights_are_seen() {
        let dir = tempfile::tempdir().expect("tempdir");
        let program = dir.path().join("program");
        fs::write(&program, "").expect("write");
        let gains = |mode: u32| {
            fs::set_permissions(&program, Permissions::from_mode(mode)).expect("chmod");
            gained(&program).expect("look")
        };
        assert_eq!([0o755, 0o4755, 0o2755].map(gains), [None, None, None], "its own rights");
        if chown(&program, Some(1), Some(1)).is_err() {
            eprintln!("skipped: only root gives files away");
            return;
        }
        let nosuid = fstatvfs(open(&program).expect("open")).expect("look").f_flag;
        if nosuid.contains(StatVfsMountFlags::NOSUID) {
            eprintln!("skipped: such bits do not count here");
            return;
        }
        assert_eq!(gains(0o755), None);
        assert!(gains(0o4755).is_some_and(|why| why.contains("set-uid")));
        assert!(gains(0o2755).is_some_and(|why| why.contains("set-gid")));
        assert_eq!(gains(0o2745), None, "no group may run it");
    }

    #[test]
    fn capabilities_are_told() {
        let data =
            |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        assert!(gives_capabilities(&data(&[0x0200_0001, 1 << 21, 0, 0, 0])));
        assert!(gives_capabilities(&data(&[0x0200_0000, 0, 0, 1, 0])));
        assert!(!gives_capabilities(&data(&[0x0200_0000, 0, 1 << 21, 0, 0])), "inheritable only");
        assert!(!gives_capabilities(&[]));
    }
}

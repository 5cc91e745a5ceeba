//! Who but this user and root may write to a folder, or put something else in its place.
//!
//! The rule: where nobody but these two may change a folder on the way, the way leads to the same
//! place whenever it is gone. Asked of descriptors, from below to above (`..`): no link and no
//! exchange on the way can answer for something else.
//!
//! Only POSIX ACLs are seen. Those of NFS are its server's, and have only their mode here.

use crate::error::{Error, Result};
use crate::outside;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, getxattr, openat};
use rustix::io::Errno;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Write permission, of a class of a mode and in an ACL.
const WRITE: u16 = 2;
const STICKY: u32 = 0o1000;
/// Tags of an ACL's entries (linux/posix_acl.h).
const ACL_USER: u16 = 0x02;
const ACL_GROUP_OBJ: u16 = 0x04;
const ACL_GROUP: u16 = 0x08;
/// Bytes of the head and of an entry of `system.posix_acl_access`.
const HEAD: usize = 4;
const ENTRY: usize = 8;
/// The longest value that an attribute can have.
const LONGEST: usize = 64 << 10;
/// Folders on a way: more than a path has room for.
const MOST_FOLDERS: usize = 4096;
/// The largest of the files that say who is in a group.
const LARGEST: u64 = 4 << 20;

/// Refuses a folder, `shown` by its path, that is not this user's, or that others may write to or
/// exchange. `remedy`: what to do then.
///
/// # Errors
/// Why it is refused; those of fstat(2) and openat(2).
pub(crate) fn check(folder: BorrowedFd<'_>, shown: &Path, remedy: &'static str) -> Result<()> {
    let refuse = |why: &str| Err(Error::refused(shown.display().to_string(), why, remedy));
    let stat = fstat(folder)
        .map_err(|error| Error::system("look at", shown.display().to_string(), error, remedy))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return refuse("it is no directory");
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        let why = format!("it belongs to somebody else (user {}); ask as that user", stat.st_uid);
        return refuse(&why);
    }
    // Of a folder with an ACL the bits of the group are its mask: nobody whom it names may do more.
    if stat.st_mode & 0o022 != 0 {
        return refuse("others may write to it");
    }
    let above = up(folder).map_err(|error| {
        Error::system("look at the way to", shown.display().to_string(), error, remedy)
    })?;
    check_way(above.as_fd(), shown, remedy)
}

/// Refuses what is in `folder`, `shown` by its path, if others may put something else in its place,
/// there or further above.
///
/// # Errors
/// Who may; those of openat(2).
pub(crate) fn check_way(folder: BorrowedFd<'_>, shown: &Path, remedy: &'static str) -> Result<()> {
    let failed = |error: Errno| {
        Error::system("look at the way to", shown.display().to_string(), error, remedy)
    };
    let mut here = belay_sys::dup_cloexec(folder).map_err(|error| {
        Error::system("look at the way to", shown.display().to_string(), error, remedy)
    })?;
    for _ in 0..MOST_FOLDERS {
        let path = path_of(here.as_fd());
        if may_be_exchanged(here.as_fd()) {
            let place = path.unwrap_or_default();
            let why = format!("others may exchange it, who may write to {}", place.display());
            return Err(Error::refused(shown.display().to_string(), why, remedy));
        }
        if path.is_some_and(|path| path == Path::new("/")) {
            return Ok(());
        }
        here = up(here.as_fd()).map_err(failed)?;
    }
    Err(failed(Errno::LOOP))
}

fn up(folder: BorrowedFd<'_>) -> rustix::io::Result<rustix::fd::OwnedFd> {
    openat(folder, "..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Where a folder that is held is now.
pub(crate) fn path_of(folder: BorrowedFd<'_>) -> Option<PathBuf> {
    fs::read_link(link(folder)).ok()
}

fn link(folder: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", folder.as_raw_fd())
}

/// Whether another user can put something else in the place of what this user has in this folder.
/// What is not known can be so.
fn may_be_exchanged(folder: BorrowedFd<'_>) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let Ok(stat) = fstat(folder) else { return true };
    if stat.st_uid != user && stat.st_uid != 0 {
        // Group bits may be an ACL's mask as well.
        return stat.st_mode & 0o022 != 0 || !is_outer_root(&stat);
    }
    if stat.st_mode & STICKY != 0 {
        return false;
    }
    if stat.st_mode & 0o002 != 0 {
        return true;
    }
    if stat.st_mode & 0o020 == 0 {
        return false;
    }
    // These bits are an ACL's mask, if there is one: it lets all of its entries write.
    let entries = match acl(folder) {
        Ok(entries) => entries,
        Err(_) => return true,
    };
    let own_group = [(ACL_GROUP_OBJ, WRITE, 0)];
    let writes = |(_, may, _): &&(u16, u16, u32)| may & WRITE != 0;
    let entries = entries.as_deref().unwrap_or(&own_group);
    entries.iter().filter(writes).any(|(tag, _, id)| match *tag {
        ACL_USER => *id != user && *id != 0,
        ACL_GROUP_OBJ => !Members::read().is_private(stat.st_gid, user),
        ACL_GROUP => !Members::read().is_private(*id, user),
        _ => false,
    })
}

/// Whether a folder is this process's root directory, and belongs to somebody who has no number in
/// this user namespace.
///
/// Such an owner may be any user outside, as all of them look the same. But whoever owns the root
/// directory has made what this process runs in: its libraries, its programs and belay itself lie
/// there, and may be exchanged by that one anyway. That is not so of any other folder: `/home` and
/// a stranger's folder in it cannot be told apart by their owners.
fn is_outer_root(stat: &Stat) -> bool {
    let Ok(root) = rustix::fs::stat("/") else { return false };
    (root.st_dev, root.st_ino) == (stat.st_dev, stat.st_ino) && is_unmapped(stat.st_uid)
}

/// Whether the kernel shows this number for those who have none in this user namespace, and nobody
/// has it there.
fn is_unmapped(user: u32) -> bool {
    let text = |path: &str| fs::read_to_string(path).ok();
    let stands_for_all = text("/proc/sys/kernel/overflowuid")
        .is_some_and(|number| number.trim().parse::<u32>() == Ok(user));
    stands_for_all && text("/proc/self/uid_map").is_some_and(|map| !is_mapped(&map, user))
}

/// Whether a map of users (user_namespaces(7)) gives somebody this number. What is not understood
/// may.
fn is_mapped(map: &str, user: u32) -> bool {
    map.lines().any(|line| {
        let numbers: Vec<u64> = line.split_whitespace().map_while(|n| n.parse().ok()).collect();
        let [first, _, count] = numbers[..] else { return true };
        (first..first.saturating_add(count)).contains(&user.into())
    })
}

/// The entries of a folder's ACL (tag, permissions, who), if it has one.
fn acl(folder: BorrowedFd<'_>) -> io::Result<Option<Vec<(u16, u16, u32)>>> {
    let mut value = vec![0_u8; LONGEST];
    let length = match getxattr(link(folder), "system.posix_acl_access", &mut value[..]) {
        Ok(length) => length,
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    parse_acl(value.get(..length).unwrap_or_default())
        .map(Some)
        .ok_or_else(|| ErrorKind::InvalidData.into())
}

fn parse_acl(value: &[u8]) -> Option<Vec<(u16, u16, u32)>> {
    let (entries, []) = value.get(HEAD..)?.as_chunks::<ENTRY>() else { return None };
    let entry = |[a, b, c, d, e, f, g, h]: &[u8; ENTRY]| {
        (
            u16::from_le_bytes([*a, *b]),
            u16::from_le_bytes([*c, *d]),
            u32::from_le_bytes([*e, *f, *g, *h]),
        )
    };
    Some(entries.iter().map(entry).collect())
}

/// Who is in which group, by the files of this machine.
#[derive(Debug)]
struct Members {
    passwd: String,
    group: String,
    /// Nobody can be in a group of whom these files do not tell.
    all: bool,
}

impl Members {
    fn read() -> Self {
        let read =
            |path: &str| outside::read_text(Path::new(path), outside::From::Anybody, LARGEST);
        let sources = match read("/etc/nsswitch.conf") {
            Ok(text) => are_files(&text),
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        let (passwd, group) = (read("/etc/passwd"), read("/etc/group"));
        let all = sources && passwd.is_ok() && group.is_ok();
        Self { passwd: passwd.unwrap_or_default(), group: group.unwrap_or_default(), all }
    }

    /// Whether nobody but `user` and root can be in the group `gid`, as far as is known.
    fn is_private(&self, gid: u32, user: u32) -> bool {
        let number = |field: Option<&str>| field.and_then(|text| text.parse::<u32>().ok());
        let is_own = |id: u32| id == user || id == 0;
        let mut own_names = Vec::new();
        for line in self.passwd.lines() {
            let mut fields = line.split(':');
            let (name, _, id, group) =
                (fields.next(), fields.next(), number(fields.next()), number(fields.next()));
            let Some(id) = id else { continue };
            if group == Some(gid) && !is_own(id) {
                return false;
            }
            own_names.extend(name.filter(|_| is_own(id)));
        }
        let of_group = |line: &&str| number(line.split(':').nth(2)) == Some(gid);
        let members = self.group.lines().filter(of_group).filter_map(|line| line.split(':').nth(3));
        let mut names = members
            .flat_map(|names| names.split(','))
            .map(str::trim)
            .filter(|name| !name.is_empty());
        self.all && names.all(|name| own_names.contains(&name))
    }
}

/// Whether the name service asks nobody for users and groups but files of this machine, and systemd
/// for what it makes itself.
fn are_files(nsswitch: &str) -> bool {
    let lines = nsswitch.lines().map(|line| line.split('#').next().unwrap_or_default());
    let of_users = lines
        .filter_map(|line| line.split_once(':'))
        .filter(|(database, _)| ["passwd", "group", "initgroups"].contains(&database.trim()));
    of_users.into_iter().all(|(_, sources)| {
        let mut sources = sources.replace('[', " [").replace(']', "] ");
        while let (Some(from), Some(to)) = (sources.find('['), sources.find(']')) {
            if from > to {
                return false;
            }
            sources.replace_range(from..=to, "");
        }
        sources.split_whitespace().all(|source| ["files", "systemd"].contains(&source))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Folder;
    use rustix::fs::{XattrFlags, setxattr};
    use std::os::unix::fs::{PermissionsExt, chown};

    /// A folder of mode 2775 or so, with what is in it, and an ACL that lets that user write, or
    /// none.
    fn is_refused(mode: u32, group: Option<u32>, acl: Option<u32>) -> bool {
        // Not below /tmp: what is sticky is no part of this.
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (outer, inner) = (dir.path().join("outer"), dir.path().join("outer/inner"));
        fs::create_dir_all(&inner).unwrap();
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&outer, None, group).unwrap();
        fs::set_permissions(&outer, fs::Permissions::from_mode(mode)).unwrap();
        if let Some(user) = acl {
            let mut value = 2_u32.to_le_bytes().to_vec();
            for (tag, may, id) in
                [(1_u16, 7_u16, !0), (2, 7, user), (4, 5, !0), (16, 7, !0), (32, 5, !0)]
            {
                value.extend(tag.to_le_bytes());
                value.extend(may.to_le_bytes());
                value.extend(id.to_le_bytes());
            }
            setxattr(&outer, "system.posix_acl_access", &value, XattrFlags::empty()).unwrap();
        }
        match Folder::own(&inner) {
            Ok(_) => false,
            Err(error) => {
                let expected = format!("who may write to {}", outer.display());
                assert!(error.to_string().contains(&expected), "{error}");
                true
            }
        }
    }

    #[test]
    fn who_may_write_above_may_exchange() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        assert!(!is_refused(0o755, None, None));
        assert!(is_refused(0o757, None, None));
        assert!(!is_refused(0o1777, None, None), "nobody may rename there what is this user's");
        // The group of `nobody`, which is this process's in no case.
        assert!(is_refused(0o775, Some(65534), None));
        assert!(is_refused(0o755, None, Some(1000)), "an ACL names another user");
        assert!(!is_refused(0o755, None, Some(0)));
        assert!(!is_refused(0o1755, None, Some(1000)));
    }

    #[test]
    fn groups_of_others_are_known() {
        let passwd = "root:x:0:0::/root:/bin/sh\nann:x:10:10::/:/bin/sh\nbob:x:11:11::/:/bin/sh\nsys:x:12:13:::\n";
        let group = "root:x:0:\nann:x:10:\nbob:x:11:ann\nmany:x:14:ann,bob\nmine:x:15:ann,root\nempty:x:16:\n";
        let members = |all| Members { passwd: passwd.into(), group: group.into(), all };
        let private = |gid, user| members(true).is_private(gid, user);
        assert!(private(10, 10) && private(0, 0) && private(15, 10) && private(16, 10));
        assert!(private(0, 10), "root may do everything");
        assert!(!private(11, 11) && !private(14, 10) && !private(13, 10) && !private(10, 11));
        assert!(!members(false).is_private(10, 10));
    }

    #[test]
    fn sources_of_users_other_than_files_are_seen() {
        assert!(are_files(
            "passwd: files systemd\ngroup:  files [SUCCESS=merge] systemd\nhosts: dns # group: x\n"
        ));
        assert!(are_files(""));
        for other in
            ["passwd: files sss\n", "group: files [NOTFOUND=return] ldap", "initgroups:nis"]
        {
            assert!(!are_files(other), "{other}");
        }
    }

    #[test]
    fn who_has_no_number_is_told_from_who_has_it() {
        let alone = "         0       4322          1\n";
        assert!(is_mapped(alone, 0) && !is_mapped(alone, 65534) && !is_mapped("", 65534));
        let rootless = "0 1000 1\n1 100000 65536\n";
        assert!(is_mapped(rootless, 65534) && !is_mapped(rootless, 65537));
        assert!(is_mapped("0 0 4294967295\n", 65534));
        for odd in ["0 0\n", "x 0 1\n", "0 1 2 3\n"] {
            assert!(is_mapped(odd, 65534), "{odd}");
        }
    }

    #[test]
    fn odd_acls_are_not_understood() {
        assert_eq!(parse_acl(&[2, 0, 0, 0]), Some(vec![]));
        assert_eq!(parse_acl(&[2, 0, 0]), None);
        assert_eq!(parse_acl(&[2, 0, 0, 0, 1]), None);
        let one = [2, 0, 0, 0, 2, 0, 7, 0, 0xe8, 3, 0, 0];
        assert_eq!(parse_acl(&one), Some(vec![(2, 7, 1000)]));
    }
}

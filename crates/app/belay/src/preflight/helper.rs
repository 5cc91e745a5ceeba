//! fusermount: what an ordinary user's daemons are mounted by.

use super::binary::{self, NO_PATH};
use belay_supervisor::fusermount::NAMES;
use belay_supervisor::{Error, Result};
use rustix::fs::StatVfsMountFlags;
use rustix::thread::CapabilitySet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Finds a fusermount that can mount for this process.
///
/// # Errors
/// Why none can, and what to do.
pub fn check() -> Result<PathBuf> {
    let refuse = |why: &str, remedy: &str| Err(Error::refused("permission", why, remedy));
    if rustix::process::geteuid().is_root() {
        return refuse(
            "this process may not mount, though it is root's (it has no CAP_SYS_ADMIN)",
            "in a container, allow it: --device /dev/fuse --cap-add SYS_ADMIN",
        );
    }
    if rustix::thread::no_new_privs().unwrap_or(false) {
        return refuse(
            "this process and its children may not gain rights (no_new_privs), so fusermount3 \
             cannot mount for it",
            "start belay outside of the sandbox (systemd: NoNewPrivileges=no; containers: \
             without --security-opt no-new-privileges)",
        );
    }
    if rustix::thread::capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN) == Ok(false) {
        return refuse(
            "nobody in this container may mount (CAP_SYS_ADMIN is withheld from all)",
            "allow it: --device /dev/fuse --cap-add SYS_ADMIN",
        );
    }
    let found = NAMES.iter().find_map(|name| binary::find(name.as_ref()).ok());
    let Some(path) = found else {
        if std::env::var_os("PATH").is_none_or(|path| path.is_empty()) {
            return refuse(
                &format!(
                    "this process may not mount, and fusermount3, which may, is not found: {NO_PATH}"
                ),
                "set PATH",
            );
        }
        return refuse(
            "this process may not mount, and fusermount3, which may, is not in PATH",
            "install the package fuse3, or run belay as root: sudo belay run ...",
        );
    };
    check_file(&path).map(|()| path)
}

/// Refuses a fusermount that has no more rights than whoever starts it.
fn check_file(path: &Path) -> Result<()> {
    let shown = path.display().to_string();
    let meta = fs::metadata(path)
        .map_err(|e| Error::system("look at", shown.clone(), e, "install the package fuse3"))?;
    let capable = rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]).is_ok();
    if !capable && (meta.mode() & 0o4000 == 0 || meta.uid() != 0) {
        return Err(Error::refused(
            shown.clone(),
            "it is not set-uid root, so it cannot mount for an ordinary user",
            format!("install the package fuse3 again, or as root: chmod u+s {shown}"),
        ));
    }
    let nosuid =
        rustix::fs::statvfs(path).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::NOSUID));
    if nosuid {
        return Err(Error::refused(
            shown,
            "its file system is mounted nosuid, so it cannot mount for an ordinary user",
            "mount that file system without nosuid, or run belay as root: sudo belay run ...",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fusermount_without_rights_is_refused() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("fusermount3");
        fs::write(&path, "").expect("write");
        let text = check_file(&path).expect_err("no set-uid").to_string();
        assert!(text.contains("not set-uid root") && text.contains("chmod u+s"), "{text}");
        assert!(check_file(&dir.path().join("none")).is_err());
    }
}

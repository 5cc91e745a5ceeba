//! Images of disks: empty ones for daemons that work on one, and the word of the file system's own checker.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::{self, Parts};
use crate::kind::Kind;
use crate::process::run_ok;

const LIMIT: Duration = Duration::from_secs(60);

/// What makes an empty file system, and the package that it comes with.
fn maker(kind: Kind) -> Option<(&'static [&'static str], &'static str)> {
    Some(match kind {
        Kind::Ntfs3g => (&["mkntfs", "-F", "-Q", "-q"], "ntfs-3g"),
        Kind::Fuse2fsExt2 => (&["mke2fs", "-F", "-q", "-t", "ext2"], "e2fsprogs"),
        Kind::Fuse2fsExt3 => (&["mke2fs", "-F", "-q", "-t", "ext3"], "e2fsprogs"),
        Kind::Fuse2fsExt4 => (&["mke2fs", "-F", "-q", "-t", "ext4"], "e2fsprogs"),
        // Of a FAT32 fusefat keeps nothing in memory but the count of free clusters.
        Kind::Fusefat => (&["mkfs.fat", "-F", "16"], "dosfstools"),
        _ => return None,
    })
}

/// What checks an image without writing to it.
fn checker(kind: Kind) -> Option<&'static [&'static str]> {
    Some(match kind {
        Kind::Ntfs3g => &["ntfsfix", "-n"],
        Kind::Fuse2fsExt2 | Kind::Fuse2fsExt3 | Kind::Fuse2fsExt4 => &["e2fsck", "-f", "-n"],
        Kind::Fusefat => &["fsck.fat", "-n"],
        _ => return None,
    })
}

/// The command line of the file system's own checker, with `{}` for the image.
#[must_use]
pub fn check_line(kind: Kind) -> Option<String> {
    checker(kind).map(|words| format!("{} {{}}", words.join(" ")))
}

/// The daemon that shows an image without writing to it, in the foreground.
///
/// # Errors
/// For a kind without an image.
pub fn reader(kind: Kind, image: &Path, mountpoint: &Path) -> Result<Command> {
    let words: &[&str] = match kind {
        Kind::Ntfs3g => &["ntfs-3g", "-o", "ro,no_detach,permissions,noatime,user_xattr"],
        Kind::Fuse2fsExt2 | Kind::Fuse2fsExt3 | Kind::Fuse2fsExt4 => {
            &["fuse2fs", "-f", "-o", "ro,fakeroot,default_permissions"]
        }
        // Without `rw+` it opens the image for reading only.
        Kind::Fusefat => &["fusefat", "-f", "-o", "ro,default_permissions"],
        _ => anyhow::bail!("a {kind} bed has no image"),
    };
    let mut command = tool(words).context("no daemon to read an image with")?;
    command.arg(image).arg(mountpoint);
    Ok(command)
}

/// The command line of the daemon that mounts an image for writing, in the foreground; the program first.
///
/// # Errors
/// For a kind without an image.
pub fn daemon(kind: Kind, image: &Path, mountpoint: &Path) -> Result<Vec<OsString>> {
    anyhow::ensure!(kind.has_image(), "a {kind} bed has no image");
    let (extra, repeatable) = (&[] as &[String], false);
    let (sshd, place) = (None, None);
    command::daemon(&Parts { kind, backing: image, mountpoint, sshd, place, extra, repeatable })
}

/// Starts a line for a tool of an administrator's, which may be in `/usr/sbin` alone.
fn tool(words: &[&str]) -> Option<Command> {
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(arguments).env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"));
    Some(command)
}

/// Makes an empty image for a daemon of this kind; does nothing for one that works on a directory.
///
/// # Errors
/// When the file cannot be made or the tool that formats it fails or is missing.
pub fn make(kind: Kind, image: &Path, mib: u64) -> Result<()> {
    let Some((words, package)) = maker(kind) else {
        return Ok(());
    };
    let file =
        std::fs::File::create(image).with_context(|| format!("creating {}", image.display()))?;
    file.set_len(mib << 20).with_context(|| format!("setting the size of {}", image.display()))?;
    let mut command = tool(words).context("no tool to make an image with")?;
    if kind == Kind::Fusefat {
        command.arg("-s").arg(cluster(mib).to_string());
    }
    command.arg(image);
    run_ok(command, LIMIT)
        .with_context(|| format!("making an image for {kind} (install {package})"))?;
    Ok(())
}

/// Sectors in a cluster, for a FAT16 of so many MiB: as many as can be. Where a directory has several clusters, fusefat
/// writes beyond the end of the first when it removes a name that crosses it.
fn cluster(mib: u64) -> u64 {
    /// A FAT16 has at least 4,085.
    const CLUSTERS: u64 = 4200;
    let sectors = mib << 11;
    [64, 32, 16, 8, 4, 2].into_iter().find(|n| sectors / n >= CLUSTERS).unwrap_or(1)
}

/// Has the file system's own checker look at an image, without writing to it; fine for a kind without one.
///
/// # Errors
/// With what the checker says, when it finds anything wrong.
pub fn check(kind: Kind, image: &Path) -> Result<()> {
    let Some(words) = checker(kind) else {
        return Ok(());
    };
    let mut command = tool(words).context("no tool to check an image with")?;
    command.arg(image);
    run_ok(command, LIMIT).with_context(|| format!("checking {}", image.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn whoever_has_an_image_has_both_tools() {
        for kind in Kind::all() {
            assert_eq!(maker(kind).is_some(), kind.has_image(), "{kind}");
            assert_eq!(checker(kind).is_some(), kind.has_image(), "{kind}");
        }
    }

    #[test]
    fn clusters_are_large_and_not_too_few() {
        assert_eq!([4, 16, 24, 256, 2000].map(cluster), [1, 4, 8, 64, 64]);
    }

    #[test]
    fn only_images_have_readers() {
        for kind in Kind::all() {
            let reader = reader(kind, Path::new("image"), Path::new("mnt"));
            assert_eq!(reader.is_ok(), kind.has_image(), "{kind}");
        }
    }

    #[test]
    fn new_images_are_clean_and_corrupt_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        for kind in Kind::all().filter(|kind| kind.has_image()) {
            let path = dir.path().join(kind.name());
            make(kind, &path, 24).unwrap();
            check(kind, &path).unwrap();
            let before = std::fs::metadata(&path).unwrap().modified().unwrap();
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[0xa5; 64 << 10], 512).unwrap();
            assert!(check(kind, &path).is_err(), "{kind}: nothing noticed");
            file.set_modified(before).unwrap();
            assert!(check(kind, &path).is_err());
            assert_eq!(file.metadata().unwrap().modified().unwrap(), before, "{kind}: written to");
        }
    }
}

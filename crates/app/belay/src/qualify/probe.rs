//! What must be known of a daemon before it can be judged: who can use its mount, and what its
//! inode numbers tell.

use super::daemon::{Launcher, Target};
use crate::messages::say;
use anyhow::{Context, Result, bail, ensure};
use belay_study::trial::limited;
use belay_study::{Source, User, operation};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

/// What was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Whom operations can be done as.
    pub user: User,
    /// Whether inode numbers tell which names are one file.
    pub links: bool,
}

/// Starts the daemon bare and finds out. `wanted` is the user's choice.
///
/// # Errors
/// If nothing can be done on the mount, or not as the user that was chosen.
pub fn probe(target: &Rc<Target>, wanted: Option<u32>) -> Result<Found> {
    let root = rustix::process::geteuid().is_root();
    let mut user = match wanted {
        Some(0) => User::Own,
        Some(id) if !root => bail!("--as-user {id} needs root"),
        Some(id) => User::Other(id),
        None if root => User::ORDINARY,
        None => User::Own,
    };
    let mut launcher = Launcher::new(target, None);
    let subject = launcher.start()?;
    let tree = |name: &str, user: User| -> Result<()> {
        let dir = target.work.join(name);
        limited(target.limit, move || make(&dir, user)).context("it did not end")??;
        Ok(())
    };
    if let User::Other(id) = user
        && let Err(error) = tree("probe.other", user)
    {
        ensure!(wanted.is_none(), "user {id} cannot use the mount ({error:#})");
        say(&format!(
            "belay: operations are done as the current user: user {id} cannot use the mount ({error:#})\n"
        ));
        user = User::Own;
    }
    tree("probe", User::Own).with_context(|| {
        format!("making files in {} (--dir names another directory)", target.work.display())
    })?;
    let dir = target.work.join("probe");
    let links = limited(target.limit, move || numbers_tell_links(&dir).unwrap_or(false));
    let links = links.context("a hard link did not end")?;
    if let Some(behind) = &target.behind {
        let inside = behind.join("probe/file");
        ensure!(
            inside.is_file(),
            "{} is not there: --behind must be what the mountpoint shows",
            inside.display()
        );
    }
    for name in ["probe", "probe.other"] {
        let dir = target.work.join(name);
        let _ = limited(target.limit, move || std::fs::remove_dir_all(dir));
    }
    launcher.stop(subject)?;
    Ok(Found { user, links })
}

/// Makes the tree of the study; the user must own what the user makes, else every change of it is
/// refused.
fn make(dir: &Path, user: User) -> io::Result<()> {
    operation::prepare(dir, user)?;
    match user {
        User::Other(id) if std::fs::metadata(dir.join("file"))?.uid() != id => {
            Err(io::Error::other("files belong to somebody else"))
        }
        _ => Ok(()),
    }
}

fn numbers_tell_links(dir: &Path) -> io::Result<bool> {
    let number = |name: &str| {
        let flags = AtFlags::STATX_FORCE_SYNC;
        let stat = rustix::fs::statx(CWD, dir.join(name), flags, StatxFlags::BASIC_STATS)?;
        Ok::<_, io::Error>(stat.stx_ino)
    };
    std::fs::hard_link(dir.join("file"), dir.join("link"))?;
    Ok(number("link")? == number("file")? && number("file")? != number("other")?)
}

/// Removes the directory that everything was done in.
///
/// # Errors
/// If it cannot be removed: what is left is the user's to remove.
pub fn clear(target: &Rc<Target>) -> Result<()> {
    // In an image it was in copies only.
    if !target.made.get() || target.image.as_ref().is_some_and(|image| !image.device) {
        return Ok(());
    }
    let mut launcher = Launcher::new(target, None);
    let subject = launcher.start()?;
    let work = target.work.clone();
    let removed = limited(target.limit, move || std::fs::remove_dir_all(work));
    let removed = removed.context("it did not end").and_then(|result| Ok(result?));
    removed.with_context(|| format!("removing {}", target.work.display()))?;
    launcher.stop(subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_common_file_system_tell() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("tree");
        make(&dir, User::Own).unwrap();
        assert!(numbers_tell_links(&dir).unwrap());
        assert!(numbers_tell_links(&dir).is_err(), "the link is there already");
    }
}

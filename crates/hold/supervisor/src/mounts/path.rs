//! Where a path leads, found out without asking any FUSE daemon on the way.

use super::held::{MountFact, uncovered};
use super::table::{Mount, table};
use crate::look::link_known;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Whether a FUSE daemon has to say what is in the folder that `path` is in.
pub fn is_served(path: &Path) -> bool {
    let path = resolve_untouched(path);
    let above = path.parent().unwrap_or(&path);
    table().is_ok_and(|table| above.ancestors().any(|place| is_served_at(&table, place)))
}

/// Whether a FUSE daemon serves what is mounted at `place`.
fn is_served_at(table: &[Mount], place: &Path) -> bool {
    let at = |mount: &&Mount| mount.mountpoint == place.as_os_str().as_bytes();
    table.iter().rev().find(at).is_some_and(Mount::is_fuse)
}

/// Where the link `path` leads, if it is one; `path` is one of [`resolve_untouched`], and no FUSE
/// daemon is asked.
pub fn read_link_untouched(path: &Path) -> Option<PathBuf> {
    link_by(path, &|path| fs::read_link(path).ok())
}

fn link_by(path: &Path, link: &dyn Fn(&Path) -> Option<PathBuf>) -> Option<PathBuf> {
    let table = table().ok()?;
    let outside = !path.ancestors().any(|place| is_served_at(&table, place));
    outside.then(|| link(path)).flatten()
}

/// Whether the way to `path` leads through the held mount now, so that who goes it asks the daemon.
/// Nobody is asked here: a link that the kernel does not know now is taken for none.
pub fn hides(fact: &MountFact, path: &Path) -> bool {
    let mount = match uncovered(fact) {
        Ok(Some(mount)) => mount,
        Ok(None) => return false,
        // Nobody goes a way that may lead there.
        Err(_) => return true,
    };
    let mut path = resolve_by(path, &link_known);
    for _ in 0..MAX_LINKS {
        if path.starts_with(OsStr::from_bytes(&mount.mountpoint)) {
            return true;
        }
        let Some(to) = link_by(&path, &link_known) else { return false };
        path = resolve_by(&path.parent().unwrap_or(Path::new("/")).join(to), &link_known);
    }
    true
}

/// Links on the way that are followed, as many as the kernel follows.
const MAX_LINKS: usize = 40;

/// `path` made absolute and free of links without touching what is mounted at it, or what any FUSE
/// daemon serves on the way there, which may hang. Its last part is not followed.
pub fn resolve_untouched(path: &Path) -> PathBuf {
    resolve_by(path, &|path| fs::read_link(path).ok())
}

fn resolve_by(path: &Path, link: &dyn Fn(&Path) -> Option<PathBuf>) -> PathBuf {
    let Ok(absolute) = std::path::absolute(path) else {
        return path.to_owned();
    };
    let Ok(table) = table() else { return absolute };
    let mut rest: Vec<PathBuf> =
        absolute.components().rev().map(|c| c.as_os_str().into()).collect();
    let (mut done, mut links) = (PathBuf::new(), 0);
    while let Some(part) = rest.pop() {
        if part.as_os_str() == "." {
            continue;
        }
        if part.as_os_str() == ".." {
            done.pop();
            continue;
        }
        done.push(&part);
        if is_served_at(&table, &done) {
            break;
        }
        // Of the last part only the name counts; what is not there is no link.
        let link = if rest.is_empty() { None } else { link(&done) };
        if let Some(to) = link {
            links += 1;
            if links > MAX_LINKS {
                return absolute;
            }
            done.pop();
            rest.extend(to.components().rev().map(|c| c.as_os_str().into()));
        }
    }
    done.extend(rest.into_iter().rev());
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_without_their_last_part() {
        let dir = tempfile::tempdir().expect("tempdir");
        let real = dir.path().canonicalize().expect("canonical");
        std::os::unix::fs::symlink(&real, real.join("link")).expect("link");
        assert_eq!(resolve_untouched(&real.join("link/x")), real.join("x"));
        assert_eq!(resolve_untouched(&real.join("no/x")), real.join("no/x"));
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, real.join(name)).expect("link");
        };
        fs::create_dir(real.join("sub")).expect("sub");
        link("../sub/./", "sub/up");
        link("loop", "loop");
        assert_eq!(resolve_untouched(&real.join("link/sub/up/x")), real.join("sub/x"));
        assert_eq!(resolve_untouched(&real.join("sub/up/../link")), real.join("link"));
        assert_eq!(resolve_untouched(&real.join("loop/x")), real.join("loop/x"));
        assert_eq!(resolve_untouched(Path::new("/")), Path::new("/"));
    }
}

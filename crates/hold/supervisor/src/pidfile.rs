//! A daemon that does not start because of a file in which the one before it has left its process
//! id: many write one, and take its presence for a daemon that runs. belay removes nothing of a
//! daemon's, but says so.
//!
//! Where the daemon's words lead nobody knows: a process apart looks there ([`crate::scout`]).

use crate::autopsy::open::open_regular;
use crate::scout::Scouts;
use crate::text::OsText;
use std::io::Read;
use std::path::Path;

/// Longer files hold more than a process id.
const LONGEST: u64 = 32;
/// Words of a line that are looked at.
const MOST_WORDS: usize = 64;
/// Paths that are looked at.
const MOST_PATHS: usize = 8;

/// What to do about such a file, if one of the daemon's last `words` names it. `dead`: the process
/// that served last.
pub fn hint(words: &[String], dead: Option<u32>, scouts: &Scouts) -> Option<String> {
    let dead = dead?;
    let path = scouts.pid_file(named(words), dead)?.show();
    Some(format!(
        "{path} holds the process id of the daemon that died ({dead}): remove it, and have the daemon write none"
    ))
}

/// The paths that some words name, those that were said last first.
fn named(words: &[String]) -> Vec<OsText> {
    let quotes = |c: char| "\"'`()[]<>,;:.".contains(c);
    let parts = words.iter().flat_map(|line| line.split_whitespace().take(MOST_WORDS));
    let paths = parts.map(|word| word.trim_matches(quotes)).filter(|word| word.starts_with('/'));
    let paths: Vec<&str> = paths.collect();
    let mut last: Vec<&str> = Vec::new();
    for path in paths.into_iter().rev() {
        if last.len() < MOST_PATHS && !last.contains(&path) {
            last.push(path);
        }
    }
    last.into_iter().map(|path| Path::new(path).into()).collect()
}

/// Which of `paths` leads to a file that holds the number of process `pid`.
pub(crate) fn find(paths: &[OsText], pid: u32) -> Option<OsText> {
    paths.iter().find(|path| holds(path.as_path()) == Some(pid)).cloned()
}

/// The process id that a file holds, and nothing else.
fn holds(path: &Path) -> Option<u32> {
    let file = open_regular(path, LONGEST)?;
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_the_dead_daemons_own_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("daemon.pid");
        std::fs::write(&path, "4711\n").unwrap();
        let words = vec!["starting".into(), format!("error: '{}': File exists", path.display())];
        let named = super::named(&words);
        assert_eq!(named, [path.as_path().into()]);
        let find = |dead| super::find(&named, dead);
        assert_eq!((find(4711), find(4712)), (named.first().cloned(), None));
        std::fs::write(&path, "4711 and much more than a number of a process").unwrap();
        assert_eq!(find(4711), None);
        let many: Vec<_> = (0..99).map(|n| format!("/a/{n} /b")).collect();
        let last = ["/b", "/a/98", "/a/97", "/a/96", "/a/95", "/a/94", "/a/93", "/a/92"];
        assert_eq!(super::named(&many), last.map(|path| std::path::Path::new(path).into()));
        assert_eq!(last.len(), super::MOST_PATHS);
    }
}

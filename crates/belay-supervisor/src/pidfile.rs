//! A daemon that does not start because of a file in which the one before it has left its process id: many write one, and take
//! its presence for a daemon that runs. belay removes nothing of a daemon's, but says so.

use crate::autopsy::open::open_regular;
use std::io::Read;
use std::path::Path;

/// Longer files hold more than a process id.
const LONGEST: u64 = 32;
/// Words of a line that are looked at.
const MOST_WORDS: usize = 64;

/// What to do about such a file, if one of the daemon's last `words` names it. `dead`: the process that served last.
pub fn hint(words: &[String], dead: Option<u32>) -> Option<String> {
    let dead = dead?;
    let quotes = |c: char| "\"'`()[]<>,;:.".contains(c);
    let parts = words.iter().flat_map(|line| line.split_whitespace().take(MOST_WORDS));
    let paths = parts.map(|word| word.trim_matches(quotes)).filter(|word| word.starts_with('/'));
    let path = paths.map(Path::new).find(|path| holds(path) == Some(dead))?;
    let path = path.display();
    Some(format!(
        "{path} holds the process id of the daemon that died ({dead}): remove it, and have the daemon write none"
    ))
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
        let hint = |dead| super::hint(&words, dead);
        assert!(hint(Some(4711)).is_some_and(|hint| hint.contains("daemon.pid")));
        assert_eq!((hint(Some(4712)), hint(None)), (None, None));
        std::fs::write(&path, "4711 and much more than a number of a process").unwrap();
        assert_eq!(hint(Some(4711)), None);
    }
}

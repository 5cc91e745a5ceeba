//! `-o allow_other`: what a daemon is mounted with that others are to see, and what ordinary users
//! need for it.

pub use belay_sys::users_may_let_others_in as is_allowed;

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What is missing.
pub const MISSING: &str =
    "this daemon asks for -o allow_other, which /etc/fuse.conf does not allow, so it cannot mount";
/// What helps.
pub const REMEDY: &str = "as root, add a line user_allow_other to /etc/fuse.conf; or do without (bindfs: --no-allow-other)";

/// Whether a daemon with this command line is going to mount with it, or the like. bindfs does so
/// unasked.
pub fn is_asked_for<'a>(command: impl IntoIterator<Item = &'a OsString>) -> bool {
    let mut words = command.into_iter();
    let name = words.next().map(Path::new).and_then(Path::file_name);
    let is_bindfs = name == Some(OsStr::new("bindfs"));
    let options = |word: &OsString| {
        let text = word.to_string_lossy();
        let text = text.strip_prefix("--").or(text.strip_prefix("-o")).unwrap_or(&text);
        text.split(',').map(str::to_owned).collect::<Vec<_>>()
    };
    let options: Vec<String> = words.flat_map(options).collect();
    let has = |name: &str| options.iter().any(|option| option == name);
    has("allow_other") || has("allow_root") || (is_bindfs && !has("no-allow-other"))
}

/// What to do, if a daemon that did not come to mount says in one of its last `words` that it
/// failed of that.
pub fn hint(words: &[String]) -> Option<String> {
    let names_it = |line: &String| line.contains("user_allow_other");
    words.iter().any(names_it).then(|| format!("{MISSING}: {REMEDY}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_it_is_known_by_options_and_words() {
        let asks = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            is_asked_for(&words)
        };
        assert!(asks("sshfs h: /mnt -o ro,allow_other") && asks("d -oallow_root /mnt"));
        assert!(asks("/usr/bin/bindfs /a /mnt") && !asks("bindfs --no-allow-other /a /mnt"));
        assert!(!asks("sshfs h: /mnt -o ro") && !asks(""));
        let said = "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf";
        assert!(hint(&[said.to_owned()]).is_some_and(|hint| hint.contains(REMEDY)));
        assert_eq!(hint(&["no such host".to_owned()]), None);
    }
}

//! Programs that start others, told by what they are: nobody has a list of all. This is a guess, so
//! nothing is refused for it.
//!
//! A program that speaks to FUSE has words for it in its file, be it by the names of what it calls.
//! One that has none, and has a program that does among its arguments, most probably starts that.

use super::binary::{self, Kind};
use super::{libraries, script};
use belay_supervisor::outside::{self, From};
use belay_supervisor::text::command_line;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Largest file in which words are looked for; one that is larger may have any.
const LARGEST: u64 = 256 << 20;
/// The same of a script.
const LARGEST_SCRIPT: u64 = 1 << 20;
/// So many arguments are looked at.
const MOST: usize = 64;
/// What a daemon has in its file: its library, or what it does without one.
const WORDS: [&[u8]; 6] =
    [b"/dev/fuse", b"libfuse", b"fusermount", b"fuse_main", b"fuse_session_", b"fuse_mount"];

/// What a program has in its file that loads others.
const LOADS: &[u8] = b"dlopen";

/// How belay is to be called, if `program`, which is the file that the command's first word stands
/// for, looks like one that starts the daemon.
pub fn remedy(program: &Path, command: &[OsString]) -> Option<String> {
    // A script's interpreter is a daemon by its script.
    if binary::classify(program).ok()? != Kind::Dynamic || has_words(program) {
        return None;
    }
    for (at, word) in command.iter().enumerate().skip(1).take(MOST) {
        let (before, rest) = (command.get(..at)?, command.get(at..)?);
        if is_daemon(program, rest) {
            let before = command_line(before.iter().map(OsString::as_os_str));
            let rest = command_line(rest.iter().map(OsString::as_os_str));
            return Some(format!("{before} belay run -- {rest}"));
        }
        // One word may be a whole command line.
        let words = word.as_bytes().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let words: Vec<_> = words.take(MOST).map(|word| OsStr::from_bytes(word).into()).collect();
        if words.len() > 1 && is_daemon(program, &words) {
            let before = command_line(before.iter().map(OsString::as_os_str));
            return Some(format!("{before} 'belay run -- {}'", word.display()));
        }
    }
    None
}

/// Whether a command line, one that `starter` was given, is that of a program that speaks to FUSE,
/// or of an interpreter with a script that does. A script that `starter` itself is the interpreter
/// of is none: that is how daemons are called.
fn is_daemon(starter: &Path, command: &[OsString]) -> bool {
    let Some((name, rest)) = command.split_first() else { return false };
    if name.as_bytes().starts_with(b"-") || Path::new(name).is_dir() {
        return false;
    }
    let Ok(program) = binary::find(name) else { return false };
    match binary::classify(&program) {
        Ok(Kind::Dynamic | Kind::Static | Kind::Go) => {
            let script = rest.iter().find(|word| !word.as_bytes().starts_with(b"-"));
            has_words(&program) || script.is_some_and(|script| is_script(Path::new(script)))
        }
        Ok(Kind::Script(_)) => {
            let same = |other: &Path| other.canonicalize().ok() == starter.canonicalize().ok();
            let interpreter = script::resolve(program.clone(), command);
            is_script(&program) && interpreter.is_ok_and(|(other, _)| !same(&other))
        }
        _ => false,
    }
}

/// Whether a program, or a library of its, has anything of FUSE in it, or what it does may be
/// elsewhere: in what it loads, as interpreters do, or in a library that is not found.
pub fn may_be_daemon(program: &Path) -> bool {
    let words = |bytes: &[u8]| WORDS.iter().chain([&LOADS]).any(|word| has(bytes, word));
    let Ok(Some(bytes)) = outside::read_if(program, From::Anybody, LARGEST) else { return true };
    if words(&bytes) {
        return true;
    }
    libraries::of(program).is_none_or(|all| all.iter().any(|library| has_words(library)))
}

fn has_words(path: &Path) -> bool {
    let Ok(bytes) = outside::read_if(path, From::Anybody, LARGEST) else { return false };
    bytes.is_none_or(|bytes| WORDS.iter().any(|word| has(&bytes, word)))
}

/// Whether that file is a text that speaks of FUSE.
fn is_script(path: &Path) -> bool {
    let bytes = outside::read(path, From::Anybody, LARGEST_SCRIPT);
    bytes.is_ok_and(|bytes| !bytes.contains(&0) && (has(&bytes, b"fuse") || has(&bytes, b"FUSE")))
}

fn has(bytes: &[u8], word: &[u8]) -> bool {
    memchr::memmem::find(bytes, word).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Where what it does may be elsewhere, nothing is said against a program.
    #[test]
    fn what_has_nothing_of_fuse_is_told_from_what_may_have() {
        let dir = tempfile::tempdir().expect("tempdir");
        let of = |more: &[u8]| {
            let path = dir.path().join("program");
            let mut bytes =
                fs::read(binary::find(OsStr::new("true")).expect("true")).expect("read");
            bytes.extend(more);
            fs::write(&path, bytes).expect("write");
            may_be_daemon(&path)
        };
        assert!(!of(b"") && of(b"\0libfuse3.so.3") && of(b"\0/dev/fuse") && of(b"\0dlopen"));
        assert!(may_be_daemon(&dir.path().join("none")));
    }

    #[test]
    fn who_starts_a_daemon_is_told_from_daemons() {
        let dir = tempfile::tempdir().expect("tempdir");
        let put = |name: &str, from: &str, more: &[u8]| {
            let path = dir.path().join(name);
            fs::copy(binary::find(OsStr::new(from)).expect("a program"), &path).expect("copy");
            let mut bytes = fs::read(&path).expect("read");
            bytes.extend(more);
            fs::write(&path, bytes).expect("write");
            path.display().to_string()
        };
        let (starter, daemon) =
            (put("starter", "true", b""), put("daemon", "true", b"\0libfuse.so"));
        let script = dir.path().join("script.py");
        fs::write(&script, "import fuse\n").expect("write");
        let script = script.display();
        let of = |line: String| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            remedy(Path::new(words.first().expect("a word")), &words)
        };
        let expected = format!("{starter} -x lock belay run -- {daemon} a b");
        assert_eq!(of(format!("{starter} -x lock {daemon} a b")), Some(expected));
        let expected = format!("{starter} belay run -- {starter} -u {script} mnt");
        assert_eq!(of(format!("{starter} {starter} -u {script} mnt")), Some(expected));
        for none in [
            format!("{daemon} {daemon} /mnt"),
            format!("{starter} {script} /mnt"),
            format!("{starter} cat /mnt"),
            format!("{starter} -{daemon} /mnt"),
            starter.clone(),
        ] {
            assert_eq!(of(none.clone()), None, "{none}");
        }
        let words: Vec<OsString> =
            vec![starter.clone().into(), "-c".into(), format!("{daemon} a").into()];
        let expected = format!("{starter} -c 'belay run -- {daemon} a'");
        assert_eq!(remedy(Path::new(&starter), &words), Some(expected));
    }
}

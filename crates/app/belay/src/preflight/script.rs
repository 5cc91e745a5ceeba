//! Scripts: what the kernel starts for them, and whether that is the daemon.

use super::binary::{self, Kind};
use belay_supervisor::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// As many scripts may be each other's interpreters: as many as the kernel follows.
const CHAIN: usize = 4;

/// Interpreters of scripts that start a daemon, and are none themselves.
const SHELLS: [&str; 14] = [
    "ash", "awk", "bash", "busybox", "csh", "dash", "fish", "gawk", "ksh", "make", "mawk", "mksh",
    "tcsh", "zsh",
];

/// The program that runs `program`, and its words: for a script the interpreter, as the kernel has
/// it. A script that can be no daemon itself is left as it is, to be refused.
///
/// # Errors
/// If there is no such interpreter, or the scripts are too many.
pub fn resolve(program: PathBuf, command: &[OsString]) -> Result<(PathBuf, Vec<OsString>)> {
    let (mut program, mut words) = (program, command.to_vec());
    for _ in 0..=CHAIN {
        let Kind::Script(line) = binary::classify(&program)? else { return Ok((program, words)) };
        let Some((interpreter, before)) = interpreter(&line) else { return Ok((program, words)) };
        let found = binary::find(&interpreter).map_err(|why| {
            Error::refused(
                program.display().to_string(),
                format!("its interpreter cannot be run: {why}"),
                "install that, or correct the script's first line",
            )
        })?;
        if is_shell(&found) {
            return Ok((program, words));
        }
        let script = std::mem::replace(&mut program, found);
        let arguments = words.into_iter().skip(1);
        let first = [interpreter].into_iter().chain(before).chain([script.into_os_string()]);
        words = first.chain(arguments).collect();
    }
    Err(Error::refused(
        program.display().to_string(),
        "its interpreter is a script, of which the interpreter is one too, and so on",
        "name a program as the script's interpreter",
    ))
}

fn is_shell(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    binary::is_wrapper(path) || name.is_some_and(|name| SHELLS.contains(&name))
}

/// The interpreter that a script's first line names, and what comes between it and the script. That
/// of env(1), which would become another program, is what env would look for; `None` if that is not
/// simply a name.
fn interpreter(line: &str) -> Option<(OsString, Vec<OsString>)> {
    let (first, rest) = match line.split_once([' ', '\t']) {
        Some((first, rest)) => (first, rest.trim()),
        None => (line, ""),
    };
    if first.is_empty() {
        return None;
    }
    let one = |word: &str| OsStr::from_bytes(word.as_bytes()).to_owned();
    if Path::new(first).file_name() != Some(OsStr::new("env")) {
        if !first.contains('/') {
            return None; // a name that depends on where the caller is
        }
        // All that follows is one word.
        let before = if rest.is_empty() { vec![] } else { vec![one(rest)] };
        return Some((one(first), before));
    }
    let (name, before) = match rest.strip_prefix("-S").or(rest.strip_prefix("--split-string=")) {
        None => (rest, vec![]),
        Some(rest) => {
            let mut words = rest.split_ascii_whitespace();
            let name = words.next()?;
            (name, words.map(one).collect())
        }
    };
    // Quotes, variables and options are env's to understand.
    let odd = |word: &str| word.contains(['=', '"', '\'', '\\', '$', ' ', '\t']);
    let plain = |word: &OsString| word.to_str().is_some_and(|word| !odd(word));
    (!name.is_empty() && !name.starts_with('-') && !odd(name) && before.iter().all(plain))
        .then(|| (one(name), before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn names(line: &str) -> Option<Vec<String>> {
        let (first, before) = interpreter(line)?;
        let all = [first].into_iter().chain(before);
        Some(all.map(|word| word.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn first_lines_are_read_as_the_kernel_and_env_do() {
        let words = |line| names(line).unwrap_or_default();
        assert_eq!(words("/usr/bin/python3"), ["/usr/bin/python3"]);
        assert_eq!(words("/usr/bin/perl -w -T"), ["/usr/bin/perl", "-w -T"]);
        assert_eq!(words("/usr/bin/env python3"), ["python3"]);
        assert_eq!(words("/usr/bin/env -S python3 -u -B"), ["python3", "-u", "-B"]);
        for line in ["", "/usr/bin/env", "/usr/bin/env A=b x", "/usr/bin/env -i x", "env -S 'a b'"]
        {
            assert_eq!(names(line), None, "{line}");
        }
    }

    #[test]
    fn scripts_become_their_interpreters() {
        let dir = tempfile::tempdir().expect("tempdir");
        let make = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).expect("write");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
            path
        };
        let interpreter = std::env::current_exe().expect("me");
        let one = make("one", &format!("#!{} -x\n", interpreter.display()));
        let two = make("two", &format!("#! {}\n", one.display()));
        let given = [OsString::from("./two"), "mnt".into()];
        let (program, words) = resolve(two.clone(), &given).expect("resolve");
        assert_eq!(program, interpreter);
        let wanted: [&OsStr; 5] = [
            interpreter.as_os_str(),
            OsStr::new("-x"),
            one.as_os_str(),
            two.as_os_str(),
            OsStr::new("mnt"),
        ];
        assert_eq!(words, wanted);
        for line in ["/bin/sh", "/usr/bin/env bash", "/usr/bin/env A=1 x"] {
            let shell = make("shell", &format!("#!{line}\n"));
            let same = resolve(shell.clone(), &given).expect("resolve");
            assert_eq!(same, (shell, given.to_vec()), "{line}");
        }
        let itself = dir.path().join("itself");
        make("itself", &format!("#!{}\n", itself.display()));
        assert!(resolve(itself, &given).is_err(), "no end");
        let nowhere = make("nowhere", "#!/no/such/interpreter\n");
        let error = resolve(nowhere, &given).expect_err("an error").to_string();
        assert!(error.contains("/no/such/interpreter"), "{error}");
    }
}

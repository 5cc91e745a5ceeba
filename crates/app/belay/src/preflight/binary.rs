//! The daemon's program: found, and of a kind that can be held.

use belay_supervisor::{Error, Result, outside, rights};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, elf};
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest program file that is looked at.
pub(super) const LARGEST: u64 = 1 << 30;
/// Why no program is found by its name.
pub const NO_PATH: &str = "PATH is not set";

/// How much of a file is read to see whether it may be a program; a script's first line is shorter.
const START: u64 = 4096;

/// What kind of program a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A dynamically linked program of this machine: it can be held.
    Dynamic,
    /// Linked statically: no library can be preloaded, so the relay holds it.
    Static,
    /// Written in Go: its system calls bypass every library, so the relay holds it.
    Go,
    /// A script, with its interpreter.
    Script(String),
    /// A program for another kind of processor, or of 32 bits.
    Foreign,
    /// No program.
    Other,
}

/// Finds the program that `name` stands for, as a shell would.
///
/// # Errors
/// If there is none, or it may not be run.
pub fn find(name: &OsStr) -> Result<PathBuf> {
    let shown = name.to_string_lossy();
    let runnable = |path: &Path| {
        let mode = rustix::fs::Access::EXEC_OK;
        path.is_file() && rustix::fs::access(path, mode).is_ok()
    };
    if shown.contains('/') {
        let path = std::path::absolute(Path::new(name))
            .map_err(|e| Error::system("find", shown.to_string(), e, "check the path"))?;
        return if runnable(&path) {
            Ok(path)
        } else if path.exists() {
            Err(Error::refused(
                shown,
                "it is not an executable file",
                "check the path and its mode",
            ))
        } else {
            Err(Error::refused(shown, "no such program", "check the path"))
        };
    }
    if name.is_empty() {
        return Err(Error::refused(
            "the daemon",
            "its name is empty",
            "name its program behind `--`",
        ));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if path.is_empty() {
        return Err(Error::refused(
            shown,
            NO_PATH,
            "set PATH, or give the full path of its program",
        ));
    }
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| runnable(path));
    // An entry of PATH may be relative.
    found.map(|path| std::path::absolute(&path).unwrap_or(path)).ok_or_else(|| {
        let install = "install the daemon, or give the full path of its program";
        Error::refused(shown, "no such program in PATH", install)
    })
}

/// Tells what kind of program is in the file `path`.
///
/// # Errors
/// Those of reading it.
pub fn classify(path: &Path) -> Result<Kind> {
    let wrap = |e| Error::system("read", path.display().to_string(), e, "check its mode");
    // Opened as what it is, not as what its name has led to before.
    let file = outside::open_regular(path, outside::From::Anybody).map_err(wrap)?;
    if file.metadata().map_err(wrap)?.len() > LARGEST {
        return Ok(Kind::Other);
    }
    let mut bytes = Vec::new();
    (&file).take(START).read_to_end(&mut bytes).map_err(wrap)?;
    // Of what is no program no more is read.
    if bytes.starts_with(&elf::ELFMAG) {
        (&file).take(LARGEST).read_to_end(&mut bytes).map_err(wrap)?;
    }
    Ok(classify_bytes(&bytes))
}

fn classify_bytes(bytes: &[u8]) -> Kind {
    if let Some(rest) = bytes.strip_prefix(b"#!") {
        let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = line.get(..256).unwrap_or(line);
        return Kind::Script(String::from_utf8_lossy(line).trim().to_owned());
    }
    if !bytes.starts_with(&elf::ELFMAG) {
        return Kind::Other;
    }
    let Ok(file) = ElfFile64::<Endianness>::parse(bytes) else {
        return Kind::Foreign;
    };
    let endian = file.endian();
    let header = file.elf_header();
    if header.e_machine(endian) != machine() {
        return Kind::Foreign;
    }
    if !matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN) {
        return Kind::Other;
    }
    let go = [".go.buildinfo", ".note.go.buildid", ".gopclntab"];
    let is_go = |name: &str| go.iter().any(|section| name.contains(section));
    if file.sections().any(|section| section.name().is_ok_and(is_go)) {
        return Kind::Go;
    }
    let interpreted =
        file.elf_program_headers().iter().any(|header| header.p_type(endian) == elf::PT_INTERP);
    if interpreted { Kind::Dynamic } else { Kind::Static }
}

/// Programs that become another one, or start one, which then is not held.
const WRAPPERS: [&str; 20] = [
    "bash", "chrt", "dash", "env", "ionice", "nice", "nohup", "nsenter", "numactl", "runuser",
    "setpriv", "setsid", "sh", "stdbuf", "strace", "su", "sudo", "taskset", "timeout", "unshare",
];

/// Whether a program is there to start others.
pub fn is_wrapper(path: &Path) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| WRAPPERS.contains(&name))
}

fn machine() -> u16 {
    match std::env::consts::ARCH {
        "x86_64" => elf::EM_X86_64,
        "aarch64" => elf::EM_AARCH64,
        "riscv64" => elf::EM_RISCV,
        _ => elf::EM_NONE,
    }
}

/// How a daemon's process is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// By belay's library in it.
    Library,
    /// By the relay, which stands between the device and a daemon that no library can be loaded
    /// into, for this reason.
    Relay(&'static str),
}

/// Tells how a program is held.
///
/// # Errors
/// Why it cannot be, and what to do.
pub fn check(path: &Path) -> Result<Holding> {
    let refuse =
        |why: &str, remedy: &str| Err(Error::refused(path.display().to_string(), why, remedy));
    let holding = match classify(path)? {
        Kind::Dynamic => Holding::Library,
        Kind::Static => Holding::Relay("is linked statically"),
        // Also one that is linked dynamically calls the kernel past the C library.
        Kind::Go => Holding::Relay("is written in Go"),
        Kind::Script(interpreter) => {
            let why = format!("it is a script for {interpreter}, not a FUSE daemon itself");
            return refuse(&why, "name the daemon that the script starts, with its arguments");
        }
        Kind::Foreign => {
            let why = format!("it is not a 64-bit program for {}", std::env::consts::ARCH);
            return refuse(&why, "install the daemon for this machine");
        }
        Kind::Other => return refuse("it is no program", "name the daemon's own program file"),
    };
    let gained = rights::gained(path)
        .map_err(|e| Error::system("look at", path.display().to_string(), e, "check its mode"))?;
    if let Some(rights) = gained {
        return refuse(
            &format!("it is {rights}, so the system loads no library of yours into it"),
            "run belay as the program's owner (sudo belay run ...), or use a copy of it, which has no such rights",
        );
    }
    Ok(holding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    fn fails_with(result: Result<impl std::fmt::Debug>, part: &str) {
        let text = result.expect_err("an error").to_string();
        assert!(text.contains(part), "{text}");
    }

    #[test]
    fn programs_are_found_as_a_shell_would() {
        assert!(find(OsStr::new("true")).expect("true").is_absolute());
        fails_with(find(OsStr::new("no-such-daemon")), "no such program in PATH; install");
        fails_with(find(OsStr::new("/no/such/daemon")), "/no/such/daemon: no such program");
        fails_with(find(OsStr::new("/etc/passwd")), "not an executable");
        fails_with(find(OsStr::new("/etc/")), "not an executable");
    }

    #[test]
    fn dynamic_programs_can_be_held() {
        let path = find(OsStr::new("true")).expect("true");
        assert_eq!(classify(&path).expect("read"), Kind::Dynamic);
        assert_eq!(check(&path).expect("fine"), Holding::Library);
        assert_eq!(classify(&std::env::current_exe().expect("me")).expect("read"), Kind::Dynamic);
    }

    #[test]
    fn static_programs_are_held_by_the_relay() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (source, program) = (dir.path().join("a.c"), dir.path().join("a"));
        fs::write(&source, "int main(void) { return 0; }").expect("write");
        for option in ["-static", "-static-pie"] {
            let built =
                Command::new("cc").arg(option).arg("-o").arg(&program).arg(&source).output();
            if !built.is_ok_and(|output| output.status.success()) {
                eprintln!("skipped: no compiler that can link with {option}");
                continue;
            }
            assert_eq!(classify(&program).expect("read"), Kind::Static, "{option}");
            let how = check(&program).expect("fine");
            assert_eq!(how, Holding::Relay("is linked statically"), "{option}");
        }
    }

    #[test]
    fn everything_else_is_told_apart() {
        assert_eq!(classify_bytes(b"#! /bin/sh -e\nx"), Kind::Script("/bin/sh -e".into()));
        assert_eq!(classify_bytes(b""), Kind::Other);
        assert_eq!(classify_bytes(b"MZ"), Kind::Other);
        assert_eq!(classify_bytes(b"\x7fELF"), Kind::Foreign);
        let mut bytes = fs::read(std::env::current_exe().expect("me")).expect("read");
        for length in [5, 20, 63, 64, 100, 1000] {
            classify_bytes(bytes.get(..length).expect("part")); // does not panic
        }
        if let Some(class) = bytes.get_mut(4) {
            *class = 1; // 32 bits
        }
        assert_eq!(classify_bytes(&bytes), Kind::Foreign);
        let go = Path::new("/usr/local/go/bin/go");
        if go.exists() {
            assert_eq!(classify(go).expect("read"), Kind::Go);
        }
    }

    #[test]
    fn of_what_is_no_program_little_is_read() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("file");
        let file = fs::File::create(&path).expect("create");
        file.set_len(LARGEST).expect("a sparse file");
        assert_eq!(classify(&path).expect("read"), Kind::Other);
        let pipe = dir.path().join("pipe");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).expect("a pipe");
        fails_with(classify(&pipe), "no regular file");
    }
}

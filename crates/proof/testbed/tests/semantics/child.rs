//! A second process for what one process cannot show: this test program again, told by its environment what to do.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use belay_testbed::process::Process;

use crate::common::start;
use crate::system::{How, lock};

const VARIABLE: &str = "BELAY_SEMANTICS_CHILD";

/// Starts a child that does `what` with `path`.
pub fn child(what: &str, path: &Path) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child::entry", "--nocapture"])
        .env(VARIABLE, format!("{what}:{}", path.display()));
    start(&mut command)
}

/// Not a test: what a child does.
#[test]
fn entry() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    let (what, path) = text.split_once(':').unwrap();
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let say = || {
        std::io::stderr().flush().unwrap();
        let mut out = std::io::stdout();
        // The harness has said something already.
        out.write_all(b"\x01").unwrap();
        out.flush().unwrap();
    };
    match what {
        // Exit code: 10 locked, 11 somebody else has it.
        "posix-try" => std::process::exit(match lock(&file, How::Posix, libc::F_WRLCK, 0, 10) {
            Ok(()) => 10,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => 11,
            Err(error) => panic!("{error}"),
        }),
        "posix-wait" => {
            lock(&file, How::PosixWait, libc::F_WRLCK, 0, 10).unwrap();
            std::process::exit(10)
        }
        "posix-hold" | "ofd-hold" => {
            let how = if what == "ofd-hold" { How::Ofd } else { How::Posix };
            lock(&file, how, libc::F_WRLCK, 0, 10).unwrap();
            say();
            loop {
                std::thread::park();
            }
        }
        _ => panic!("{what}?"),
    }
}

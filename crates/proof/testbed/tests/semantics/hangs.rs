//! S98: daemons that hang with a request that belay has not seen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use belay_testbed::process::run;
use belay_testbed::{Signal, mounts};
use tempfile::TempDir;

use crate::common::{LIMIT, call, number, start, state_of, until, wait_for_sign};
use crate::custom::Custom;
use crate::journal::compile;

/// A mount by `held_up.c`, and the program that holds it up.
struct HeldUp {
    mount: Custom,
    between: PathBuf,
    _dir: TempDir,
}

impl HeldUp {
    fn start(policy: &str) -> Self {
        mounts::ensure_control_files().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let between = dir.path().join("between");
        compile("between.c", &between);
        let mount = Custom::start(&["--hang-timeout", "1s", "--policy", policy], |place| {
            let program = place.dir.join("held_up");
            compile("held_up.c", &program);
            let words = [program.into(), place.behind.into(), place.behind.into()];
            let options = ["-f".into(), "-s".into()];
            words.into_iter().chain([place.mountpoint.into()]).chain(options).collect()
        });
        mount.serves();
        Self { mount, between, _dir: dir }
    }

    /// A caller's request is read, and the daemon given `signal` before it sees that. The next daemon answers.
    fn is_noticed(&self, signal: Signal) {
        let mount = &self.mount;
        let before = mount.status().unwrap();
        let daemon = mount.pid("daemon");
        let words = [daemon.to_string(), signal.as_raw().to_string()];
        let mut between = start(Command::new(&self.between).args(words));
        wait_for_sign(&mut between);
        let path = mount.at("file");
        let caller = call(move || fs::metadata(path).map(|data| data.len()));
        assert!(between.wait(LIMIT).unwrap().is_some_and(|status| status.success()));
        let state = if signal == Signal::STOP { 'T' } else { 'S' };
        assert!(until(|| [state, 'X', 'Z'].contains(&state_of(daemon))));
        // There is nothing else that could wake anybody.
        assert_eq!(caller.result().unwrap(), 4, "{}", mount.log());
        let status = mount.wait_for("successor", |status| status["state"] == "serving");
        assert_eq!(number(&status, "/crashes"), number(&before, "/crashes") + 1);
        assert_eq!(number(&status, "/requests/failed"), 0, "{}", mount.log());
        assert!(mount.log().contains("in flight for too long"), "{}", mount.log());
        mount.serves();
    }
}

/// S98: the daemon is stopped between the kernel's answer to its read and its next instruction.
#[test]
fn s98_stopped_with_a_request_that_was_just_read() {
    for policy in ["reconcile", "journal"] {
        let held_up = HeldUp::start(policy);
        for _ in 0..2 {
            held_up.is_noticed(Signal::STOP);
        }
    }
}

/// S98: the same by a handler of a signal, which no look at the process shows.
#[test]
fn s98_a_handler_that_does_not_return() {
    HeldUp::start("reconcile").is_noticed(Signal::USR1);
}

/// S98: where the kernel does not tell how many requests it has, as in a container.
#[test]
fn s98_stopped_where_the_kernel_does_not_count() {
    let held_up = HeldUp::start("reconcile");
    let mount = mounts::find(&held_up.mount.mountpoint).unwrap().unwrap();
    let (major, minor) = mount.device;
    let control = format!("/sys/fs/fuse/connections/{}", major << 20 | minor);
    let empty = tempfile::tempdir().unwrap();
    let tool = |words: &[&Path]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        assert!(run(command, LIMIT).unwrap().status.success(), "{words:?}");
    };
    tool(&[Path::new("mount"), Path::new("--bind"), empty.path(), Path::new(&control)]);
    held_up.is_noticed(Signal::STOP);
    tool(&[Path::new("umount"), Path::new(&control)]);
}

/// S98: a stopped daemon that nobody asks for anything is left alone.
#[test]
fn s98_who_does_nothing_is_left_alone() {
    let held_up = HeldUp::start("reconcile");
    let daemon = held_up.mount.signal("daemon", Signal::STOP);
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert_eq!(state_of(daemon), 'T', "{}", held_up.mount.log());
    held_up.mount.signal("daemon", Signal::CONT);
    held_up.mount.serves();
    assert_eq!(number(&held_up.mount.status().unwrap(), "/crashes"), 0);
}

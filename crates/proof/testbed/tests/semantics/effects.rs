//! S3: requests in flight take effect exactly once. The daemon is held inside one system call, before or after its
//! effect, and killed there.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use belay_testbed::process::wait_for_exit;
use belay_testbed::{Kind, Signal};
use rustix::fs::{XattrFlags, removexattr, setxattr};

use crate::common::{Held, LIMIT, Trap, When, call, held, names, until};
use crate::custom::Custom;

/// One kind of request.
struct Case {
    name: &'static str,
    /// The daemon's system calls in which it is killed (strace's regular expression), and which of them.
    calls: &'static str,
    nth: u32,
    /// Makes what the request needs.
    prepare: fn(&Path) -> io::Result<()>,
    /// The request.
    act: fn(&Path) -> io::Result<()>,
    /// Whether it has taken effect.
    done: fn(&Path) -> bool,
    /// The names that are there in the end.
    left: &'static [&'static str],
}

fn append(dir: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(dir.join("a"))?;
    file.write_all(text.as_bytes())
}

fn size(dir: &Path) -> u64 {
    fs::metadata(dir.join("a")).map_or(0, |meta| meta.len())
}

fn nothing(_: &Path) -> io::Result<()> {
    Ok(())
}

fn file(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("a"), "one")
}

fn attribute(path: &Path) -> bool {
    rustix::fs::getxattr(path.join("a"), "user.x", &mut [0u8; 8]).is_ok()
}

const CASES: [Case; 12] = [
    Case {
        name: "mkdir",
        calls: "^mkdir",
        nth: 1,
        prepare: nothing,
        act: |dir| fs::create_dir(dir.join("a")),
        done: |dir| dir.join("a").is_dir(),
        left: &["a"],
    },
    Case {
        name: "rmdir",
        calls: "^(rmdir|unlinkat)$",
        nth: 1,
        prepare: |dir| fs::create_dir(dir.join("a")),
        act: |dir| fs::remove_dir(dir.join("a")),
        done: |dir| !dir.join("a").exists(),
        left: &[],
    },
    Case {
        name: "unlink",
        calls: "^unlink",
        nth: 1,
        prepare: file,
        act: |dir| fs::remove_file(dir.join("a")),
        done: |dir| !dir.join("a").exists(),
        left: &[],
    },
    Case {
        name: "rename",
        calls: "^rename",
        nth: 1,
        prepare: file,
        act: |dir| fs::rename(dir.join("a"), dir.join("b")),
        done: |dir| dir.join("b").exists(),
        left: &["b"],
    },
    Case {
        name: "rename over",
        calls: "^rename",
        nth: 1,
        prepare: |dir| file(dir).and_then(|()| fs::write(dir.join("b"), "to be replaced")),
        act: |dir| fs::rename(dir.join("a"), dir.join("b")),
        done: |dir| !dir.join("a").exists(),
        left: &["b"],
    },
    Case {
        name: "link",
        calls: "^link",
        nth: 1,
        prepare: file,
        act: |dir| fs::hard_link(dir.join("a"), dir.join("b")),
        done: |dir| dir.join("b").exists(),
        left: &["a", "b"],
    },
    Case {
        name: "symlink",
        calls: "^symlink",
        nth: 1,
        prepare: nothing,
        act: |dir| std::os::unix::fs::symlink("target", dir.join("a")),
        done: |dir| dir.join("a").is_symlink(),
        left: &["a"],
    },
    Case {
        name: "append",
        calls: "^pwrite",
        nth: 1,
        prepare: file,
        act: |dir| append(dir, " two"),
        done: |dir| size(dir) == 7,
        left: &["a"],
    },
    Case {
        name: "truncate",
        calls: "truncate$",
        nth: 1,
        prepare: file,
        act: |dir| OpenOptions::new().write(true).open(dir.join("a"))?.set_len(2),
        done: |dir| size(dir) == 2,
        left: &["a"],
    },
    Case {
        name: "setxattr, which must not exist",
        calls: "setxattr$",
        nth: 1,
        prepare: file,
        act: |dir| Ok(setxattr(dir.join("a"), "user.x", b"v", XattrFlags::CREATE)?),
        done: attribute,
        left: &["a"],
    },
    Case {
        name: "removexattr",
        calls: "removexattr$",
        nth: 1,
        prepare: |dir| {
            file(dir)?;
            Ok(setxattr(dir.join("a"), "user.x", b"v", XattrFlags::CREATE)?)
        },
        act: |dir| Ok(removexattr(dir.join("a"), "user.x")?),
        done: |dir| !attribute(dir),
        left: &["a"],
    },
    Case {
        name: "mknod",
        calls: "^mknod",
        nth: 1,
        prepare: nothing,
        act: |dir| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            Ok(rustix::fs::mknodat(
                rustix::fs::CWD,
                dir.join("a"),
                rustix::fs::FileType::Fifo,
                mode,
                0,
            )?)
        },
        done: |dir| dir.join("a").exists(),
        left: &["a"],
    },
];

fn killed_in(bed: &Held, case: &Case, when: When, successors: u32) {
    let what = format!("{} {:?}, {}, {successors} more", case.name, when, bed.bed.kind());
    let (front, behind) = (bed.at("dir"), bed.behind("dir"));
    fs::create_dir(&front).unwrap();
    (case.prepare)(&front).unwrap();
    bed.wait_until_closed();
    let daemon = bed.bed.daemon_pid().unwrap();
    let trap = Trap::set(daemon, case.calls, case.nth, when);
    let act = case.act;
    let caller = call({
        let front = front.clone();
        move || act(&front)
    });
    trap.await_catch();
    assert!(until(|| when == When::Before || (case.done)(&behind)), "{what}: no effect");
    bed.bed.kill_daemon(Signal::KILL).unwrap();
    drop(trap);
    assert!(wait_for_exit(daemon, LIMIT).unwrap());
    for _ in 0..successors {
        // Whatever it is doing, it dies.
        let next = bed.wait_for("successor", |status| {
            status["daemon"]["pid"].as_u64().is_some_and(|pid| pid != u64::from(daemon))
        });
        let pid = u32::try_from(crate::common::number(&next, "/daemon/pid")).unwrap();
        let _ = belay_testbed::process::kill(pid, Signal::KILL);
    }
    caller.result().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!((case.done)(&behind), "{what}: not done");
    assert_eq!(names(&front), case.left, "{what}");
    assert_eq!(names(&behind), case.left, "{what}");
    if case.name == "append" {
        assert_eq!(fs::read_to_string(behind.join("a")).unwrap(), "one two", "{what}");
    }
    fs::remove_dir_all(&front).unwrap();
}

fn all_cases(bed: &Held, successors: u32) {
    for case in &CASES {
        for when in [When::Before, When::After] {
            // libfuse 2's bindfs truncates by path or by handle, and knows no more than the others.
            killed_in(bed, case, when, successors);
        }
    }
}

const MANY: &[&str] = &["--max-crashes", "0"];

/// S3: passthrough_ll.
#[test]
fn s03_exactly_once_low_level() {
    let bed = held(Kind::PassthroughLl, &["cache=never", "timeout=0"], MANY);
    all_cases(&bed, 0);
    bed.stop();
}

/// S3: where the kernel resends nothing.
#[test]
fn s03_exactly_once_from_copies() {
    let arguments = ["--no-resend", "--max-crashes", "0"];
    let bed = held(Kind::PassthroughLl, &["cache=never", "timeout=0"], &arguments);
    all_cases(&bed, 0);
    bed.stop();
}

/// S3 and S31: the successors die as well.
#[test]
fn s03_exactly_once_with_three_crashes() {
    let bed = held(Kind::PassthroughLl, &["cache=never", "timeout=0"], MANY);
    all_cases(&bed, 2);
    bed.stop();
}

/// S3: a daemon that works by path.
#[test]
fn s03_exactly_once_high_level() {
    let bed = held(Kind::Bindfs, &["attr_timeout=0", "entry_timeout=0"], MANY);
    all_cases(&bed, 0);
    bed.stop();
}

/// S3: an exclusive creation succeeds once, and its handle is good.
#[test]
fn s03_exclusive_creation() {
    for arguments in [MANY, &["--no-resend"]] {
        for when in [When::Before, When::After] {
            // One thread, so that its calls can be counted: the kernel looks the name up first, with an openat.
            let mount = Custom::low_level(arguments, &["-s"]);
            mount.wait_for("rest", |status| status["open_handles"] == 0);
            let trap = Trap::set(mount.pid("daemon"), "^openat$", 2, when);
            let path = mount.at("new");
            let caller = call(move || {
                let mut file =
                    OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
                file.write_all(b"text")?;
                Ok::<_, io::Error>(file)
            });
            trap.await_catch();
            let arrived = || when == When::Before || mount.behind.join("new").exists();
            assert!(until(arrived), "no CREATE");
            mount.signal("daemon", Signal::KILL);
            drop(trap);
            let file = caller.result().unwrap();
            assert_eq!(crate::common::content(&file), "text");
            assert_eq!(fs::read_to_string(mount.behind.join("new")).unwrap(), "text");
        }
    }
}

/// S3: changes by many callers at once, each exactly once, under kills.
#[test]
fn s03_many_callers_under_kills() {
    for arguments in [MANY, &["--no-resend", "--max-crashes", "0"]] {
        let bed = held(Kind::PassthroughLl, &["cache=never", "timeout=0", "clone_fd"], arguments);
        let callers: Vec<_> = (0..8)
            .map(|number| {
                let dir = bed.at(&format!("d{number}"));
                call(move || {
                    fs::create_dir(&dir)?;
                    for round in 0..150 {
                        let (old, new) = (dir.join("a"), dir.join(format!("b{round}")));
                        OpenOptions::new()
                            .write(true)
                            .create_new(true)
                            .open(&old)?
                            .write_all(b"x")?;
                        fs::rename(&old, &new)?;
                        fs::hard_link(&new, &old)?;
                        fs::remove_file(&old)?;
                        if round % 3 == 0 {
                            fs::remove_file(&new)?;
                        }
                    }
                    Ok::<_, io::Error>(())
                })
            })
            .collect();
        let mut kills = 0;
        while callers.iter().any(|caller| !caller.is_done()) {
            bed.crash_and_recover();
            kills += 1;
        }
        for caller in callers {
            caller.result().unwrap_or_else(|error| panic!("after {kills} kills: {error}"));
        }
        for number in 0..8 {
            let left = names(&bed.behind(&format!("d{number}")));
            assert_eq!(left.len(), 100, "{left:?}");
        }
        bed.stop();
    }
}

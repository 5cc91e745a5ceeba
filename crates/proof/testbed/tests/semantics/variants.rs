//! S13, S24, S25, S27, S28: kinds and options of daemons.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use belay_testbed::process::run_ok;
use belay_testbed::{Kind, cache_dir};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::{call, content, held, names};
use crate::custom::{Custom, low_level_program};

/// Some of everything, by several threads at once; the result is compared with a plain directory's.
fn work(root: PathBuf, threads: usize) -> Vec<crate::common::Caller<std::io::Result<()>>> {
    (0..threads)
        .map(|number| {
            let dir = root.join(format!("t{number}"));
            call(move || {
                fs::create_dir(&dir)?;
                let mut log = OpenOptions::new().append(true).create(true).open(dir.join("log"))?;
                for round in 0..60 {
                    let path = dir.join(format!("f{round}"));
                    fs::write(&path, vec![b'x'; 3000 * (round % 5)])?;
                    assert_eq!(fs::read(&path)?.len(), 3000 * (round % 5));
                    let mut open = File::options().append(true).open(&path)?;
                    if round % 3 == 0 {
                        fs::remove_file(&path)?;
                    } else if round % 3 == 1 {
                        fs::rename(&path, dir.join(format!("g{round}")))?;
                    }
                    open.write_all(b"end")?;
                    writeln!(log, "{round} {}", open.metadata()?.len())?;
                    let count = fs::read_dir(&dir)?.count();
                    assert_eq!(count, 1 + round + 1 - (round / 3 + 1));
                }
                Ok(())
            })
        })
        .collect()
}

fn check(root: &std::path::Path, threads: usize) {
    let plain = tempfile::tempdir().unwrap();
    for caller in work(plain.path().to_path_buf(), 1) {
        caller.result().unwrap();
    }
    let expected = plain.path().join("t0");
    for number in 0..threads {
        let dir = root.join(format!("t{number}"));
        assert_eq!(names(&dir), names(&expected));
        for name in names(&dir) {
            let (one, two) =
                (fs::read(dir.join(&name)).unwrap(), fs::read(expected.join(&name)).unwrap());
            let shown =
                |bytes: &[u8]| (bytes.len(), bytes.iter().filter(|byte| **byte == b'x').count());
            assert!(one == two, "{root:?} {name}: {:?}, not {:?}", shown(&one), shown(&two));
        }
    }
}

/// S27: descriptors cloned per thread, eight callers.
#[test]
fn s27_clone_fd() {
    for arguments in [&["--max-crashes", "0"][..], &["--max-crashes", "0", "--no-resend"]] {
        let bed = held(Kind::PassthroughLl, &["clone_fd", "cache=auto"], arguments);
        let callers = work(bed.at(""), 8);
        while callers.iter().any(|caller| !caller.is_done()) {
            bed.crash_and_recover();
        }
        callers.into_iter().for_each(|caller| caller.result().unwrap());
        check(&bed.behind(""), 8);
        bed.stop();
    }
}

/// S27: one thread.
#[test]
fn s27_single_threaded() {
    for arguments in [&["--max-crashes", "0"][..], &["--max-crashes", "0", "--no-resend"]] {
        let mount = Custom::low_level(arguments, &["-s"]);
        let callers = work(mount.mountpoint.clone(), 3);
        while callers.iter().any(|caller| !caller.is_done()) {
            mount.crash_and_recover();
        }
        callers.into_iter().for_each(|caller| caller.result().unwrap());
        check(&mount.behind, 3);
    }
}

fn mixed_work(kind: Kind, options: &[&str]) {
    for arguments in [&["--max-crashes", "0"][..], &["--max-crashes", "0", "--no-resend"]] {
        let bed = held(kind, options, arguments);
        let callers = work(bed.at(""), 2);
        while callers.iter().any(|caller| !caller.is_done()) {
            bed.crash_and_recover();
        }
        for caller in callers {
            caller.result().unwrap_or_else(|error| panic!("{kind} {arguments:?}: {error}"));
        }
        bed.wait_until_closed();
        check(&bed.behind(""), 2);
        bed.stop();
    }
}

/// S28: other libraries, with and without the kernel's RESEND.
#[test]
fn s28_high_level_daemons() {
    mixed_work(Kind::Bindfs, &[]);
    mixed_work(Kind::PassthroughHl, &[]);
}

/// S28: a daemon with a network connection.
#[test]
fn s28_sshfs() {
    mixed_work(Kind::Sshfs, &[]);
}

/// S28: the same, each write awaited by sshfs before it is acknowledged.
#[test]
fn s28_sshfs_synchronous() {
    mixed_work(Kind::Sshfs, &["sshfs_sync"]);
}

/// S13: handles that were created with a mode that forbids them, also where each call reaches the daemon.
#[test]
fn s13_created_without_permission_to_open() {
    for kind in ["low level", "bindfs"] {
        let mount = Custom::start(&[], |place| {
            let mut words: Vec<OsString> = Vec::new();
            let source = format!("source={},cache=never,timeout=0", place.behind.display());
            if kind == "low level" {
                words.extend([low_level_program().into(), "-f".into()]);
                words.extend(["-o".into(), source.into(), place.mountpoint.into()]);
            } else {
                words.extend([
                    "bindfs".into(),
                    "-f".into(),
                    place.behind.into(),
                    place.mountpoint.into(),
                ]);
            }
            words
        });
        mount.serves();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(mount.at("new"))
            .unwrap();
        file.write_all(b"one").unwrap();
        mount.crash_and_recover();
        fs::set_permissions(mount.at("new"), fs::Permissions::from_mode(0o000)).unwrap();
        mount.crash_and_recover();
        file.write_all(b"two").unwrap();
        assert_eq!(content(&file), "onetwo");
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0);
    }
}

/// An example of libfuse that the beds do not have.
fn example(name: &str) -> PathBuf {
    let program = cache_dir().unwrap().join(name);
    if !program.is_file() {
        let mut shell = Command::new("sh");
        let source = format!("/usr/share/doc/libfuse3-dev/examples/{name}.c");
        let fresh = tempfile::NamedTempFile::new_in(cache_dir().unwrap()).unwrap();
        let line = format!(
            "cc -O2 {source} -o {} $(pkg-config fuse3 --cflags --libs)",
            fresh.path().display()
        );
        shell.args(["-c", &line]);
        run_ok(shell, Duration::from_secs(60)).unwrap();
        fs::copy(fresh.path(), program.with_extension("part")).unwrap();
        fs::set_permissions(program.with_extension("part"), fs::Permissions::from_mode(0o755))
            .unwrap();
        fs::rename(program.with_extension("part"), &program).unwrap();
    }
    program
}

/// S24: who polls a file is told by the successor, though it was the dead daemon that had promised.
#[test]
fn s24_pollers_are_woken() {
    let mount = Custom::start(&[], |place| {
        vec![example("poll").into(), "-f".into(), place.mountpoint.into()]
    });
    mount.wait_for("service", |status| status["state"] == "serving");
    let files: Vec<_> = (0..4).map(|n| File::open(mount.at(&format!("{n:X}"))).unwrap()).collect();
    let poller = call(move || {
        // Its producer makes one of sixteen files readable each quarter of a second.
        let limit = Timespec { tv_sec: 15, tv_nsec: 0 };
        for _ in 0..2 {
            let mut list: Vec<_> =
                files.iter().map(|file| PollFd::new(file, PollFlags::IN)).collect();
            assert!(poll(&mut list, Some(&limit)).unwrap() > 0, "nobody woke the poller");
        }
    });
    mount.wait_for("POLL", |status| crate::common::number(status, "/requests/total") > 4);
    mount.crash_and_recover();
    poller.result();
}

/// S25: a daemon's notifications about what an earlier generation handed out reach the right inode.
#[test]
fn s25_notifications() {
    let mount = Custom::start(&[], |place| {
        vec![
            example("notify_inval_inode").into(),
            "-f".into(),
            "--update-interval=1".into(),
            place.mountpoint.into(),
        ]
    });
    mount.wait_for("service", |status| status["state"] == "serving");
    let path = mount.at("current_time");
    let first = fs::read_to_string(&path).unwrap();
    mount.crash_and_recover();
    // The kernel caches the content until it is told that it has changed.
    let second = fs::read_to_string(&path).unwrap();
    let changed = crate::common::until(|| fs::read_to_string(&path).unwrap() != second);
    assert!(changed, "{first} and ever {second}");
}

//! S1, S22, S23: callers that wait.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use belay_testbed::process::kill;
use belay_testbed::{Kind, Signal};

use crate::common::{LIMIT, Trap, When, caching, call, held, start, state_of, uncached, until};

fn cat(path: &std::path::Path) -> Command {
    let mut command = Command::new("cat");
    command.arg(path);
    command
}

/// S1: every kind of call waits for the successor, none fails.
#[test]
fn s01_calls_in_the_blackout_wait() {
    for arguments in [&[][..], &["--no-resend"]] {
        let bed = held(Kind::PassthroughLl, &["cache=never", "timeout=0"], arguments);
        fs::write(bed.at("file"), "text").unwrap();
        fs::create_dir(bed.at("dir")).unwrap();
        let open = fs::File::open(bed.at("file")).unwrap();
        let blackout = bed.blackout();
        let (a, b, c, d) = (bed.at("file"), bed.at("new"), bed.at("dir"), bed.at("x"));
        let mut callers = vec![
            call(move || fs::read_to_string(a).map(drop)),
            call(move || fs::write(b, "new")),
            call(move || fs::remove_dir(c)),
            call(move || fs::create_dir(d)),
        ];
        callers.push(call(move || open.metadata().map(drop)));
        bed.wait_for_requests(4);
        assert!(callers.iter().all(|caller| !caller.is_done()));
        blackout.end();
        for caller in callers {
            caller.result().unwrap();
        }
        assert!(!bed.behind("dir").exists() && bed.behind("x").is_dir());
        assert_eq!(fs::read_to_string(bed.behind("new")).unwrap(), "new");
        bed.stop();
    }
}

/// S23: a caller can be killed during the blackout, and nothing remains of it.
#[test]
fn s23_killed_in_the_blackout() {
    for arguments in [&[][..], &["--no-resend"]] {
        let bed = held(Kind::PassthroughLl, &["cache=never", "timeout=0"], arguments);
        fs::write(bed.at("file"), "text").unwrap();
        let blackout = bed.blackout();
        let mut caller = start(&mut cat(&bed.at("file")));
        bed.wait_for_requests(1);
        kill(caller.pid(), Signal::KILL).unwrap();
        // The daemon has not read the request, so the kernel lets the caller go at once.
        let status = caller.wait(LIMIT).unwrap().expect("it does not die");
        assert_eq!(status.signal(), Some(9));
        blackout.end();
        assert_eq!(fs::read_to_string(bed.at("file")).unwrap(), "text");
        bed.wait_until_closed();
        bed.stop();
    }
}

/// S23: a caller whose request the dead daemon had is killed in the blackout. It is gone at the latest when its
/// request is settled, and what it had opened is closed again.
#[test]
fn s23_killed_with_a_request_that_the_daemon_had() {
    for arguments in [&[][..], &["--no-resend"]] {
        for when in [When::Before, When::After] {
            let bed = held(Kind::PassthroughLl, &["cache=always"], arguments);
            fs::write(bed.at("file"), "text").unwrap();
            bed.wait_until_closed();
            // The name is in the kernel's cache: the one openat is that of the OPEN.
            let trap = Trap::set(bed.bed.daemon_pid().unwrap(), "^openat$", 1, when);
            let mut caller = start(&mut cat(&bed.at("file")));
            trap.await_catch();
            let blackout = bed.blackout_of(Some(trap));
            kill(caller.pid(), Signal::KILL).unwrap();
            blackout.end();
            let status = caller.wait(LIMIT).unwrap().expect("it does not die");
            assert_eq!(status.signal(), Some(9));
            assert_eq!(fs::read_to_string(bed.at("file")).unwrap(), "text");
            bed.wait_until_closed();
            bed.stop();
        }
    }
}

/// S23: a caller that catches a signal during the blackout goes on as it would without.
#[test]
fn s23_interrupted_in_the_blackout() {
    let bed = uncached();
    fs::write(bed.at("file"), vec![b'x'; 1 << 20]).unwrap();
    let blackout = bed.blackout();
    let mut dd = Command::new("dd");
    let from = format!("if={}", bed.at("file").display());
    dd.args([&from, "of=/dev/null", "bs=64k", "status=none"]);
    let mut dd = start(&mut dd);
    bed.wait_for_requests(1);
    // dd has a handler for this one.
    kill(dd.pid(), Signal::USR1).unwrap();
    blackout.end();
    let status = dd.wait(LIMIT).unwrap().expect("it hangs");
    // Before dd has installed its handler, the signal kills it: then it waited in `execve`, not in a read.
    assert!(status.success() || status.signal() == Some(10), "{status}");
    bed.wait_until_closed();
    bed.stop();
}

/// S23: the request of an interrupted caller, which the daemon had, is settled like any other.
#[test]
fn s23_interrupted_with_a_request_that_the_daemon_had() {
    let bed = uncached();
    fs::write(bed.at("file"), "text").unwrap();
    bed.wait_until_closed();
    let trap = Trap::set(bed.bed.daemon_pid().unwrap(), "^pread64$|^splice$", 1, When::Before);
    let mut dd = Command::new("dd");
    dd.args([&format!("if={}", bed.at("file").display()), "status=none"]);
    let mut dd = start(&mut dd);
    trap.await_catch();
    assert!(until(|| matches!(state_of(dd.pid()), 'S' | 'D')));
    kill(dd.pid(), Signal::USR1).unwrap();
    bed.crash();
    drop(trap);
    assert!(dd.wait(LIMIT).unwrap().expect("it hangs").success());
    bed.stop();
}

/// S31: the successor is killed at once, many times in a row; who waits gets one answer in the end.
#[test]
fn s31_a_series_of_crashes() {
    let bed = held(Kind::PassthroughLl, &["cache=never", "timeout=0"], &["--max-crashes", "0"]);
    let root = bed.at("");
    let worker = call(move || {
        for round in 0..300 {
            let (old, new) = (root.join(format!("f{round}")), root.join(format!("g{round}")));
            fs::write(&old, "x")?;
            fs::rename(&old, &new)?;
            if round % 2 == 0 {
                fs::remove_file(&new)?;
            }
        }
        Ok::<_, std::io::Error>(())
    });
    while !worker.is_done() {
        // As soon as there is a process, whatever it has come to.
        let mut last = 0;
        for _ in 0..8 {
            let found = until(|| {
                bed.bed.belay_status().ok().and_then(|s| s["daemon"]["pid"].as_u64()).is_some_and(
                    |pid| {
                        let new = pid != last;
                        last = pid;
                        new
                    },
                )
            });
            assert!(found);
            let _ = kill(u32::try_from(last).unwrap(), Signal::KILL);
        }
        bed.wait_for("recovery", |status| status["state"] == "serving");
    }
    worker.result().unwrap();
    assert_eq!(crate::common::names(&bed.behind("")).len(), 150);
    assert!(bed.number("/crashes") >= 8);
    bed.stop();
}

/// S31: open files, a listing and a lock come through a series of crashes in which nobody asked for them.
#[test]
fn s31_state_that_several_generations_never_used() {
    let bed = caching();
    fs::create_dir(bed.at("dir")).unwrap();
    for n in 0..20 {
        fs::write(bed.at(&format!("dir/{n}")), format!("{n}")).unwrap();
    }
    let files: Vec<_> =
        (0..20).map(|n| fs::File::open(bed.at(&format!("dir/{n}"))).unwrap()).collect();
    rustix::fs::flock(&files[0], rustix::fs::FlockOperation::LockExclusive).unwrap();
    for n in 0..10 {
        fs::remove_file(bed.at(&format!("dir/{n}"))).unwrap();
    }
    for _ in 0..6 {
        bed.crash_and_recover();
    }
    for (n, file) in files.iter().enumerate() {
        assert_eq!(crate::common::content(file), format!("{n}"));
    }
    assert_eq!(crate::common::names(&bed.at("dir")).len(), 10);
    drop(files);
    assert!(until(|| crate::common::names(&bed.behind("dir")).len() == 10));
    bed.stop();
}

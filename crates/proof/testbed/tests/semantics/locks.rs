//! S21 and S22: locks that the daemon keeps.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use belay_testbed::Kind;
use rustix::fs::{FlockOperation, flock};

use crate::child::child;
use crate::common::{Held, LIMIT, call, held, uncached, until, wait_for_sign};
use crate::system::{How, lock};

/// bindfs, handing locks on to the backing directory.
fn forwarding() -> Held {
    let bed = held(Kind::Bindfs, &["multithreaded", "enable-lock-forwarding"], &[]);
    fs::write(bed.at("file"), "0123456789").unwrap();
    bed
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn exit_code(what: &str, path: &Path) -> Option<i32> {
    child(what, path).wait(LIMIT).unwrap().expect("the child hangs").code()
}

/// S21: flock.
#[test]
fn s21_flock_survives() {
    for bed in [uncached(), forwarding()] {
        fs::write(bed.at("file"), "x").unwrap();
        let (mine, other) = (open(&bed.at("file")), open(&bed.at("file")));
        flock(&mine, FlockOperation::LockExclusive).unwrap();
        for _ in 0..2 {
            assert!(flock(&other, FlockOperation::NonBlockingLockShared).is_err());
            bed.crash_and_recover();
            assert!(flock(&other, FlockOperation::NonBlockingLockShared).is_err());
            // In the backing directory, too, somebody has it.
            let behind = open(&bed.behind("file"));
            assert!(flock(&behind, FlockOperation::NonBlockingLockExclusive).is_err());
        }
        flock(&mine, FlockOperation::LockShared).unwrap();
        bed.crash_and_recover();
        flock(&other, FlockOperation::NonBlockingLockShared).unwrap();
        assert!(flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());
        flock(&mine, FlockOperation::Unlock).unwrap();
        bed.crash_and_recover();
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
        drop((mine, other));
        bed.stop();
    }
}

// bindfs takes byte-range locks as one process, whoever asks: they conflict with those of others in the backing
// directory, and that is where these tests look. It also drops them when a process that has only inherited the file
// closes it, as every child does that this program starts: so a child that starts none holds them.

/// S21: POSIX and OFD locks hold through crashes; those of a process that dies in the blackout are free.
#[test]
fn s21_byte_range_locks_survive() {
    for what in ["posix-hold", "ofd-hold"] {
        let bed = forwarding();
        let behind = bed.behind("file");
        let mut holder = child(what, &bed.at("file"));
        wait_for_sign(&mut holder);
        for round in 0..3 {
            assert_eq!(exit_code("posix-try", &behind), Some(11), "{what}, round {round}");
            bed.crash_and_recover();
        }
        assert_eq!(bed.number("/restored/locks"), 3);
        // Its range and kind are what they were.
        let other = open(&behind);
        lock(&other, How::Ofd, libc::F_WRLCK, 10, 5).unwrap();
        assert!(lock(&other, How::Ofd, libc::F_RDLCK, 9, 1).is_err());
        let blackout = bed.blackout();
        holder.child().kill().unwrap();
        blackout.end();
        drop(other);
        assert!(until(|| exit_code("posix-try", &behind) == Some(10)), "{what}");
        bed.stop();
    }
}

/// S22: who waits for a lock when the daemon dies waits on, and gets it.
#[test]
fn s22_a_blocked_posix_lock_is_got_after_the_crash() {
    let bed = forwarding();
    let mut holder = child("posix-hold", &bed.behind("file"));
    wait_for_sign(&mut holder);
    let mut waiter = child("posix-wait", &bed.at("file"));
    bed.wait_for("the lock request", |status| status["requests"]["in_flight"] == 1);
    for _ in 0..2 {
        bed.crash_and_recover();
        bed.wait_for("the lock request", |status| status["requests"]["in_flight"] == 1);
        assert!(waiter.exited().unwrap().is_none(), "it got a lock that another holds");
    }
    holder.child().kill().unwrap();
    let code = waiter.wait(LIMIT).unwrap().expect("the waiter hangs").code();
    assert_eq!(code, Some(10));
    bed.stop();
}

/// S22: the same with flock, in a multi-threaded daemon.
#[test]
fn s22_a_blocked_flock_is_got_after_the_crash() {
    let bed = uncached();
    fs::write(bed.at("file"), "x").unwrap();
    let (mine, other) = (open(&bed.at("file")), open(&bed.at("file")));
    flock(&mine, FlockOperation::LockExclusive).unwrap();
    let waiter = call(move || {
        flock(&other, FlockOperation::LockExclusive).unwrap();
        other
    });
    bed.wait_for("the lock request", |status| status["requests"]["in_flight"] == 1);
    bed.crash_and_recover();
    fs::write(bed.at("meanwhile"), "x").unwrap();
    assert!(!waiter.is_done(), "it got a lock that another holds");
    flock(&mine, FlockOperation::Unlock).unwrap();
    let other = waiter.result();
    assert!(flock(&mine, FlockOperation::NonBlockingLockShared).is_err());
    drop((mine, other));
    bed.stop();
}

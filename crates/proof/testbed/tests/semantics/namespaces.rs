//! S34: what the host unmounts ends, though successors have mount namespaces of their own (L11). Where the host's mounts
//! are shared the kernel sees to it, elsewhere belay; these tests hold for both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use belay_testbed::process::{kill, run_ok, wait_for_exit};
use belay_testbed::{Bed, BedOptions, Kind, Mode, Signal, mounts};
use tempfile::TempDir;

use crate::common::{Held, LIMIT, caching, held, state_of, until};
use crate::processes::{killed, ssh};

/// A daemon that belay has nothing to do with.
fn bare() -> Bed {
    Bed::start(Kind::Bindfs, &Mode::Bare, &BedOptions::default()).unwrap()
}

pub fn tool(words: &[&str], path: &Path) {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(path);
    run_ok(command, LIMIT).unwrap();
}

/// Mounts a tmpfs on `path`.
pub fn mount(path: &Path) {
    fs::create_dir_all(path).unwrap();
    tool(&["mount", "-t", "tmpfs", "none"], path);
}

/// A directory for mounts, which end with it.
pub struct Places(TempDir);

impl Places {
    pub fn new() -> Self {
        Self(tempfile::Builder::new().prefix("belay-places-").tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let list = mounts::list().unwrap_or_default();
        for mount in list.iter().rev().filter(|mount| mount.mountpoint.starts_with(self.0.path())) {
            mounts::unmount_by_force(&mount.mountpoint);
        }
    }
}

/// How many mounts a process sees at `path`.
fn seen(bed: &Held, path: &Path) -> usize {
    seen_by(bed.pid("daemon"), path)
}

fn seen_by(pid: u32, path: &Path) -> usize {
    let table = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let place = path.to_str();
    table.lines().filter(|line| line.split(' ').nth(4) == place).count()
}

/// Mounts a tmpfs in the successor's namespace.
fn mount_inside(bed: &Held, path: &Path) {
    let pid = bed.pid("daemon").to_string();
    tool(&["nsenter", "-t", &pid, "-m", "mount", "-t", "tmpfs", "none"], path);
}

/// S34: other daemons end with their mounts, and other file systems become free.
#[test]
fn s34_unmounts_reach_successors() {
    let (places, bare, bed) = (Places::new(), bare(), held(Kind::Bindfs, &[], &[]));
    let (below, above) = (places.path("disk"), places.path("disk/more"));
    mount(&below);
    mount(&above);
    let on_fuse = bare.root().join("inner");
    mount(&on_fuse);
    bed.crash_and_recover();
    for path in [bare.mountpoint(), &on_fuse, &below, &above] {
        assert_eq!(seen(&bed, path), 1, "{}", path.display());
    }
    tool(&["umount"], &above);
    assert!(until(|| seen(&bed, &above) == 0));
    assert_eq!(seen(&bed, &below), 1);
    tool(&["umount"], &below);
    assert!(until(|| seen(&bed, &below) == 0));
    tool(&["umount"], &on_fuse);
    let mountpoint = bare.mountpoint().to_owned();
    bare.stop().unwrap();
    assert_eq!(seen(&bed, &mountpoint) + seen(&bed, &on_fuse), 0);
    // In the next generation, and several at once.
    mount(&below);
    mount(&above);
    bed.crash_and_recover();
    assert_eq!(seen(&bed, &below) + seen(&bed, &above), 2);
    tool(&["umount", "-R"], &below);
    assert!(until(|| seen(&bed, &below) + seen(&bed, &above) == 0));
    bed.stop();
}

/// L11: what a successor has mounted itself is its own affair.
#[test]
fn s34_what_a_successor_has_mounted_stays() {
    let (places, bed) = (Places::new(), caching());
    let [own, carrying, carried, last] =
        ["own", "carrying", "carrying/carried", "last"].map(|name| places.path(name));
    mount(&carrying);
    mount(&last);
    for path in [&own, &carried] {
        fs::create_dir(path).unwrap();
    }
    bed.crash_and_recover();
    mount_inside(&bed, &own);
    mount_inside(&bed, &carried);
    mount(&own);
    for path in [&own, &carrying, &last] {
        tool(&["umount"], path);
    }
    // The last one tells that the others have been seen to.
    assert!(until(|| seen(&bed, &last) == 0));
    assert!(seen(&bed, &own) > 0);
    assert_eq!(seen(&bed, &carried), 1);
    assert_eq!(seen(&bed, &carrying), 1, "what is on it would have gone along");
    bed.stop();
}

/// S34, S32, S33: also when keeper and supervisor are new.
#[test]
fn s34_unmounts_reach_successors_after_a_takeover() {
    let (first, second, bed) = (bare(), bare(), caching());
    bed.crash_and_recover();
    assert_eq!(seen(&bed, first.mountpoint()) + seen(&bed, second.mountpoint()), 2);
    killed(&bed, "supervisor");
    first.stop().unwrap();
    killed(&bed, "keeper");
    killed(&bed, "supervisor");
    second.stop().unwrap();
    // Not stopped: its first keeper, whose status would be looked at, was killed.
}

/// S34, S32: also what is unmounted while there is no supervisor.
#[test]
fn s34_unmounts_without_a_supervisor_are_made_up_for() {
    let (bare, bed) = (bare(), caching());
    bed.crash_and_recover();
    assert_eq!(seen(&bed, bare.mountpoint()), 1);
    let (daemon, supervisor) = (bed.pid("daemon"), bed.pid("supervisor"));
    let (keeper, stopped) = (Stopped::new(bed.pid("keeper")), Stopped::new(supervisor));
    let mountpoint = bare.mountpoint().to_owned();
    mounts::unmount_clean(&mountpoint, LIMIT).unwrap();
    kill(supervisor, Signal::KILL).unwrap();
    assert!(wait_for_exit(supervisor, LIMIT).unwrap());
    assert_eq!(seen_by(daemon, &mountpoint), 1, "somebody was quicker");
    drop((keeper, stopped));
    assert!(until(|| seen_by(daemon, &mountpoint) == 0));
}

/// A process that does not run, as long as this lives.
pub struct Stopped(u32);

impl Stopped {
    pub fn new(pid: u32) -> Self {
        kill(pid, Signal::STOP).unwrap();
        assert!(until(|| state_of(pid) == 'T'));
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::CONT);
    }
}

/// S34, S38: what is left of a dead generation, here an ssh that does not end, lives in the dead one's namespace.
#[test]
fn s34_unmounts_reach_what_a_successor_has_left() {
    let bed = held(Kind::Sshfs, &[], &[]);
    // Belay kills it in time, which may be before the unmount on a machine that is busy: then nothing was seen.
    let seen = (0..5).any(|_| {
        let (bare, first) = (bare(), ssh(&bed));
        bed.crash_and_recover();
        assert!(wait_for_exit(first, LIMIT).unwrap());
        let left = Stopped::new(ssh(&bed));
        assert_eq!(seen_by(left.0, bare.mountpoint()), 1);
        let daemon = bed.crash();
        assert!(wait_for_exit(daemon, LIMIT).unwrap());
        bare.stop().unwrap();
        let was_left = state_of(left.0) == 'T';
        drop(left);
        bed.wait_for("recovery", |status| status["state"] == "serving");
        was_left
    });
    assert!(seen, "it was gone before it was looked for");
    bed.stop();
}

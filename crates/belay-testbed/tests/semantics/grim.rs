//! S34, S38, S106: daemons whose processes do not end as others do.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use belay_testbed::Signal;
use belay_testbed::process::kill;

use crate::common::until;
use crate::custom::Custom;
use crate::journal::compile;
use crate::user::User;

/// The processes that this program runs in, by their command lines: zombies have none.
fn running(program: &Path) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let start = format!("{}\0", program.display()).into_bytes();
    let is_one = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(&start))
    };
    pids.filter(is_one).collect()
}

/// Whether many looks find nothing that this program runs in: of a chain, one look may see only those that have ended.
fn has_ended(program: &Path) -> bool {
    (0..300).all(|_| running(program).is_empty())
}

/// A mount by `grim.c`.
struct Grim {
    mount: Custom,
    program: PathBuf,
}

impl Grim {
    fn start(arguments: &[&str]) -> Self {
        let mut found = PathBuf::new();
        let mount = Custom::start(arguments, |place| {
            found = place.dir.join("grim");
            compile("grim.c", &found);
            let over = place.dir.join("over");
            vec![found.clone().into(), over.into(), place.mountpoint.into(), "-f".into()]
        });
        mount.serves();
        Self { mount, program: found }
    }

    fn does(&self, what: &str) {
        fs::create_dir(self.mount.at(what)).unwrap();
    }
}

impl Drop for Grim {
    fn drop(&mut self) {
        // What does not end for belay ends for this.
        let _ = fs::write(self.program.with_file_name("over"), "");
        until(|| running(&self.program).iter().all(|pid| Some(*pid) == self.daemon()));
    }
}

impl Grim {
    fn daemon(&self) -> Option<u32> {
        let pid = self.mount.status()?.pointer("/daemon/pid")?.as_u64()?;
        u32::try_from(pid).ok()
    }
}

/// S38: processes that start the next one and end, faster than anybody can look, are gone before a successor answers.
#[test]
fn s38_a_chain_of_forks_ends_with_its_generation() {
    let grim = Grim::start(&["--max-crashes", "0"]);
    for _ in 0..4 {
        grim.does("forks");
        grim.mount.crash_and_recover();
        grim.mount.serves();
        assert_eq!(running(&grim.program), [grim.mount.pid("daemon")], "{}", grim.mount.log());
    }
    grim.does("forks");
    grim.mount.crash_and_recover();
    grim.mount.stop();
    assert!(has_ended(&grim.program), "{}", grim.mount.log());
}

/// S34: what a daemon has started ends with it if it is killed at the end, though nothing of it was ever fenced.
#[test]
fn s34_a_chain_of_forks_ends_with_a_daemon_that_is_killed_at_the_end() {
    let mut grim = Grim::start(&[]);
    grim.does("forks");
    assert!(until(|| running(&grim.program).len() > 1));
    grim.mount.signal("daemon", Signal::STOP);
    // A second wish, a moment after the first one, ends all patience.
    let belay = grim.mount.pid("supervisor");
    assert!(until(|| {
        let _ = kill(belay, Signal::TERM);
        grim.mount.exited().is_some()
    }));
    assert!(has_ended(&grim.program), "{}", grim.mount.log());
}

/// S34, S36: the same if belay gives the mount up.
#[test]
fn s34_a_chain_of_forks_ends_with_a_mount_that_is_given_up() {
    let mut grim = Grim::start(&["--max-crashes", "1", "--poison-after", "0"]);
    grim.does("mortal");
    assert!(fs::read(grim.mount.at("file")).is_err());
    assert_eq!(grim.mount.end().code(), Some(1), "{}", grim.mount.log());
    assert!(has_ended(&grim.program), "{}", grim.mount.log());
}

/// S38: the same for an ordinary user, whose successors have no namespace to be told by.
#[test]
fn s38_a_users_chain_of_forks_ends_with_its_generation() {
    let mut user = User::new();
    let built = user.home.join("grim");
    compile("grim.c", &built);
    let program = user.program(&built);
    let over = user.home.join("over");
    let words: [OsString; 4] =
        [program.clone().into(), over.clone().into(), user.mountpoint.clone().into(), "-f".into()];
    user.start(&["--max-crashes", "0"], &words);
    user.serves();
    for _ in 0..2 {
        let path = user.at("forks");
        user.does(move || fs::create_dir(path).unwrap());
        user.crash();
        let path = user.at("file");
        assert_eq!(user.does(move || fs::read_to_string(path).unwrap()), "text");
        let left = running(&program);
        if left != [user.pid("daemon")] {
            fs::write(&over, "").unwrap();
            panic!("{left:?} are there\n{}", user.log());
        }
    }
    user.stops_cleanly();
}

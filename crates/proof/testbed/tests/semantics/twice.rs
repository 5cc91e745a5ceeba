//! L18: daemons with two mounts. The first is held, and the other one is what it is without belay.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use belay_testbed::mounts;
use belay_testbed::process::run;
use serde_json::Value;

use crate::common::{LIMIT, names, until};
use crate::custom::Custom;
use crate::journal::compile;
use crate::user::User;

/// The other mount of such a daemon: what it shows, and where.
struct Other {
    folder: PathBuf,
    mountpoint: PathBuf,
}

impl Other {
    fn new(dir: &Path) -> Self {
        let other = Self { folder: dir.join("other"), mountpoint: dir.join("othermnt") };
        for path in [&other.folder, &other.mountpoint] {
            fs::create_dir(path).unwrap();
        }
        fs::write(other.folder.join("its"), "other").unwrap();
        other
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        mounts::unmount_by_force(&self.mountpoint);
    }
}

/// The same of an ordinary user.
fn other_of(user: &User) -> Other {
    let (folder, mountpoint) = (user.home.join("other"), user.home.join("othermnt"));
    let other = Other { folder, mountpoint };
    let made = [other.folder.clone(), other.mountpoint.clone()];
    user.does(move || {
        for path in &made {
            fs::create_dir(path).unwrap();
        }
        fs::write(made[0].join("its"), "other").unwrap();
    });
    other
}

/// Whether somebody serves that mount, and what it shows is what is in the folder.
fn shows(mountpoint: &Path, name: &str, text: &str) -> bool {
    fs::read_to_string(mountpoint.join(name)).is_ok_and(|found| found == text)
}

/// How many file systems are mounted there.
fn mounted(at: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place = at.to_str().unwrap();
    table.lines().filter(|line| line.split(' ').nth(4) == Some(place)).count()
}

fn is_told(status: &Value, place: &Path) -> bool {
    let place = place.display().to_string();
    status["degraded_reasons"].as_array().is_some_and(|reasons| {
        reasons.iter().any(|reason| {
            let what = reason["what"].as_str().unwrap_or_default();
            reason["kind"] == "second-mount"
                && what.contains(&place)
                && what.contains("it dies with the daemon")
        })
    })
}

fn words(program: &Path, how: &str, first: [&Path; 2], other: &Other) -> Vec<OsString> {
    let places = first.into_iter().chain([other.folder.as_path(), &other.mountpoint]);
    let words = [program.into(), OsString::from(how)].into_iter();
    words.chain(places.map(|path| path.as_os_str().to_owned())).collect()
}

/// A daemon of root's, killed three times: both trees are right in each life.
fn both_serve(how: &str) {
    let mut other = None;
    let mut held = Custom::start(&[], |place| {
        let program = place.dir.join("twice");
        compile("twice.c", &program);
        let other = other.insert(Other::new(place.dir));
        words(&program, how, [place.behind, place.mountpoint], other)
    });
    let other = other.unwrap();
    held.wait_for("service", |status| status["state"] == "serving");
    for life in 0..4 {
        let name = format!("new{life}");
        let said = || format!("{how} {life}: {}", held.log());
        assert!(shows(&held.mountpoint, "file", "text"), "{}", said());
        assert!(until(|| shows(&other.mountpoint, "its", "other")), "{}", said());
        assert_eq!((mounted(&held.mountpoint), mounted(&other.mountpoint)), (1, 1), "{}", said());
        fs::write(held.at(&name), "held").unwrap();
        fs::write(other.mountpoint.join(&name), "other").unwrap();
        assert_eq!(fs::read_to_string(held.behind.join(&name)).unwrap(), "held");
        assert_eq!(fs::read_to_string(other.folder.join(&name)).unwrap(), "other");
        assert_eq!(names(&held.mountpoint), names(&held.behind), "{}", said());
        assert_eq!(names(&other.mountpoint), names(&other.folder), "{}", said());
        held.wait_for("the other mount in the status", |s| is_told(s, &other.mountpoint));
        assert!(held.log().contains("second mount at"), "{}", said());
        if life < 3 {
            let open = fs::File::open(held.at("file")).unwrap();
            held.crash_and_recover();
            assert_eq!(open.metadata().unwrap().len(), 4, "{}", held.log());
        }
    }
    let status = held.status().unwrap();
    assert_eq!(status["crashes"], 3);
    assert_eq!(status["requests"]["failed"], 0);
    held.stop();
    held.end();
    assert_eq!((mounted(&held.mountpoint), mounted(&other.mountpoint)), (0, 0), "{}", held.log());
}

/// L18: both are mounted before any is served.
#[test]
fn l18_a_second_mount_serves_beside_the_held_one() {
    both_serve("early");
}

/// L18: the second comes when the first serves.
#[test]
fn l18_a_second_mount_that_comes_later() {
    both_serve("late");
}

/// L18: threads that clone their devices, of both mounts.
#[test]
fn l18_second_mounts_with_cloned_devices() {
    both_serve("cloned");
}

/// L18: both devices are opened before any is mounted, and one without waiting.
#[test]
fn l18_devices_that_are_opened_before_any_is_mounted() {
    both_serve("opened");
}

/// L18: the second is made by fsopen(2), fsmount(2) and move_mount(2).
#[test]
fn l18_a_second_mount_in_steps() {
    both_serve("steps");
}

/// L18: the second is there before the held one is: which is which is known when both are.
#[test]
fn l18_a_second_mount_that_overtakes_the_held_one() {
    both_serve("overtaken");
}

/// The daemon that mounts both at once: whichever is held, both show what they should, and go on to after a crash.
fn one_of_two_is_held(
    says: impl Fn(&Path, &[&str]) -> bool,
    see: impl Fn([PathBuf; 2]) -> [bool; 2],
    [first, second]: [&Path; 2],
    log: impl Fn() -> String,
) {
    let places = || [first.to_owned(), second.to_owned()];
    let is_held = |place: &Path| log().contains(&format!("mounted at {}: ", place.display()));
    assert!(until(|| is_held(first) || is_held(second)), "{}", log());
    let held = if is_held(first) { first } else { second };
    for _ in 0..3 {
        assert!(until(|| see(places()) == [true; 2]), "{}", log());
        assert_eq!((mounted(first), mounted(second)), (1, 1), "{}", log());
        assert!(says(held, &["crash"]), "{}", log());
    }
    assert!(until(|| see(places()) == [true; 2]), "{}", log());
    assert!(log().contains("second mount at"), "{}", log());
    assert!(says(held, &["stop", "--force"]));
}

fn see_both([first, second]: [PathBuf; 2]) -> [bool; 2] {
    [shows(&first, "file", "text"), shows(&second, "its", "other")]
}

/// L18: two threads mount at once.
#[test]
fn l18_of_two_at_once_one_is_held() {
    for _ in 0..4 {
        let mut other = None;
        let held = Custom::start(&[], |place| {
            let program = place.dir.join("twice");
            compile("twice.c", &program);
            let other = other.insert(Other::new(place.dir));
            words(&program, "racing", [place.behind, place.mountpoint], other)
        });
        let other = other.unwrap();
        let says = |place: &Path, words: &[&str]| {
            let words = words.iter().map(|word| word.as_ref()).chain([place.as_os_str()]);
            Custom::belay(&words.collect::<Vec<_>>()).status.success()
        };
        let places = [held.mountpoint.as_path(), &other.mountpoint];
        one_of_two_is_held(says, see_both, places, || held.log());
    }
}

/// L18: the same by an ordinary user, of whose two fusermounts each answers to its own thread.
#[test]
fn l18_of_two_of_ordinary_users_at_once_one_is_held() {
    for _ in 0..4 {
        let mut user = User::new();
        let other = other_of(&user);
        let program = user.home.join("bin/twice");
        compile("twice.c", &program);
        let line = words(&program, "racing", [&user.behind, &user.mountpoint], &other);
        user.start(&[], &line);
        let says = |place: &Path, words: &[&str]| {
            let mut command = user.command(user.home.join("bin/belay"));
            command.args(words).arg(place);
            run(command, LIMIT).unwrap().status.success()
        };
        let see = |places| user.does(move || see_both(places));
        one_of_two_is_held(says, see, [&user.mountpoint, &other.mountpoint], || user.log());
    }
}

/// L18: a successor that makes the other mount first.
#[test]
fn l18_the_held_mount_is_the_first_of_the_first_life() {
    both_serve("swapped");
}

/// L18: the same by an ordinary user, mounted by fusermount3.
#[test]
fn l18_second_mounts_of_ordinary_users() {
    for how in ["early", "late", "swapped"] {
        let mut user = User::new();
        let other = other_of(&user);
        let program = user.home.join("bin/twice");
        compile("twice.c", &program);
        let line = words(&program, how, [&user.behind, &user.mountpoint], &other);
        user.start(&[], &line);
        user.serves();
        for life in 0..3 {
            let places = [user.mountpoint.clone(), other.mountpoint.clone()];
            let (first, second) = user.does(move || {
                let first = shows(&places[0], "file", "text");
                (first, until(|| shows(&places[1], "its", "other")))
            });
            assert!(first && second, "{how} {life}: {first} {second}\n{}", user.log());
            let places = [user.mountpoint.clone(), other.mountpoint.clone()];
            let found = user.does(move || places.map(|place| names(&place)));
            assert_eq!(found, [names(&user.behind), names(&other.folder)], "{how} {life}");
            assert_eq!((mounted(&user.mountpoint), mounted(&other.mountpoint)), (1, 1));
            user.wait_for("the other mount in the status", |s| is_told(s, &other.mountpoint));
            if life < 2 {
                user.crash();
            }
        }
        assert_eq!(user.status().unwrap()["crashes"], 2, "{}", user.log());
        user.says(&["stop", "--force"]);
        user.end();
        assert_eq!(mounted(&user.mountpoint), 0, "{}", user.log());
    }
}

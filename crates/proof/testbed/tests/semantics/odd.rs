//! S72 to S75, S83, S84: daemons that speak an old minor version of the protocol, have one kind of listing only, take it ill to be
//! asked what the kernel would not have asked, go by who asks, or do not
//! have in one life what they had in another.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use belay_testbed::process::run;
use belay_testbed::{Belay, Signal};

use crate::common::{LIMIT, names, number, until, wait_for_sign};
use crate::custom::Custom;
use crate::journal::compile;

/// A mount by `odd.c` with these habits.
fn odd(arguments: &[&str], habits: &[&str]) -> Custom {
    let mount = start_odd(arguments, habits);
    assert!(until(|| mount.is_mounted()), "{}", mount.log());
    mount.wait_for("service", |status| status["state"] == "serving");
    mount
}

/// The same, which may not serve yet.
fn start_odd(arguments: &[&str], habits: &[&str]) -> Custom {
    Custom::start(arguments, |place| {
        let program = place.dir.join("odd");
        compile("odd.c", &program);
        let words = [program.into(), place.behind.into(), place.mountpoint.into()];
        words.into_iter().chain(habits.iter().map(Into::into)).collect()
    })
}

/// Does all that such a daemon can, and gives what was seen of it. `crash` is called in between.
fn work(root: &Path, crash: &dyn Fn()) -> Vec<String> {
    let mut seen = Vec::new();
    let dir = root.join("d");
    fs::create_dir(&dir).unwrap();
    crash();
    for i in 0..20 {
        fs::write(dir.join(format!("a-name-of-some-length-{i}")), i.to_string()).unwrap();
    }
    let one = dir.join("a-name-of-some-length-1");
    let mut file = OpenOptions::new().read(true).write(true).open(&one).unwrap();
    crash();
    file.write_all(b"more").unwrap();
    seen.push(fs::read_to_string(&one).unwrap());
    fs::set_permissions(&one, PermissionsExt::from_mode(0o640)).unwrap();
    seen.push(format!(
        "{:o} {}",
        fs::metadata(&one).unwrap().permissions().mode(),
        file.metadata().unwrap().len()
    ));
    let mut reader = fs::read_dir(&dir).unwrap();
    let mut listed: Vec<_> = reader.by_ref().take(3).map(|e| e.unwrap().file_name()).collect();
    crash();
    listed.extend(reader.map(|entry| entry.unwrap().file_name()));
    listed.sort();
    seen.push(format!("{listed:?}"));
    let name = |i: u32| dir.join(format!("a-name-of-some-length-{i}"));
    fs::rename(name(2), dir.join("b")).unwrap();
    crash();
    fs::rename(dir.join("b"), name(3)).unwrap();
    crash();
    fs::rename(name(3), name(4)).unwrap();
    seen.push(fs::read_to_string(name(4)).unwrap());
    symlink("target", dir.join("s")).unwrap();
    fs::hard_link(name(5), dir.join("l")).unwrap();
    let made = run(
        {
            let mut command = Command::new("mkfifo");
            command.arg(dir.join("p"));
            command
        },
        LIMIT,
    );
    assert!(made.unwrap().status.success());
    crash();
    seen.push(format!("{:?}", fs::read_link(dir.join("s")).unwrap()));
    // Open, and removed under the eyes of one daemon; closed under those of another.
    let held = File::open(name(6)).unwrap();
    fs::remove_file(name(6)).unwrap();
    crash();
    let mut text = [0; 1];
    held.read_exact_at(&mut text, 0).unwrap();
    seen.push(format!("{text:?}"));
    crash();
    drop(held);
    fs::write(dir.join("new"), "new").unwrap();
    crash();
    fs::remove_file(dir.join("new")).unwrap();
    for name in names(&dir) {
        fs::remove_file(dir.join(name)).unwrap();
    }
    fs::create_dir(dir.join("e")).unwrap();
    crash();
    fs::remove_dir(dir.join("e")).unwrap();
    crash();
    fs::remove_dir(&dir).unwrap();
    seen.push(format!("{:?}", names(root)));
    seen
}

/// Compares the mount under kills with a plain directory.
fn compare(arguments: &[&str], habits: &[&str]) {
    let plain = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::write(plain.path().join("file"), "text").unwrap();
    let wanted = work(plain.path(), &|| {});
    let mount = odd(arguments, habits);
    assert_eq!(
        work(&mount.mountpoint, &|| mount.crash_and_recover()),
        wanted,
        "{habits:?}\n{}",
        mount.log()
    );
    let status = mount.wait_for("end of all work", |status| {
        status["state"] == "serving" && status["open_handles"] == 0
    });
    // None but those that were asked for.
    assert_eq!(
        number(&status, "/crashes"),
        number(&status, "/planned"),
        "{habits:?}\n{}",
        mount.log()
    );
    assert_eq!(number(&status, "/requests/failed"), 0, "{}", mount.log());
    assert_eq!(names(&mount.behind), ["file"], "{}", mount.log());
}

/// S72: replies and requests of the length that belongs to the minor version that the daemon has answered INIT with.
#[test]
fn s72_daemons_of_old_minor_versions() {
    for minor in [3, 7, 8, 11, 22] {
        compare(&[], &[&format!("minor={minor}")]);
    }
    compare(&["--no-resend"], &["minor=8"]);
    compare(&["--policy", "journal"], &["minor=8"]);
}

/// S72: a minor version that the kernel does not have, with all features that it offers.
#[test]
fn s72_a_daemon_of_a_later_minor_version() {
    compare(&[], &["minor=99"]);
    compare(&[], &["minor=99", "plus"]);
}

/// S73: a listing goes on after a crash also where the daemon has READDIRPLUS alone, and its nodes are forgotten as often as
/// they were looked up.
#[test]
fn s73_daemons_with_one_kind_of_listing() {
    compare(&[], &["plus"]);
    compare(&["--no-resend"], &["plus"]);
}

/// S83: what the kernel has removed or renamed after a crash, though the new daemon was never asked to look it up, is looked
/// up first, belay's own hidden names too, and forgotten as often as it was looked up.
#[test]
fn s83_daemons_that_must_have_been_asked_for_a_name() {
    compare(&[], &["known"]);
    compare(&["--no-resend"], &["known"]);
    compare(&["--policy", "reconcile"], &["known", "plus"]);
    compare(&["--inode-numbers", "volatile"], &["known", "order"]);
}

/// S113: a daemon that mounts in steps (fsopen, fsconfig, fsmount, move_mount).
#[test]
fn s113_daemons_that_mount_in_steps() {
    compare(&[], &["steps"]);
    compare(&["--no-resend"], &["known", "steps"]);
    compare(&[], &["dup"]);
}

/// S113: what else a daemon moves by the same calls goes where it is to go, in each life, also by a number that the mount had.
#[test]
fn s113_what_is_no_fuse_mount_is_moved() {
    struct Beside(PathBuf);
    impl Drop for Beside {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
        }
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let beside = Beside(dir.path().to_owned());
    let mount = odd(&[], &["dup", &format!("beside={}", beside.0.display())]);
    assert_eq!(names(&beside.0), ["file"]);
    for _ in 0..2 {
        mount.crash_and_recover();
        assert_eq!(names(&mount.mountpoint), ["file"], "{}", mount.log());
        let status = mount.status().unwrap();
        assert_eq!(status["mountpoint"].as_str(), mount.mountpoint.to_str());
    }
    mount.stop();
}

/// S113: where the kernel gives no memory files that could be started (`vm.memfd_noexec`), which a PID namespace has for itself.
#[test]
fn s113_where_memory_files_cannot_be_started() {
    const STEPS: &str = r#"
        echo "$LEVEL" > /proc/sys/vm/memfd_noexec || exit 9
        "$BELAY" run -- "$ODD" back mnt steps & belay=$!
        until mountpoint -q mnt; do kill -0 $belay || exit 8; done
        "$BELAY" crash mnt && "$BELAY" crash mnt && cat mnt/file && "$BELAY" stop mnt && wait $belay"#;
    if !Path::new("/proc/sys/vm/memfd_noexec").exists() {
        eprintln!("skipped: a kernel before 6.3 gives any");
        return;
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = |name: &str| dir.path().join(name);
    ["back", "mnt", "state"].iter().for_each(|name| fs::create_dir(path(name)).unwrap());
    fs::write(path("back").join("file"), "text").unwrap();
    compile("odd.c", &path("odd"));
    for level in ["1", "2"] {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", STEPS]);
        command.env("LEVEL", level).env("BELAY", Belay::find().unwrap().command().get_program());
        command.env("ODD", path("odd")).env("BELAY_STATE_DIR", path("state"));
        command.current_dir(dir.path());
        let output = run(command, LIMIT).unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("text"), "{level}: {said}\n{errors}");
    }
}

/// S117: whoever goes into the background closes all descriptors that it does not know; belay's are not among them.
#[test]
fn s117_daemons_that_close_what_they_do_not_know() {
    for habit in ["closes", "closes_range", "closes_each", "closes_late"] {
        compare(&[], &[habit]);
    }
}

/// S117: a daemon that keeps its memory from being swapped out.
#[test]
fn s117_daemons_that_lock_their_memory() {
    compare(&[], &["locks"]);
}

/// S117: the device by another name than /dev/fuse is the device.
#[test]
fn s117_the_device_by_other_names() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (link, node) = (dir.path().join("link"), dir.path().join("node"));
    symlink("/dev/fuse", &link).unwrap();
    let mut mknod = Command::new("mknod");
    mknod.arg(&node).args(["c", "10", "229"]);
    assert!(run(mknod, LIMIT).unwrap().status.success());
    for name in ["/dev/../dev/./fuse", "fuse", link.to_str().unwrap(), node.to_str().unwrap()] {
        let mount = odd(&[], &[&format!("name={name}")]);
        mount.crash_and_recover();
        assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "text", "{name}");
        mount.stop();
        assert!(!mount.is_mounted(), "{name}");
    }
}

/// L46: a daemon that counts a link too many of an open file that another was renamed over is told of, once, and no other.
#[test]
fn s75_a_wrong_count_of_links_is_told() {
    for habits in [&["miscounts"][..], &[]] {
        let mount = odd(&[], habits);
        let told = |status: &Value| {
            let list = status["degraded_reasons"].as_array().unwrap();
            let list = list.iter().filter(|reason| reason["kind"] == "links");
            list.map(|reason| reason["what"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        for name in ["one", "two"] {
            fs::write(mount.at(name), "old").unwrap();
            fs::write(mount.at("new"), "new").unwrap();
            let file = File::open(mount.at(name)).unwrap();
            fs::rename(mount.at("new"), mount.at(name)).unwrap();
            assert_eq!(file.metadata().unwrap().nlink(), u64::from(!habits.is_empty()));
        }
        let wrong = !habits.is_empty();
        let status = mount.wait_for("word", |status| told(status).len() == usize::from(wrong));
        assert!(told(&status).iter().all(|what| what.starts_with("/one: ")), "{status}");
        assert_eq!(status["degraded"], wrong, "{status}");
        assert_eq!(mount.log().matches("counts 2 links").count(), usize::from(wrong));
    }
}

/// S113: the kernel may wait for the answer to INIT before mount(2) comes back (Linux 6.18): a second thread mounts then.
#[test]
fn s113_daemons_that_mount_while_they_serve() {
    compare(&[], &["sync"]);
    compare(&["--no-resend"], &["known", "sync"]);
}

/// Whether it serves, wherever it is: it has no place by which it could be asked for.
fn serves_somewhere(mount: &Custom) -> bool {
    let output = Custom::belay(&["status".as_ref(), "--json".as_ref()]);
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let place = mount.mountpoint.to_str().unwrap();
    all["mounts"].as_array().unwrap().iter().any(|status| {
        status["daemon"]["command"].as_str().unwrap().contains(place)
            && status["state"] == "serving"
    })
}

/// S113: the kernel asks the daemon before its file system has a place. That is found when it comes, and nothing else tells of it.
#[test]
fn s113_a_place_that_comes_after_the_first_answers() {
    let mount = start_odd(&[], &["late"]);
    assert!(until(|| serves_somewhere(&mount)), "{}", mount.log());
    assert!(!mount.is_mounted());
    fs::write(mount.behind.join("go"), "").unwrap();
    mount.wait_for("place", |status| status["state"] == "serving");
    for _ in 0..2 {
        mount.crash_and_recover();
        assert_eq!(names(&mount.mountpoint), ["file", "go"]);
    }
    mount.stop();
}

/// S112: a mount serves where it is to be found, not before: a script goes on with what is there.
#[test]
fn s112_a_place_that_comes_late_is_waited_for() {
    let mut mount = start_odd(&["--background"], &["late"]);
    assert!(until(|| serves_somewhere(&mount)), "{}", mount.log());
    assert!(mount.exited().is_none() && !mount.log().contains("mounted at"), "{}", mount.log());
    assert!(!mount.is_mounted());
    fs::write(mount.behind.join("go"), "").unwrap();
    assert_eq!(mount.end().code(), Some(0), "{}", mount.log());
    assert!(mount.is_mounted(), "{}", mount.log());
    let line = format!("mounted at {}, and held", mount.mountpoint.display());
    assert!(mount.log().contains(&line), "{}", mount.log());
    mount.stop();
}

/// S11: where numbers are given in the order in which files are met, a successor's first ones are those of other files, which it
/// has not met yet: none changes, and no two files have one. So with directories, links, and what is made meanwhile.
#[test]
fn s11_numbers_in_the_order_of_each_life() {
    let mount = odd(&["--inode-numbers", "volatile"], &["order"]);
    let behind = |name: &str| mount.behind.join(name);
    for i in 0..48 {
        match i % 4 {
            0 => fs::create_dir(behind(&format!("f{i}"))).unwrap(),
            1 if i % 8 == 1 => {
                fs::write(behind(&format!("f{i}")), "").unwrap();
                fs::hard_link(behind(&format!("f{i}")), behind(&format!("link{i}"))).unwrap();
            }
            _ => fs::write(behind(&format!("f{i}")), "").unwrap(),
        }
    }
    let mut known = HashMap::new();
    for life in 0..6 {
        // Those that no life was asked for yet come first.
        let mut asked: Vec<_> = (0..8 * (life + 1)).rev().map(|i| format!("f{i}")).collect();
        fs::create_dir(mount.at(&format!("made{life}"))).unwrap();
        asked.insert(0, format!("made{life}"));
        // The root is not asked for in the first life.
        if life > 0 {
            asked.insert(0, String::new());
        }
        for name in asked {
            let ino = fs::metadata(mount.at(&name)).unwrap().ino();
            let before = *known.entry(name.clone()).or_insert(ino);
            assert_eq!(before, ino, "{name} in life {life}\n{}", mount.log());
        }
        let numbers: HashSet<_> = known.values().collect();
        assert_eq!(numbers.len(), known.len(), "life {life}: {known:?}");
        mount.crash_and_recover();
    }
}

/// S11: the same with files that have several links each, whichever is asked for first: links of a file have one number, also those
/// that no life was asked for before, and files have two.
#[test]
fn s11_numbers_of_files_with_links() {
    let mount = odd(&["--inode-numbers", "volatile"], &["order"]);
    let links = ["a", "b", "c"];
    for file in 0..12 {
        let first = mount.behind.join(format!("a{file}"));
        fs::write(&first, "").unwrap();
        for link in &links[1..] {
            fs::hard_link(&first, mount.behind.join(format!("{link}{file}"))).unwrap();
        }
    }
    let mut known: HashMap<usize, u64> = HashMap::new();
    let mut owners: HashMap<u64, usize> = HashMap::new();
    for life in 0..8_usize {
        // Each life is asked for two more files, in an order of its own, and for another link of each first.
        let files = (2 * (life + 1)).min(12);
        for turn in 0..files {
            let file = (if life % 2 == 0 { files - 1 - turn } else { turn * 5 + life }) % files;
            for link in 0..=life.min(2) {
                let name = format!("{}{file}", links[(link + life + turn) % 3]);
                let ino = fs::metadata(mount.at(&name)).unwrap().ino();
                let before = *known.entry(file).or_insert(ino);
                assert_eq!(before, ino, "{name} in life {life}\n{}", mount.log());
                let owner = *owners.entry(ino).or_insert(file);
                assert_eq!(owner, file, "{name} in life {life}\n{}", mount.log());
            }
        }
        // And one that is made through the mount, of a file that has a number of an earlier life, perhaps.
        let made = mount.at(&format!("made{life}"));
        fs::hard_link(mount.at("a1"), &made).unwrap();
        assert_eq!(fs::metadata(made).unwrap().ino(), known[&1], "life {life}");
        mount.crash_and_recover();
    }
    assert_eq!(number(&mount.status().unwrap(), "/requests/failed"), 0, "{}", mount.log());
}

/// S11: directories that have other numbers in each life, and the root of all.
#[test]
fn s11_the_root_keeps_its_number() {
    let mount = odd(&["--inode-numbers", "volatile"], &["copies"]);
    let root = fs::metadata(&mount.mountpoint).unwrap().ino();
    for _ in 0..2 {
        mount.crash_and_recover();
        assert_eq!(fs::metadata(&mount.mountpoint).unwrap().ino(), root);
    }
}

/// S11: such a number is not taken for that of another link of a file.
#[test]
fn s11_numbers_of_another_life_lead_to_no_other_file() {
    let mount = odd(&["--inode-numbers", "volatile"], &["order"]);
    for i in 0..20 {
        let first = mount.behind.join(format!("a{i}"));
        fs::write(&first, i.to_string()).unwrap();
        fs::hard_link(&first, mount.behind.join(format!("b{i}"))).unwrap();
    }
    let reads = |name: char, i: u64| {
        let text = fs::read_to_string(mount.at(&format!("{name}{i}"))).unwrap();
        assert_eq!(text, i.to_string(), "{name}{i}\n{}", mount.log());
    };
    (0..20).for_each(|i| reads('a', i));
    for _ in 0..2 {
        mount.crash_and_recover();
        (0..20).rev().for_each(|i| reads('b', i));
        (0..20).for_each(|i| reads('a', i));
    }
}

/// S83: a kernel that knows the root's attributes opens it without asking for them.
#[test]
fn s83_the_root_is_asked_about_before_it_is_opened() {
    let mount = odd(&[], &["root"]);
    assert!(fs::metadata(&mount.mountpoint).unwrap().is_dir());
    let held = File::open(&mount.mountpoint).unwrap();
    for _ in 0..3 {
        mount.crash_and_recover();
        assert_eq!(names(&mount.mountpoint), ["file"]);
        mount.crash_and_recover();
        // By a handle that is opened again.
        let through = format!("/proc/self/fd/{}", held.as_raw_fd());
        assert_eq!(fs::read_dir(through).unwrap().count(), 1);
    }
    let status = mount.status().unwrap();
    assert_eq!(number(&status, "/crashes"), number(&status, "/planned"), "{}", mount.log());
    assert_eq!(number(&status, "/requests/failed"), 0, "{}", mount.log());
}

/// S83: two names of one file, of which the new daemon was asked for one; a name that leads to another file by now; one
/// that is gone.
#[test]
fn s83_names_that_have_changed_meanwhile() {
    let mount = odd(&[], &["known"]);
    for name in ["a", "other", "gone", "dir"] {
        fs::write(mount.at(name), name).unwrap();
    }
    fs::hard_link(mount.at("a"), mount.at("b")).unwrap();
    mount.crash_and_recover();
    // Known by one name, by the other not.
    assert_eq!(fs::read_to_string(mount.at("a")).unwrap(), "a");
    fs::remove_file(mount.at("b")).unwrap();
    assert_eq!(fs::read_to_string(mount.at("a")).unwrap(), "a");
    mount.crash_and_recover();
    fs::remove_file(mount.behind.join("other")).unwrap();
    fs::write(mount.behind.join("other"), "another").unwrap();
    fs::rename(mount.at("other"), mount.at("moved")).unwrap();
    assert_eq!(fs::read_to_string(mount.behind.join("moved")).unwrap(), "another");
    fs::remove_file(mount.behind.join("gone")).unwrap();
    let error = fs::remove_file(mount.at("gone")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    let status = mount.status().unwrap();
    assert_eq!(number(&status, "/crashes"), number(&status, "/planned"), "{}", mount.log());
    assert_eq!(number(&status, "/requests/failed"), 0, "{}", mount.log());
}

/// S74: what belay asks a daemon that goes by who asks, it asks in the name of those who are entitled.
#[test]
fn s74_daemons_that_refuse_root() {
    let mount = odd(&[], &["user=4321"]);
    fs::set_permissions(&mount.behind, PermissionsExt::from_mode(0o777)).unwrap();
    assert!(fs::read(mount.at("file")).is_err(), "root is not refused");
    let script = "cd \"$1\" && mkdir d && echo one > d/f && exec 3<>d/f 4<d/f && rm d/f && echo ready && printf '\\1' \
                  && read x && echo two >&3 && cat <&4 && ls -A && mv d e && echo three > e/g && rm -r e && ls -A";
    let mut command = Command::new("setpriv");
    command.args(["--reuid=4321", "--regid=4321", "--clear-groups", "sh", "-c", script, "sh"]);
    command.arg(&mount.mountpoint);
    let mut user = crate::common::start(command.stderr(Stdio::inherit()));
    wait_for_sign(&mut user);
    mount.crash_and_recover();
    mount.crash_and_recover();
    user.child().stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let mut told = String::new();
    let out = user.child().stdout.take().unwrap();
    BufReader::new(out).read_to_string(&mut told).unwrap();
    assert_eq!(told, "two\nd\nfile\nfile\n", "{}", mount.log());
    drop(user);
    mount.wait_for("release", |status| status["open_handles"] == 0);
    // The file that was removed while it was open has gone with its last close.
    assert!(until(|| names(&mount.behind) == ["file"]), "{:?}", names(&mount.behind));
    let status = mount.status().unwrap();
    assert_eq!(number(&status, "/requests/failed"), 0, "{}", mount.log());
}

/// S19, S74: a private map of a file, closed meanwhile, on a daemon that refuses everybody but its user: right after a crash
/// its pages are there as before, those that were changed as well, and nobody dies of SIGBUS.
#[test]
fn s74_private_maps_on_daemons_that_refuse_root() {
    const READER: &str = "import mmap, os, sys
PAGE = 4096
fd = os.open(sys.argv[1], os.O_RDONLY)
all = mmap.mmap(fd, 64 * PAGE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
os.close(fd)
all[0] = ord('c')
for line in iter(sys.stdin.readline, ''):
    all.madvise(mmap.MADV_DONTNEED, PAGE, 63 * PAGE)
    pages = ''.join(chr(all[page * PAGE]) for page in range(64))
    print(pages, flush=True)
";
    let mount = odd(&[], &["user=4321"]);
    fs::set_permissions(&mount.behind, PermissionsExt::from_mode(0o777)).unwrap();
    let expected: Vec<u8> = (0..64).map(|page| b'A' + page % 26).collect();
    let text: Vec<u8> = expected.iter().flat_map(|letter| vec![*letter; 4096]).collect();
    fs::write(mount.behind.join("mapped"), text).unwrap();
    fs::set_permissions(mount.behind.join("mapped"), PermissionsExt::from_mode(0o644)).unwrap();
    assert!(fs::read(mount.at("mapped")).is_err(), "root is not refused");
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=4321",
        "--regid=4321",
        "--clear-groups",
        "/usr/bin/python3",
        "-c",
        READER,
    ]);
    command.arg(mount.at("mapped")).stderr(Stdio::inherit());
    let mut user = crate::common::start(&mut command);
    let mut input = user.child().stdin.take().unwrap();
    let mut output = BufReader::new(user.child().stdout.take().unwrap());
    let mut pages = || {
        input.write_all(b"\n").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let expected = format!("c{}", String::from_utf8(expected[1..].to_vec()).unwrap());
    assert_eq!(pages(), expected, "{}", mount.log());
    for _ in 0..2 {
        mount.crash_and_recover();
        crate::common::drop_caches();
        assert_eq!(pages(), expected, "{}", mount.log());
    }
    let status = mount.status().unwrap();
    assert_eq!(status["degraded"], false, "{status}");
    assert_eq!(number(&status, "/requests/failed"), 0, "{}", mount.log());
    drop((input, output, user));
    mount.wait_for("release", |status| status["open_handles"] == 0);
    mount.stop();
}

/// S75, L35: a daemon that refuses what it allowed before: it is said which file, and why; what it still allows works, and
/// the rest fails by the daemon's own error.
#[test]
fn s75_what_is_not_opened_again_is_told() {
    let mount = odd(&[], &["links"]);
    let mut file = OpenOptions::new().read(true).write(true).open(mount.at("file")).unwrap();
    let reader = File::open(mount.at("file")).unwrap();
    file.write_all(b"more").unwrap();
    fs::hard_link(mount.at("file"), mount.at("link")).unwrap();
    mount.crash_and_recover();
    let mut text = [0; 4];
    reader.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"more");
    assert_eq!(mount.status().unwrap()["degraded"], false);
    assert_eq!(file.write(b"!").unwrap_err().raw_os_error(), Some(libc::EROFS));
    assert_eq!(file.set_len(1).unwrap_err().raw_os_error(), Some(libc::EROFS));
    file.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"more");
    // The next daemon is asked anew.
    fs::remove_file(mount.at("link")).unwrap();
    mount.crash_and_recover();
    file.write_all(b"!").unwrap();
    told(&mount, &["/file", "Read-only file system"]);
}

/// S75, L36: inode numbers that depend on the order in which a daemon meets its files: nothing is silently taken for
/// something else, and it is said what helps; which helps.
#[test]
fn s75_numbers_that_do_not_stay_are_told() {
    for volatile in [false, true] {
        let option = ["--inode-numbers", "volatile"];
        let mount = odd(if volatile { &option } else { &[] }, &["order"]);
        for dir in ["one", "two"] {
            fs::create_dir(mount.at(dir)).unwrap();
            fs::write(mount.at(dir).join("name"), dir).unwrap();
        }
        let file = File::open(mount.at("two/name")).unwrap();
        mount.crash_and_recover();
        let mut text = [0; 3];
        let read = file.read_exact_at(&mut text, 0);
        if volatile {
            read.unwrap();
            assert_eq!(&text, b"two");
            assert_eq!(mount.status().unwrap()["degraded"], false);
        } else {
            assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::ESTALE), "{}", mount.log());
            told(&mount, &["/two", "--inode-numbers volatile"]);
        }
    }
}

/// S84: directories that get another inode number (an overlay has copied them up) are known by the files in them; what
/// is open below, or leads there, goes on.
#[test]
fn s84_directories_that_are_copied_up() {
    for arguments in [&[][..], &["--no-resend"]] {
        let mount = odd(arguments, &["copies"]);
        let deep = mount.at("d/e");
        fs::create_dir_all(&deep).unwrap();
        for name in ["f", "g", "h"] {
            fs::write(deep.join(name), name).unwrap();
        }
        let mut file = OpenOptions::new().read(true).write(true).open(deep.join("f")).unwrap();
        let dir = File::open(&deep).unwrap();
        let number = dir.metadata().unwrap().ino();
        let mut reader = fs::read_dir(&deep).unwrap();
        let mut listed = vec![reader.next().unwrap().unwrap().file_name()];
        for round in 1..=3 {
            mount.crash_and_recover();
            let by_descriptor = format!("/proc/self/fd/{}/g", dir.as_raw_fd());
            assert_eq!(fs::read_to_string(&by_descriptor).unwrap(), "g", "{}", mount.log());
            assert_eq!(dir.metadata().unwrap().ino(), number);
            assert_eq!(fs::metadata(&deep).unwrap().ino(), number);
            file.write_all(b"x").unwrap();
            assert_eq!(fs::read_to_string(deep.join("f")).unwrap(), "x".repeat(round));
        }
        listed.extend(reader.map(|entry| entry.unwrap().file_name()));
        listed.sort();
        assert_eq!(listed, ["f", "g", "h"]);
        let status = mount.status().unwrap();
        assert_eq!(status["degraded"], false, "{status}");
        assert!(self::number(&status, "/restored/renumbered") >= 2, "{status}");
        assert_eq!(self::number(&status, "/requests/failed"), 0, "{status}");
    }
}

/// S84: directories that somebody has exchanged behind the mount are not the same, though their numbers mean nothing.
#[test]
fn s84_directories_that_were_exchanged() {
    let mount = odd(&[], &["copies"]);
    for dir in ["one", "two"] {
        fs::create_dir(mount.at(dir)).unwrap();
        fs::write(mount.at(dir).join("name"), dir).unwrap();
    }
    let file = File::open(mount.at("one/name")).unwrap();
    for (from, to) in [("one", "t"), ("two", "one"), ("t", "two")] {
        fs::rename(mount.behind.join(from), mount.behind.join(to)).unwrap();
    }
    mount.crash_and_recover();
    let mut text = [0; 3];
    let read = file.read_exact_at(&mut text, 0);
    assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::ESTALE), "{}", mount.log());
    told(&mount, &["/one", "--inode-numbers volatile"]);
}

/// S84: in an image that is made once nobody moves files, so numbers in the order of meeting do no harm.
#[test]
fn s84_an_image_whose_numbers_change() {
    let mount = Custom::start(&[], |place| {
        let sample = place.dir.join("sample");
        for dir in ["a", "b"] {
            fs::create_dir_all(sample.join(dir)).unwrap();
            fs::write(sample.join(dir).join("name"), dir).unwrap();
        }
        let image = place.dir.join("image");
        let mut make = Command::new("genisoimage");
        make.args(["-quiet", "-R", "-o"]).arg(&image).arg(&sample);
        let made = run(make, LIMIT).unwrap();
        assert!(made.status.success(), "{made:?}");
        let words = ["fuseiso".into(), "-n".into(), image.into(), place.mountpoint.into()];
        words.into_iter().chain(["-f".into()]).collect()
    });
    mount.wait_for("service", |status| status["state"] == "serving");
    // The numbers are given in this order, and then in the other.
    let b = File::open(mount.at("b/name")).unwrap();
    let a = File::open(mount.at("a/name")).unwrap();
    mount.crash_and_recover();
    let mut text = [0];
    a.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"a");
    mount.crash_and_recover();
    b.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"b");
    let status = mount.status().unwrap();
    assert_eq!(status["degraded"], false, "{status}");
    let why = status["policy_reason"].as_str().unwrap();
    assert!(why.contains("inode numbers are not compared"), "{why}");
}

/// The status says this of what is lost.
fn told(mount: &Custom, words: &[&str]) {
    let status = mount.wait_for("word", |status| status["degraded"] == true);
    let reason = &status["degraded_reasons"][0];
    assert_eq!(reason["kind"], "handle", "{status}");
    let what = reason["what"].as_str().unwrap();
    assert!(words.iter().all(|word| what.contains(word)), "{what}");
}

/// S58: what lies inside a mount is not looked at, however its daemon is: a path of any length is taken for what it says.
#[test]
fn s58_nothing_waits_for_a_daemon_on_the_way_to_a_path() {
    let mount = odd(&[], &[]);
    mount.signal("daemon", Signal::STOP);
    let mut command = Belay::find().unwrap().command();
    command.arg("status").arg(mount.at("not/here"));
    let told = run(command, LIMIT);
    mount.signal("daemon", Signal::CONT);
    let told = String::from_utf8(told.unwrap().stderr).unwrap();
    assert!(told.contains("belay holds no mount there"), "{told}");
}

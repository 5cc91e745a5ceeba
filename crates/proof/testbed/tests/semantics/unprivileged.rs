//! S39: ordinary users, whose daemons are mounted by fusermount3.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use belay_testbed::process::{kill, run, wait_for_exit};
use belay_testbed::{Signal, Sshd};

use crate::common::{LIMIT, names, until};
use crate::journal::compile;
use crate::user::{User, text};

/// Makes, writes, renames, appends and removes below `dir`, checks each result, and gives what must be there then.
pub fn work(dir: &Path, done: &AtomicBool) -> Vec<(String, String)> {
    let mut log = File::options().create(true).append(true).open(dir.join("log")).unwrap();
    let mut lines = String::new();
    let mut expected = Vec::new();
    let mut i = 0;
    while i < 20 || !done.load(Relaxed) {
        let (name, text) = (format!("f{i}"), format!("content of {i}\n").repeat(i % 50 + 1));
        fs::write(dir.join("new"), &text).unwrap();
        assert!(File::create_new(dir.join("new")).is_err());
        fs::rename(dir.join("new"), dir.join(&name)).unwrap();
        assert_eq!(fs::read_to_string(dir.join(&name)).unwrap(), text);
        fs::create_dir(dir.join("d")).unwrap();
        fs::remove_dir(dir.join("d")).unwrap();
        writeln!(log, "{i}").unwrap();
        lines += &format!("{i}\n");
        if i % 3 == 0 {
            fs::remove_file(dir.join(&name)).unwrap();
        } else {
            expected.push((name, text));
        }
        i += 1;
    }
    expected.push(("log".into(), lines));
    expected.sort();
    expected
}

/// Kills the daemon at work `kills` times and compares the backing directory with what was done.
pub fn holds_under_kills(user: &User, dir: &Path, kills: usize) {
    let done = Arc::new(AtomicBool::new(false));
    let caller = {
        let (dir, done) = (dir.to_owned(), Arc::clone(&done));
        user.call(move || work(&dir, &done))
    };
    for round in 0..kills {
        std::thread::sleep(Duration::from_millis(30 + 7 * round as u64));
        let crashes = user.wait_for("service", |s| s["state"] == "serving")["crashes"].clone();
        user.signal("daemon", if round % 2 == 0 { Signal::KILL } else { Signal::SEGV });
        user.wait_for("recovery", |s| s["state"] == "serving" && s["crashes"] != crashes);
    }
    done.store(true, Relaxed);
    let expected = caller.result();
    // The last close of a file reaches the daemon after the call.
    let hidden = || names(&user.behind).iter().any(|name| name.starts_with(".belay-hidden-"));
    assert!(until(|| !hidden()), "{:?}", names(&user.behind));
    let behind = fs::read_dir(&user.behind).unwrap().flatten();
    let mut found: Vec<_> = behind
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name != "file")
        .map(|name| (name.clone(), fs::read_to_string(user.behind.join(name)).unwrap()))
        .collect();
    found.sort();
    let wrong: Vec<_> = found.iter().filter(|file| !expected.contains(file)).collect();
    let missing: Vec<_> = expected.iter().filter(|file| !found.contains(file)).collect();
    assert!(found == expected, "there is {wrong:?}\ninstead of {missing:?}\n{}", user.log());
    assert_eq!(user.status().unwrap()["degraded"], false);
    assert_eq!(user.status().unwrap()["requests"]["failed"], 0);
}

pub fn words(list: &[&str], user: &User) -> Vec<OsString> {
    let place = |word: &&str| match *word {
        "BACK" => user.behind.clone().into(),
        "MNT" => user.mountpoint.clone().into(),
        word => OsString::from(word),
    };
    list.iter().map(place).collect()
}

/// S39: libfuse 3, low level, killed at work.
#[test]
fn s39_kills_at_work() {
    let mut user = User::low_level(&[]);
    holds_under_kills(&user, &user.mountpoint.clone(), 8);
    user.stops_cleanly();
}

/// S39: without the kernel's RESEND.
#[test]
fn s39_kills_at_work_from_copies() {
    let mut user = User::new();
    let program = user.program(&crate::custom::low_level_program());
    let source = format!("source={},cache=never,timeout=0", user.behind.display());
    let mut line = words(&["-f", "-o", &source, "MNT"], &user);
    line.insert(0, program.into());
    user.start(&["--no-resend"], &line);
    user.serves();
    holds_under_kills(&user, &user.mountpoint.clone(), 4);
}

/// S39: libraries that start fusermount by posix_spawn.
#[test]
fn s39_spawned_by_posix_spawn() {
    let mut user = User::new();
    let program = compiled_spawner(&user);
    let source = format!("source={},cache=never,timeout=0", user.behind.display());
    let mut line = words(&["-f", "-o", &source, "MNT"], &user);
    line.insert(0, program.into());
    user.start(&[], &line);
    user.serves();
    holds_under_kills(&user, &user.mountpoint.clone(), 4);
    user.stops_cleanly();
}

fn compiled_spawner(user: &User) -> PathBuf {
    let program = user.home.join("bin/spawner");
    let object = user.home.join("daemon.o");
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/spawner.c");
    let script = "set -e; flags=$(pkg-config --cflags --libs fuse3)
        cc -O1 -DHAVE_SETXATTR -DHAVE_UTIMENSAT -Dmain=daemon_main -c -o \"$1\" \
            /usr/share/doc/libfuse3-dev/examples/passthrough_ll.c $flags
        cc -O1 -Wall -o \"$2\" \"$3\" \"$1\" $flags; chmod 755 \"$2\"";
    let mut build = Command::new("sh");
    build.args(["-c", script, "build"]).arg(&object).arg(&program).arg(here);
    let output = run(build, LIMIT).unwrap();
    assert!(output.status.success(), "{}", text(&output));
    program
}

/// S39: libfuse 2: bindfs, and avfsd, which mirrors `/`.
#[test]
fn s39_daemons_of_libfuse_2() {
    for line in [
        &["bindfs", "--no-allow-other", "-f", "BACK", "MNT"][..],
        &["bindfs", "--no-allow-other", "-f", "back", "./mnt/"],
        &["avfsd", "-f", "MNT"],
    ] {
        let mut user = User::new();
        let line = words(line, &user);
        user.start(&[], &line);
        user.serves();
        let mut dir = user.mountpoint.clone();
        if line[0] == "avfsd" {
            dir.push(user.behind.strip_prefix("/").unwrap());
        }
        holds_under_kills(&user, &dir, 4);
        user.tool(&["fusermount3", "-u"]);
        assert_eq!(user.end().code(), Some(0), "{}", user.log());
        user.left_nothing();
    }
}

/// S39: sshfs to another user's account.
#[test]
fn s39_sshfs() {
    let mut user = User::new();
    let keys = tempfile::tempdir().unwrap();
    fs::set_permissions(keys.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let server = Sshd::start(keys.path()).unwrap();
    let key = user.home.join("key");
    fs::copy(server.identity(), &key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&key, Some(65534), Some(65534)).unwrap();
    let options = format!(
        "IdentityFile={},BatchMode=yes,IdentitiesOnly=yes,StrictHostKeyChecking=no,\
         UserKnownHostsFile=/dev/null,LogLevel=ERROR",
        key.display()
    );
    let source = format!("root@127.0.0.1:{}", user.behind.display());
    let port = server.port().to_string();
    let line = words(
        &["sshfs", "-f", "-F", "/dev/null", "-p", &port, "-o", &options, &source, "MNT"],
        &user,
    );
    user.start(&[], &line);
    user.serves();
    holds_under_kills(&user, &user.mountpoint.clone(), 4);
    user.stops_cleanly();
}

/// S39: open files, also such without a name, a listing and a working directory.
#[test]
fn s39_open_files() {
    let user = User::low_level(&[]);
    let (path, dir) = (user.at("open"), user.at("dir"));
    let (mut file, mut list) = user.does(move || {
        let mut file =
            File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        file.write_all(b"before").unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&dir).unwrap();
        for i in 0..300 {
            File::create(dir.join(format!("entry{i}"))).unwrap();
        }
        let mut list = fs::read_dir(&dir).unwrap();
        assert!(list.next().is_some());
        (file, list)
    });
    for _ in 0..3 {
        user.crash();
    }
    user.does(move || {
        file.write_all(b" after").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before after");
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        assert_eq!(list.by_ref().map(Result::unwrap).count(), 299);
    });
    assert!(!names(&user.behind).iter().any(|name| name == "open"));
}

/// S39: the last close of a file without a name removes it; mapped and appended files as well stay right.
#[test]
fn s39_requests_in_the_blackout_wait() {
    let user = User::low_level(&[]);
    let path = user.at("file");
    let file = user.does(move || File::options().read(true).write(true).open(path).unwrap());
    let supervisor = user.pid("supervisor");
    let daemon = user.pid("daemon");
    kill(supervisor, Signal::STOP).unwrap();
    kill(daemon, Signal::KILL).unwrap();
    assert!(wait_for_exit(daemon, LIMIT).unwrap());
    let caller = user.call(move || {
        file.write_all_at(b"TEXT", 0).unwrap();
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    });
    std::thread::sleep(Duration::from_millis(100));
    assert!(!caller.is_done());
    kill(supervisor, Signal::CONT).unwrap();
    assert_eq!(&caller.result(), b"TEXT");
    assert_eq!(fs::read_to_string(user.behind.join("file")).unwrap(), "TEXT");
}

/// S39: daemons that go into the background, of libfuse 3 and 2.
#[test]
fn s39_daemons_in_the_background() {
    for kind in ["passthrough_ll", "bindfs"] {
        let mut user = User::new();
        let line = if kind == "bindfs" {
            words(&["bindfs", "--no-allow-other", "BACK", "MNT"], &user)
        } else {
            let program = user.program(&crate::custom::low_level_program());
            let source = format!("source={}", user.behind.display());
            let mut line = words(&["-o", &source, "MNT"], &user);
            line.insert(0, program.into());
            line
        };
        user.start(&[], &line);
        user.serves();
        holds_under_kills(&user, &user.mountpoint.clone(), 3);
        user.says(&["stop", "--force"]);
        assert_eq!(user.end().code(), Some(0), "{}", user.log());
        user.left_nothing();
    }
}

/// S39: a daemon that looks at its mountpoint before it mounts (encfs wants a directory that is not a link) finds that as it was.
#[test]
fn s39_a_daemon_that_looks_at_its_mountpoint() {
    let mut user = User::new();
    let built = user.home.join("picky");
    compile("picky.c", &built);
    let program = user.program(&built);
    let line = [program.into(), user.mountpoint.clone().into(), "-f".into()];
    user.start(&["--max-crashes", "0"], &line);
    user.serves();
    for _ in 0..2 {
        user.crash();
        let path = user.at("file");
        assert_eq!(user.does(move || fs::read_to_string(path).unwrap()), "text");
    }
    user.stops_cleanly();
}

/// S39: a daemon that shows what its own mount covers finds that in each life.
#[test]
fn s39_what_the_mount_covers_is_found_in_each_life() {
    let mut user = User::new();
    let command =
        words(&["bindfs", "-f", "--no-allow-other", "-o", "nonempty", "BACK", "BACK"], &user);
    user.mountpoint = user.behind.clone();
    user.start(&["--max-crashes", "0"], &command);
    user.serves();
    for round in 0..3 {
        let path = user.at("file");
        let text = user.call(move || fs::read_to_string(path)).result();
        assert_eq!(text.unwrap(), "text", "{}", user.log());
        let (new, old) = (user.at(&format!("n{round}")), user.at(&format!("n{}", round - 1)));
        user.call(move || fs::write(new, "new").unwrap()).result();
        if round > 0 {
            let text = user.call(move || fs::read_to_string(old)).result();
            assert_eq!(text.unwrap(), "new", "{}", user.log());
        }
        user.signal("daemon", Signal::KILL);
        user.wait_for("recovery", |s| s["state"] == "serving" && s["crashes"] == round + 1);
    }
    user.signal("keeper", Signal::TERM);
    assert_eq!(user.end().code(), Some(0), "{}", user.log());
    user.left_no_process();
}

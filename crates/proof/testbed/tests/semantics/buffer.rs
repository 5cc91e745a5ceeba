//! S77 and S78: the policy `buffer` (docs/buffer.md), on daemons that acknowledge what they have not stored.

use crate::common::*;
use crate::custom::{Custom, Place};
use crate::journal::compile;
use belay_testbed::Signal;
use belay_testbed::process::{Process, kill, run};
use rustix::fs::XattrFlags;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tempfile::TempDir;

fn serving(mount: Custom) -> Custom {
    mount.wait_for("service", |status| status["state"] == "serving");
    fs::metadata(&mount.mountpoint).unwrap();
    mount
}

/// Ends it in good order; what it stored to lasts as long as what is given back.
fn unmount(mut mount: Custom) -> Custom {
    mount.tool(&["umount"]);
    assert!(mount.end().success(), "{}", mount.log());
    mount
}

/// Nothing failed, nothing came out otherwise, nothing was lost.
fn assert_well(mount: &Custom) -> Value {
    let status = mount.status().unwrap();
    assert_eq!(status["requests"]["failed"], 0, "{status}\n{}", mount.log());
    assert_eq!(status["degraded"], false, "{status}\n{}", mount.log());
    assert!(status["policy"] == "buffer" && status["read_only"].is_null(), "{status}");
    status
}

/// Daemons of Debian that write a new archive at their end: killed in between, and in one piece at the end.
#[test]
fn s77_archives_of_real_daemons() {
    for (daemon, name) in [("fuse-zip", "new.zip"), ("archivemount", "new.tar")] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let archive = dir.path().join(name);
        if daemon == "archivemount" {
            // It makes none where there is nothing.
            fs::write(dir.path().join("first"), "first").unwrap();
            let mut tar = Command::new("tar");
            tar.arg("-C").arg(dir.path()).arg("-cf").arg(&archive).arg("first");
            assert!(run(tar, LIMIT).unwrap().status.success());
        }
        let start = || {
            serving(Custom::start(&["--max-crashes", "0"], |place| {
                vec![daemon.into(), "-f".into(), archive.clone().into(), place.mountpoint.into()]
            }))
        };
        let mount = start();
        let long: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        fs::create_dir(mount.at("dir")).unwrap();
        fs::write(mount.at("dir/one"), "one").unwrap();
        mount.crash_and_recover();
        assert_eq!(fs::read_to_string(mount.at("dir/one")).unwrap(), "one");
        // On its own as well, archivemount stores what is new by its first name.
        let two = if daemon == "fuse-zip" { "two" } else { "one" };
        fs::rename(mount.at("dir/one"), mount.at("dir").join(two)).unwrap();
        fs::write(mount.at("long"), &long).unwrap();
        fs::write(mount.at("gone"), "gone").unwrap();
        mount.crash_and_recover();
        fs::remove_file(mount.at("gone")).unwrap();
        mount.crash_and_recover();
        let look = |mount: &Custom| {
            let text = fs::read_to_string(mount.at("dir").join(two));
            assert_eq!(text.as_deref().ok(), Some("one"), "{daemon} {text:?}\n{}", mount.log());
            assert_eq!(names(&mount.at("dir")), [two], "{daemon}");
            assert!(fs::read(mount.at("long")).unwrap() == long, "{daemon}");
            assert!(!mount.at("gone").exists(), "{daemon}");
        };
        look(&mount);
        assert_well(&mount);
        unmount(mount);
        let mount = start();
        look(&mount);
        unmount(mount);
    }
}

/// A mount by `archive.c`, its store and the directory that controls it.
struct Archive {
    mount: Custom,
    control: PathBuf,
    store: PathBuf,
}

impl Archive {
    fn start(arguments: &[&str]) -> Self {
        let (mut control, mut store) = (PathBuf::new(), PathBuf::new());
        let arguments: Vec<&str> =
            ["--policy", "buffer"].iter().chain(arguments).copied().collect();
        let mount = Custom::start(&arguments, |place: &Place<'_>| {
            let program = place.dir.join("daemon");
            compile("archive.c", &program);
            (control, store) = (place.dir.join("control"), place.dir.join("store"));
            fs::create_dir(&control).unwrap();
            fs::write(&store, "old 4\ntext").unwrap();
            let words = [program, store.clone(), control.clone(), place.mountpoint.into()];
            words.into_iter().map(Into::into).chain(["-f".into()]).collect()
        });
        Self { mount: serving(mount), control, store }
    }

    /// What cannot be done twice, but for the last: names that change their meaning.
    fn work(&self) {
        let at = |name| self.mount.at(name);
        fs::write(at("a"), "first").unwrap();
        fs::rename(at("a"), at("b")).unwrap();
        fs::write(at("a"), "second").unwrap();
        fs::rename(at("old"), at("c")).unwrap();
    }

    fn stored(&self) -> String {
        fs::read_to_string(&self.store).unwrap()
    }
}

const DONE: &str = "c 4\ntextb 5\nfirsta 6\nsecond";

/// A daemon that dies while it stores, before its archive is there or after that: what was acknowledged is stored once.
#[test]
fn s77_killed_while_it_stores() {
    for moment in ["before", "after"] {
        let Archive { mut mount, control, store } = {
            let archive = Archive::start(&[]);
            archive.work();
            archive.mount.crash_and_recover();
            assert_eq!(archive.stored(), "old 4\ntext");
            archive
        };
        fs::write(control.join(moment), "").unwrap();
        mount.tool(&["umount"]);
        mount.end();
        assert!(!control.join(moment).exists(), "it did not die {moment}");
        assert_eq!(fs::read_to_string(&store).unwrap(), DONE, "{moment}\n{}", mount.log());
    }
}

/// S77: also if it is mounted on the folder that its store is in, which nobody sees then.
#[test]
fn s77_a_store_below_its_own_mount() {
    let mut store = PathBuf::new();
    let mount = Custom::start(&["--policy", "buffer"], |place: &Place<'_>| {
        let (program, control) = (place.dir.join("daemon"), place.dir.join("control"));
        compile("archive.c", &program);
        store = place.mountpoint.join("store");
        fs::create_dir(&control).unwrap();
        fs::write(&store, "old 4\ntext").unwrap();
        let words = [program, store.clone(), control, place.mountpoint.into()];
        words.into_iter().map(Into::into).chain(["-f".into()]).collect()
    });
    let mount = serving(mount);
    fs::write(mount.at("new"), "text").unwrap();
    for _ in 0..2 {
        mount.crash_and_recover();
        assert_eq!(fs::read_to_string(mount.at("new")).unwrap(), "text");
    }
    assert_well(&mount);
    let _mount = unmount(mount);
    assert_eq!(fs::read_to_string(&store).unwrap(), "old 4\ntextnew 4\ntext");
}

/// S96: a daemon that takes its time to store what it had acknowledged is not killed for that, and `belay stop` waits for it.
#[test]
fn s96_a_daemon_that_stores_is_waited_for() {
    let Archive { mut mount, control, store } = Archive::start(&[]);
    fs::write(mount.at("new"), "text").unwrap();
    let slow = control.join("slow");
    fs::write(&slow, "").unwrap();
    let mut command = belay_testbed::Belay::find().unwrap().command();
    command.arg("stop").arg(&mount.mountpoint);
    let stop = std::thread::spawn(move || run(command, 3 * LIMIT).unwrap());
    let status = mount.wait_for("its wait", |_| mount.log().contains("is waited for"));
    assert_eq!((&status["epoch"]["storing"], number(&status, "/generation")), (&true.into(), 0));
    fs::remove_file(&slow).unwrap();
    assert!(stop.join().unwrap().status.success(), "{}", mount.log());
    assert!(mount.end().success(), "{}", mount.log());
    assert_eq!(fs::read_to_string(&store).unwrap(), "old 4\ntextnew 4\ntext");
}

/// S96: who has lost patience ends it, and is told what has become of what was acknowledged.
#[test]
fn s96_what_is_not_stored_is_told() {
    let Archive { mut mount, control, store } = Archive::start(&[]);
    fs::write(mount.at("new"), "text").unwrap();
    fs::write(control.join("slow"), "").unwrap();
    let keeper = mount.pid("keeper");
    let mut command = belay_testbed::Belay::find().unwrap().command();
    command.arg("stop").arg(&mount.mountpoint);
    let stop = std::thread::spawn(move || run(command, 3 * LIMIT).unwrap());
    mount.wait_for("its wait", |status| status["epoch"]["storing"] == true);
    // Each that takes the place of one that was ended is asked for its end as well.
    let ended = until(|| {
        let _ = kill(keeper, Signal::TERM);
        std::thread::sleep(std::time::Duration::from_millis(500));
        mount.exited().is_some()
    });
    assert!(ended, "{}", mount.log());
    let output = stop.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("acknowledged"), "{said}\n{}", mount.log());
    assert_ne!(mount.end().code(), Some(0));
    assert_eq!(fs::read_to_string(&store).unwrap(), "old 4\ntext");
}

/// The same in the middle of the mount's life, when it is made to store.
#[test]
fn s77_killed_while_it_is_made_to_store() {
    for moment in ["before", "after"] {
        let archive = Archive::start(&[]);
        archive.work();
        fs::write(archive.control.join(moment), "").unwrap();
        let mut command = belay_testbed::Belay::find().unwrap().command();
        command.arg("checkpoint").arg(&archive.mount.mountpoint);
        let output = run(command, LIMIT).unwrap();
        assert!(output.status.success(), "{output:?}\n{}", archive.mount.log());
        assert_eq!(archive.stored(), DONE, "{moment}\n{}", archive.mount.log());
        assert_eq!(fs::read_to_string(archive.mount.at("b")).unwrap(), "first");
        fs::remove_file(archive.mount.at("a")).unwrap();
        archive.mount.crash_and_recover();
        assert_eq!(names(&archive.mount.mountpoint), ["b", "c"]);
        let mount = unmount(archive.mount);
        let stored = fs::read_to_string(&archive.store).unwrap();
        assert_eq!(stored, "c 4\ntextb 5\nfirst", "{moment}\n{}", mount.log());
    }
}

/// More than the op-log is to hold: the daemon is made to store, in the middle, and files that are open go on.
#[test]
fn s77_the_op_log_is_bounded() {
    let archive = Archive::start(&["--checkpoint-log", "1M"]);
    let mount = &archive.mount;
    let mut file = File::create(mount.at("long")).unwrap();
    let mut expected = Vec::new();
    for round in 0..40_u8 {
        let bytes = vec![round; 100_000];
        file.write_all(&bytes).unwrap();
        expected.extend(bytes);
    }
    let status = assert_well(mount);
    assert!(number(&status, "/generation") > 0, "{status}");
    assert!(number(&status, "/epoch/log_bytes") < 3 << 20, "{status}");
    mount.crash_and_recover();
    file.write_all_at(b"over", 10).unwrap();
    expected[10..14].copy_from_slice(b"over");
    mount.crash_and_recover();
    assert!(fs::read(mount.at("long")).unwrap() == expected);
    drop(file);
    assert_well(mount);
    let store = archive.store.clone();
    let _mount = unmount(archive.mount);
    let stored = fs::read(store).unwrap();
    assert!(stored.ends_with(&expected), "{}", stored.len());
}

/// A mount by `upload.c`, and the directory that controls it.
pub struct Upload {
    pub mount: Custom,
    control: PathBuf,
}

impl Upload {
    fn start(until: &str) -> Self {
        let arguments = ["--policy", "buffer", "--buffer-until", until, "--max-crashes", "0"];
        Self::start_as(&arguments, until)
    }

    /// Nobody knows the daemon.
    pub fn unknown() -> Self {
        Self::unknown_under(&[])
    }

    /// The same, with arguments.
    pub fn unknown_under(arguments: &[&str]) -> Self {
        Self::start_as(&[&["--max-crashes", "0"], arguments].concat(), "alone")
    }

    /// The same; it stores when a file is closed, and not by a flush.
    pub fn unknown_by_close(arguments: &[&str]) -> Self {
        let upload = Self::unknown_under(arguments);
        fs::write(upload.control.join("close"), "").unwrap();
        upload
    }

    /// The same as the first, with arguments; what it is given to write it writes to what dies with it, too.
    pub fn aside(arguments: &[&str]) -> Self {
        Self::start_as(&[&["--max-crashes", "0"], arguments].concat(), "aside")
    }

    fn start_as(arguments: &[&str], until: &str) -> Self {
        let mut control = PathBuf::new();
        let mount = Custom::start(arguments, |place: &Place<'_>| {
            let program = place.dir.join("daemon");
            compile("upload.c", &program);
            control = place.dir.join("control");
            fs::create_dir(&control).unwrap();
            if until != "flush" {
                fs::write(control.join(until), "").unwrap();
            }
            let words = [program, place.behind.into(), control.clone(), place.mountpoint.into()];
            // Of a request in which it starts a thread of its pool nothing is known (L45).
            let alone = ["alone", "aside"].contains(&until).then_some("-s");
            let more = ["-f"].into_iter().chain(alone).map(Into::into);
            words.into_iter().map(Into::into).chain(more).collect()
        });
        Self { mount: serving(mount), control }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.mount.at(name)
    }

    fn behind(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.mount.behind.join(name)).ok()
    }

    /// The daemon dies, and once more before anything is asked of its successor.
    fn crash(&self) {
        self.mount.crash_and_recover();
        self.mount.crash_and_recover();
    }

    /// All handles are closed, and nothing is on record any more.
    fn closed(&self) {
        self.mount.wait_for("rest", |status| {
            status["requests"]["in_flight"] == 0
                && status["open_handles"] == 0
                && status["epoch"]["log_records"] == 0
        });
    }
}

/// Extended attributes of files that are not stored are there after a crash, as they were set last.
#[test]
fn s78_extended_attributes_that_are_not_stored() {
    for until in ["flush", "close"] {
        let upload = Upload::start(until);
        let (create, replace, any) = (XattrFlags::CREATE, XattrFlags::REPLACE, XattrFlags::empty());
        let set = |file: &str, name: &str, text: &str, flags| {
            rustix::fs::setxattr(upload.at(file), name, text.as_bytes(), flags).unwrap();
        };
        fs::write(upload.at("file"), "text").unwrap();
        set("file", "user.old", "old", create);
        // No program is started from here to the crash: it would close the files in passing, which flushes them.
        let daemon = upload.mount.pid("daemon");
        let old = File::options().write(true).open(upload.at("file")).unwrap();
        // Nothing else of it is on record.
        set("file", "user.one", "1", create);
        set("file", "user.one", "one", replace);
        set("file", "user.two", "2", create);
        rustix::fs::removexattr(upload.at("file"), "user.two").unwrap();
        rustix::fs::removexattr(upload.at("file"), "user.old").unwrap();
        let new = File::create_new(upload.at("new")).unwrap();
        set("new", "user.new", "new", any);
        // Who only reads the file has nothing stored by its close.
        fs::read(upload.at("file")).unwrap();
        let (behind, one) = (upload.mount.behind.join("file"), "user.one");
        assert!(until == "flush" || rustix::fs::getxattr(&behind, one, &mut [0; 8][..]).is_err());
        kill(daemon, Signal::KILL).unwrap();
        let look = |place: &dyn Fn(&str) -> PathBuf| {
            let value = |file: &str, name: &str| {
                let mut value = [0; 64];
                let length = rustix::fs::getxattr(place(file), name, &mut value);
                length.map(|length| String::from_utf8_lossy(&value[..length]).into_owned())
            };
            assert_eq!(value("file", one).as_deref(), Ok("one"), "{until}");
            assert_eq!(value("file", "user.two"), Err(rustix::io::Errno::NODATA), "{until}");
            assert_eq!(value("file", "user.old"), Err(rustix::io::Errno::NODATA), "{until}");
            assert_eq!(value("new", "user.new").as_deref(), Ok("new"), "{until}");
        };
        look(&|name| upload.at(name));
        upload.crash();
        look(&|name| upload.at(name));
        drop((new, old));
        upload.closed();
        look(&|name| upload.mount.behind.join(name));
        let status = upload.mount.status().unwrap();
        assert_eq!(status["degraded"], false, "{until}: {status}");
    }
}

/// What was written to files that are open and not stored is there after a crash, whatever became of their names.
#[test]
fn s78_files_that_are_not_stored() {
    for until in ["flush", "close"] {
        let upload = Upload::start(until);
        let mut new = File::create_new(upload.at("new")).unwrap();
        new.write_all(b"one ").unwrap();
        let old = File::options().write(true).open(upload.at("file")).unwrap();
        old.write_all_at(b"T", 0).unwrap();
        upload.crash();
        fs::create_dir(upload.at("dir")).unwrap();
        fs::rename(upload.at("new"), upload.at("dir/newer")).unwrap();
        new.write_all(b"two ").unwrap();
        old.set_len(6).unwrap();
        upload.crash();
        old.write_all_at(b"!", 5).unwrap();
        new.set_len(6).unwrap();
        upload.crash();
        let length = |file: &File| file.metadata().unwrap().len();
        assert_eq!((length(&new), length(&old)), (6, 6), "{until}");
        new.sync_all().unwrap();
        assert_eq!(upload.behind("dir/newer").as_deref(), Some("one tw"), "{until}");
        new.write_all_at(b"ONE", 0).unwrap();
        upload.crash();
        drop((new, old));
        upload.closed();
        assert_eq!(upload.behind("dir/newer").as_deref(), Some("ONE tw"), "{until}");
        assert_eq!(upload.behind("file").as_deref(), Some("Text\0!"), "{until}");
        // Emptied, and written anew.
        let mut again = File::create(upload.at("file")).unwrap();
        again.write_all(b"again").unwrap();
        upload.crash();
        drop(again);
        upload.closed();
        assert_eq!(upload.behind("file").as_deref(), Some("again"), "{until}");
        assert_well(&upload.mount);
        unmount(upload.mount);
    }
}

/// A process that has files open (`writer.c`). No other closes them in passing, as those that a test starts do, which flushes
/// them.
pub struct Writer(Process, TempDir);

impl Writer {
    pub fn start(dir: &Path) -> Self {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let program = place.path().join("writer");
        compile("writer.c", &program);
        let mut command = Command::new(program);
        command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(Process::adopt(command.spawn().unwrap(), "writer"), place)
    }

    /// Has it do something by itself, and waits until that is done.
    pub fn run(&mut self, line: &str) {
        let child = self.0.child();
        writeln!(child.stdin.as_mut().unwrap(), "{line}").unwrap();
        let mut word = Vec::new();
        let out = child.stdout.as_mut().unwrap();
        while !word.ends_with(b"\n") {
            let mut byte = [0];
            out.read_exact(&mut byte).unwrap();
            word.extend(byte);
        }
        assert_eq!(String::from_utf8_lossy(&word), "done 0\n", "{line}");
    }
}

impl Writer {
    pub fn end(mut self) {
        drop(self.0.child().stdin.take());
        assert!(self.0.wait(LIMIT).unwrap().is_some());
        drop(self.1);
    }
}

/// The same while nobody flushes: nothing of it is stored but by its close.
#[test]
fn s78_files_that_nobody_flushes() {
    for until in ["flush", "close"] {
        let upload = Upload::start(until);
        let mut writer = Writer::start(&upload.mount.mountpoint);
        ["o new", "w 0 one ", "o file", "w 1  more"].into_iter().for_each(|line| writer.run(line));
        upload.crash();
        assert_eq!((upload.behind("new"), upload.behind("file")), (None, Some("text".into())));
        fs::create_dir(upload.at("dir")).unwrap();
        fs::rename(upload.at("new"), upload.at("dir/newer")).unwrap();
        writer.run("w 0 two ");
        upload.crash();
        ["w 0 three", "w 1  and more"].into_iter().for_each(|line| writer.run(line));
        upload.crash();
        assert_eq!(upload.behind("dir/newer"), None, "{until}");
        assert_eq!(fs::read_to_string(upload.at("file")).unwrap(), "text more and more");
        ["c 0", "c 1"].into_iter().for_each(|line| writer.run(line));
        upload.closed();
        assert_eq!(upload.behind("dir/newer").as_deref(), Some("one two three"), "{until}");
        assert_eq!(upload.behind("file").as_deref(), Some("text more and more"), "{until}");
        assert_well(&upload.mount);
        writer.end();
        unmount(upload.mount);
    }
}

/// A daemon that dies while it stores a file, for which its caller waits or not.
#[test]
fn s78_killed_while_it_stores() {
    for (until, moment) in
        ["flush", "close"].into_iter().flat_map(|u| [(u, "before"), (u, "after")])
    {
        let upload = Upload::start(until);
        for (name, number) in [("one", 1), ("two", 2)] {
            let mut file = File::create_new(upload.at(name)).unwrap();
            file.write_all(name.as_bytes()).unwrap();
            fs::write(upload.control.join(moment), "").unwrap();
            drop(file);
            upload.mount.wait_for("crash", |status| status["crashes"] == number);
            upload.closed();
            let told = || format!("{until} {moment}\n{}", upload.mount.log());
            assert_eq!(upload.behind(name).as_deref(), Some(name), "{}", told());
        }
        assert_well(&upload.mount);
        unmount(upload.mount);
    }
}

/// S78: a daemon that stores by nothing but the last close of a file, also what its length was set to while nobody had it open, and not when
/// it is synced: each is there after a crash, and stored without one.
#[test]
fn s78_what_only_a_close_stores() {
    let upload = Upload::start("release");
    let mut writer = Writer::start(&upload.mount.mountpoint);
    ["o new", "w 0 text", "s 0"].into_iter().for_each(|line| writer.run(line));
    upload.crash();
    assert_eq!((upload.behind("new"), upload.behind("file")), (None, Some("text".into())));
    writer.run("c 0");
    upload.closed();
    assert_eq!(upload.behind("new").as_deref(), Some("text"), "{}", upload.mount.log());
    writer.run("t 2 file");
    upload.closed();
    assert_eq!(upload.behind("file").as_deref(), Some("te"), "{}", upload.mount.log());
    // Before anything could be stored: the answer of the RELEASE that would do it is waited for.
    fs::write(upload.control.join("before"), "").unwrap();
    writer.run("t 1 file");
    upload.mount.wait_for("crash", |status| number(status, "/crashes") == 3);
    upload.closed();
    assert_eq!(upload.behind("file").as_deref(), Some("t"), "{}", upload.mount.log());
    for moment in ["before", "after"] {
        // What is cut is renamed, or removed, or written to before it is stored.
        fs::write(upload.at("moved"), "moved").unwrap();
        fs::write(upload.at("gone"), "gone").unwrap();
        fs::write(upload.at("open"), "open").unwrap();
        upload.closed();
        fs::write(upload.control.join(moment), "").unwrap();
        for name in ["moved", "gone", "open"] {
            writer.run(&format!("t 2 {name}"));
        }
        fs::rename(upload.at("moved"), upload.at("renamed")).unwrap();
        fs::remove_file(upload.at("gone")).unwrap();
        File::options().append(true).open(upload.at("open")).unwrap().write_all(b"!").unwrap();
        upload.crash();
        upload.closed();
        let told = || format!("{moment}\n{}", upload.mount.log());
        assert_eq!(upload.behind("renamed").as_deref(), Some("mo"), "{}", told());
        assert_eq!(upload.behind("open").as_deref(), Some("op!"), "{}", told());
        assert_eq!((upload.behind("gone"), upload.behind("moved")), (None, None), "{}", told());
    }
    assert_well(&upload.mount);
    writer.end();
    unmount(upload.mount);
}

/// What is done with a file that was closed and is just being stored. Gives the name that has its content then, and that.
fn done_meanwhile(
    upload: &Upload,
    writer: &mut Writer,
    what: &str,
    name: &str,
) -> (String, Option<&'static str>) {
    let (at, text) = (upload.at(name), "what was written");
    let to = match what {
        "rename" => "renamed",
        "over" => "other",
        _ => name,
    };
    let text = match what {
        "read" => {
            assert_eq!(fs::read_to_string(&at).unwrap(), text);
            Some(text)
        }
        "unlink" => {
            fs::remove_file(&at).unwrap();
            None
        }
        "write" => {
            let again = File::options().write(true).open(&at).unwrap();
            again.write_all_at(b"WHAT", 0).unwrap();
            Some("WHAT was written")
        }
        "cut" => {
            writer.run(&format!("t 4 {name}"));
            Some("what")
        }
        _ => {
            fs::rename(&at, upload.at(to)).unwrap();
            Some(text)
        }
    };
    (to.into(), text)
}

/// S78: close(2) does not wait for the RELEASE by which its file is stored. What comes meanwhile finds what was written, and so it is if the
/// daemon dies then, before it has stored it, after that, or before it has answered; whatever becomes of the name.
#[test]
fn s78_while_a_close_is_stored() {
    for (until, moment) in
        ["close", "release"].into_iter().flat_map(|u| [(u, "before"), (u, "after"), (u, "stop")])
    {
        let upload = Upload::start(until);
        let mut writer = Writer::start(&upload.mount.mountpoint);
        for what in ["read", "rename", "over", "unlink", "write", "cut"] {
            let told = || format!("{until} {moment} {what}\n{}", upload.mount.log());
            fs::write(upload.at("other"), "other").unwrap();
            upload.closed();
            let crashes = number(&upload.mount.status().unwrap(), "/crashes");
            let daemon = upload.mount.pid("daemon");
            let name = format!("to-{what}");
            let file = File::create_new(upload.at(&name)).unwrap();
            file.write_all_at(b"what was written", 0).unwrap();
            fs::write(upload.control.join(moment), "").unwrap();
            let (name, text) = std::thread::scope(|scope| {
                drop(file);
                let done = scope.spawn(|| done_meanwhile(&upload, &mut writer, what, &name));
                if moment == "stop" {
                    // The close, and what comes behind it.
                    upload
                        .mount
                        .wait_for("both", |status| number(status, "/requests/in_flight") > 1);
                    kill(daemon, Signal::KILL).unwrap();
                    fs::remove_file(upload.control.join("stop")).unwrap();
                }
                done.join().unwrap()
            });
            upload.mount.wait_for("crash", |status| number(status, "/crashes") > crashes);
            upload.closed();
            upload.crash();
            assert_eq!(fs::read_to_string(upload.at(&name)).ok().as_deref(), text, "{}", told());
            assert_eq!(upload.behind(&name).as_deref(), text, "{}", told());
        }
        assert_well(&upload.mount);
        writer.end();
        unmount(upload.mount);
    }
}

/// What is stored is nobody's business any more: somebody may have changed it since.
#[test]
fn s78_what_is_stored_is_not_done_again() {
    let upload = Upload::start("flush");
    fs::write(upload.at("new"), "stored").unwrap();
    let synced = File::create(upload.at("synced")).unwrap();
    (&synced).write_all(b"synced").unwrap();
    synced.sync_all().unwrap();
    for name in ["new", "synced"] {
        fs::write(upload.mount.behind.join(name), "changed behind").unwrap();
    }
    upload.crash();
    for name in ["new", "synced"] {
        assert_eq!(upload.behind(name).as_deref(), Some("changed behind"), "{name}");
    }
    drop(synced);
    upload.closed();
    assert_well(&upload.mount);
}

/// Two who have a file open: what one writes is not stored because the other closes it.
#[test]
fn s78_two_writers() {
    let upload = Upload::start("flush");
    let first = File::create(upload.at("new")).unwrap();
    let second = File::options().write(true).open(upload.at("new")).unwrap();
    first.write_all_at(b"first ", 0).unwrap();
    second.write_all_at(b"second", 6).unwrap();
    upload.crash();
    drop(first);
    upload.crash();
    second.write_all_at(b"SECOND", 6).unwrap();
    upload.crash();
    drop(second);
    upload.closed();
    assert_eq!(upload.behind("new").as_deref(), Some("first SECOND"));
    assert_well(&upload.mount);
}

/// What a pattern has at an offset.
fn piece(number: u8) -> Vec<u8> {
    vec![number; 1 << 20]
}

/// More than can be on record, of a daemon that stores nothing before a close: the status says so, once for each file, until that
/// is stored; and if the daemon dies before, that it is lost.
#[test]
fn s78_what_finds_no_room_is_told() {
    let upload = Upload::start("close");
    let mut writer = Writer::start(&upload.mount.mountpoint);
    ["o long", "o other"].into_iter().for_each(|line| writer.run(line));
    writer.run(&format!("f 0 {}", 104 << 20));
    writer.run(&format!("f 1 {}", 1 << 20));
    let reasons = |kind: &str, names: &[&str]| {
        upload.mount.wait_for("word", |status| {
            let list = status["degraded_reasons"].as_array().unwrap();
            list.len() == names.len()
                && list.iter().zip(names).all(|(reason, name)| {
                    let what = reason["what"].as_str().unwrap();
                    reason["kind"] == kind && what.starts_with(&format!("/{name}: "))
                })
        });
    };
    reasons("unstored", &["long", "other"]);
    writer.run("c 0");
    upload.mount.wait_for("release", |status| status["open_handles"] == 1);
    reasons("unstored", &["other"]);
    assert_eq!(fs::metadata(upload.mount.behind.join("long")).unwrap().len(), 104 << 20);
    upload.mount.crash_and_recover();
    reasons("data", &["other"]);
    writer.run("c 1");
    upload.closed();
    reasons("data", &["other"]);
    writer.end();
}

/// S102: one file with more data than can be on record, at once: nothing of it is lost, and nothing is told.
#[test]
fn s102_a_file_of_any_length() {
    a_file_of_any_length(false);
}

/// The same while children of the writer come and go, each of which closes the file, and so flushes it.
#[test]
fn s102_a_file_that_is_flushed_while_it_is_written() {
    a_file_of_any_length(true);
}

fn a_file_of_any_length(flushed: bool) {
    let upload = Upload::start("flush");
    let over = AtomicBool::new(!flushed);
    let long =
        File::options().read(true).write(true).create_new(true).open(upload.at("long")).unwrap();
    let small = File::create_new(upload.at("small")).unwrap();
    // No program is started from here to the crash: it would close the files in passing, which flushes them.
    let daemon = upload.mount.pid("daemon");
    small.write_all_at(b"small", 0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                assert!(Command::new("true").status().unwrap().success());
            }
        });
        for number in 0..110 {
            long.write_all_at(&piece(number), u64::from(number) << 20).unwrap();
        }
        kill(daemon, Signal::KILL).unwrap();
        over.store(true, Relaxed);
    });
    assert_eq!(long.metadata().unwrap().len(), 110 << 20);
    for number in 0..110 {
        let mut found = piece(255);
        long.read_exact_at(&mut found, u64::from(number) << 20).unwrap();
        assert!(
            found == piece(number),
            "piece {number}, {:?} ... {:?}\n{}",
            found.first(),
            found.last(),
            upload.mount.log()
        );
    }
    assert_well(&upload.mount);
    long.sync_all().unwrap();
    drop((long, small));
    upload.closed();
    assert_eq!(upload.behind("small").as_deref(), Some("small"));
    assert_well(&upload.mount);
    unmount(upload.mount);
}

/// S77: nobody waits for daemons that cannot start, as what was acknowledged and not stored is damaged: the mount becomes read-only, as
/// it is stored, and that is said at once.
#[test]
fn s77_a_damaged_record_is_not_waited_for() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let archive = dir.path().join("a.zip");
    let start = || {
        serving(Custom::start(&[], |place| {
            vec!["fuse-zip".into(), "-f".into(), archive.clone().into(), place.mountpoint.into()]
        }))
    };
    let mount = start();
    fs::write(mount.at("stored"), "stored").unwrap();
    let ended = unmount(mount);
    drop(ended);
    let mut mount = start();
    fs::write(mount.at("lost"), "lost").unwrap();
    // Which half of the op-log is in use.
    let words = belay_recorder::Layout::new(belay_recorder::Capacity::MOUNT).epochs
        + belay_image::overlay::Capacity::MOUNT.words();
    mount.recorder().write_at(&u64::MAX.to_ne_bytes(), words as u64 * 8).unwrap();
    mount.signal("daemon", Signal::KILL);
    mount.wait_for("the end of changes", |status| {
        status["state"] == "serving" && !status["read_only"].is_null()
    });
    assert_eq!(fs::read_to_string(mount.at("stored")).unwrap(), "stored", "{}", mount.log());
    // The kernel may remember it for a moment.
    assert!(until(|| !mount.at("lost").exists()), "{}", mount.log());
    let error = fs::write(mount.at("new"), "new").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS), "{}", mount.log());
    assert!(mount.log().contains("op-log is damaged"), "{}", mount.log());
    let status = mount.status().unwrap();
    assert_eq!(status["degraded_reasons"][0]["kind"], "data", "{status}");
    mount.tool(&["umount"]);
    mount.end();
}

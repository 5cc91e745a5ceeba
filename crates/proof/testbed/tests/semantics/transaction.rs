//! S42: image transactions, crashed within their being carried out.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use belay_faults::{Plan, Point, Target, Tracer};
use belay_testbed::process::{Process, kill, run, wait_for_exit};
use belay_testbed::{Kind, Signal, mounts};
use belay_wire::Opcode;
use serde_json::Value;

use crate::common::{Caller, LIMIT, call, held, names, number, state_of, until};
use crate::custom::Custom;
use crate::journal::{compile, decisions, dies_at};

/// A mount on an image, by a copy of the daemon's program.
struct OnImage {
    mount: Custom,
    image: PathBuf,
}

impl OnImage {
    fn ntfs(arguments: &[&str]) -> Self {
        let options = ["-o", "no_detach,noatime"];
        Self::start(arguments, &options, |program, image| {
            let found = run(shell("command -v ntfs-3g"), LIMIT).unwrap();
            fs::copy(String::from_utf8(found.stdout).unwrap().trim(), program).unwrap();
            File::create(image).unwrap().set_len(64 << 20).unwrap();
            let mut make = Command::new("mkntfs");
            make.args(["-F", "-Q", "-q"]).arg(image);
            let output = run(make, LIMIT).unwrap();
            assert!(output.status.success(), "{output:?}");
        })
    }

    fn blocks(arguments: &[&str]) -> Self {
        Self::start(arguments, &["-f"], |program, image| {
            compile("image.c", program);
            File::create(image).unwrap().set_len(4096 + (70 << 20)).unwrap();
        })
    }

    fn start(arguments: &[&str], options: &[&str], prepare: impl FnOnce(&Path, &Path)) -> Self {
        let mut image = PathBuf::new();
        let mount = Custom::start(arguments, |place| {
            let program = place.dir.join("ntfs-3g");
            image = place.dir.join("image");
            prepare(&program, &image);
            let mut words = vec![program.into()];
            words.extend([image.clone().into(), place.mountpoint.into()]);
            words.extend(options.iter().map(Into::into));
            words
        });
        let status = mount.wait_for("service", |status| status["state"] == "serving");
        assert_eq!(status["policy"], "transaction", "{status}");
        fs::metadata(&mount.mountpoint).unwrap();
        Self { mount, image }
    }

    fn trace(&self, name: &str, point: Option<Point>) -> Tracer {
        let target = Target::any(&[Opcode::MKDIR]).containing(name);
        let plan = Plan { target, fault: point.and_then(dies_at) };
        Tracer::attach(self.mount.pid("daemon"), plan).unwrap()
    }

    fn mkdir(&self, name: &str) -> Caller<io::Result<()>> {
        let path = self.mount.at(name);
        call(move || fs::create_dir(path))
    }

    fn crashed(&self, times: u64) -> Value {
        self.mount.wait_for("crash", |status| number(status, "/crashes") >= times)
    }

    fn at_rest(&self) -> Value {
        self.mount.wait_for("rest", |status| {
            status["state"] == "serving" && status["requests"]["in_flight"] == 0
        })
    }
}

fn shell(words: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", words]);
    command
}

/// What the image's own checker and a bare daemon say of an image that nobody uses: the names in its root, if it can be used.
fn look(image: &Path) -> Result<Vec<String>, String> {
    let mut check = Command::new("ntfsfix");
    check.arg("-n").arg(image);
    let output = run(check, LIMIT).unwrap();
    if !output.status.success() {
        return Err(format!("ntfsfix: {output:?}"));
    }
    let dir = tempfile::Builder::new().prefix("belay-look-").tempdir_in("/dev/shm").unwrap();
    let mountpoint = dir.path().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let mut daemon = Command::new("ntfs-3g");
    daemon.args(["-o", "no_detach"]).arg(image).arg(&mountpoint);
    let mut daemon = Process::start(daemon, &dir.path().join("log")).unwrap();
    let used = mounts::wait(&mountpoint, true, LIMIT, || daemon.must_run()).and_then(|()| {
        let found: Result<Vec<_>, io::Error> = fs::read_dir(&mountpoint)?
            .map(|entry| Ok(entry?.file_name().into_string().unwrap()))
            .collect();
        let mut found = found?;
        found.sort();
        for name in &found {
            fs::metadata(mountpoint.join(name))?;
        }
        fs::create_dir(mountpoint.join("look"))?;
        fs::write(mountpoint.join("look/file"), "text")?;
        fs::remove_file(mountpoint.join("look/file"))?;
        // The daemon may hear of the file's close after its removal, and has hidden it then.
        let gone = until(|| fs::remove_dir(mountpoint.join("look")).is_ok());
        assert!(gone, "{:?}", fs::read_dir(mountpoint.join("look")).map(Iterator::count));
        mounts::unmount_clean(&mountpoint, LIMIT)?;
        Ok(found)
    });
    let words = daemon.tail();
    mounts::unmount_by_force(&mountpoint);
    let ended = daemon.wait(LIMIT).unwrap();
    assert!(ended.is_some(), "the bare daemon does not end");
    used.map_err(|error| format!("{error:#}{words}"))
}

/// The system calls of a commit.
fn effects_of_mkdir() -> u32 {
    let on = OnImage::ntfs(&[]);
    let tracer = on.trace("new", None);
    on.mkdir("new").result().unwrap();
    let request = tracer.finish().unwrap().request.unwrap();
    assert!(request.effects.iter().all(|effect| effect.call.starts_with("pwrite")), "{request:?}");
    u32::try_from(request.effects.len()).unwrap()
}

/// S42: belay gives the mount up when no successor can be started: what was committed is in the image, all of it.
#[test]
fn s42_given_up_in_a_commit() {
    let effects = effects_of_mkdir();
    assert!(effects > 1, "nothing can be in between");
    let mut points = vec![Point::Received, Point::BeforeEffect(1), Point::BeforeReply];
    points.extend((1..=effects).map(Point::AfterEffect));
    for point in points {
        let mut on = OnImage::ntfs(&["--max-crashes", "1", "--retry-for", "0s"]);
        let tracer = on.trace("new", Some(point));
        // Successors do not find their image.
        let aside = on.image.with_extension("aside");
        fs::rename(&on.image, &aside).unwrap();
        let caller = on.mkdir("new");
        let ended = on.mount.end();
        assert!(!ended.success(), "{point}: {ended}");
        assert!(tracer.finish().unwrap().crashed, "{point}");
        caller.result().unwrap_err();
        mounts::unmount_by_force(&on.mount.mountpoint);
        let found = look(&aside).unwrap_or_else(|error| panic!("{point}: {error}"));
        let there = found.iter().any(|name| name == "new");
        assert_eq!(there, point != Point::Received, "{point}: {found:?}\n{}", on.mount.log());
    }
}

/// S42: what was committed is carried out once, by the first generation after it; others, which do not find their image by
/// its name, start and end meanwhile.
#[test]
fn s42_carried_out_in_the_end() {
    let on = OnImage::ntfs(&["--max-crashes", "0"]);
    let tracer = on.trace("new", Some(Point::AfterEffect(1)));
    let aside = on.image.with_extension("aside");
    fs::rename(&on.image, &aside).unwrap();
    let caller = on.mkdir("new");
    on.mount.wait_for("failed starts", |status| number(status, "/failed_starts") >= 2);
    assert!(tracer.finish().unwrap().crashed);
    assert!(!caller.is_done());
    fs::rename(&aside, &on.image).unwrap();
    caller.result().unwrap();
    assert!(on.mount.at("new").is_dir());
    let status = on.at_rest();
    assert_eq!(status["effects"]["finished"], 1, "{status}");
    on.mount.tool(&["umount"]);
    let mut mount = on.mount;
    assert!(mount.end().success());
    assert_eq!(look(&on.image).unwrap().iter().filter(|name| *name == "new").count(), 1);
}

/// S33 and L24: nothing of belay is left when the daemon dies. What was not begun to be carried out, and what was to its end,
/// is whole even then.
#[test]
fn s42_nothing_of_belay_is_left() {
    let effects = effects_of_mkdir();
    for point in [Point::Received, Point::BeforeEffect(1), Point::AfterEffect(effects)] {
        let on = OnImage::ntfs(&[]);
        let (keeper, supervisor) = (on.mount.pid("keeper"), on.mount.pid("supervisor"));
        let daemon = on.mount.pid("daemon");
        let tracer = on.trace("new", Some(point));
        // Neither sees the other one's end.
        for pid in [keeper, supervisor] {
            kill(pid, Signal::STOP).unwrap();
            assert!(until(|| state_of(pid) == 'T'));
        }
        for pid in [supervisor, keeper] {
            kill(pid, Signal::KILL).unwrap();
            assert!(wait_for_exit(pid, LIMIT).unwrap());
        }
        assert_eq!(names(&on.mount.mountpoint), [""; 0]);
        on.mkdir("new").result().unwrap_err();
        assert!(tracer.finish().unwrap().crashed, "{point}");
        assert!(wait_for_exit(daemon, LIMIT).unwrap());
        mounts::unmount_by_force(&on.mount.mountpoint);
        let found = look(&on.image).unwrap_or_else(|error| panic!("{point}: {error}"));
        let there = found.iter().any(|name| name == "new");
        assert_eq!(there, point == Point::AfterEffect(effects), "{point}: {found:?}");
    }
}

fn assert_blocks(image: &Path, letter: u8, count: usize) {
    let bytes = fs::read(image).unwrap();
    assert_eq!(bytes[usize::from(letter)], letter);
    let blocks = &bytes[4096..4096 + (count << 20)];
    assert!(blocks.iter().all(|byte| *byte == letter), "not all of it is {letter}");
}

/// S42 and L22: more than a transaction can hold. Without a crash it is as it should be; after one it is done again, and said.
#[test]
fn s42_too_long_for_a_transaction() {
    let on = OnImage::blocks(&["--policy", "transaction"]);
    fs::create_dir(on.mount.at("big")).unwrap();
    assert_blocks(&on.image, b'b', 70);
    let status = on.at_rest();
    assert_eq!(status["effects"]["torn"], 1, "{status}");
    // The next one is whole again, and its log can be used.
    let tracer = on.trace("small", Some(Point::AfterEffect(1)));
    on.mkdir("small").result().unwrap();
    on.crashed(1);
    assert!(tracer.finish().unwrap().crashed);
    assert_blocks(&on.image, b's', 3);
    let status = on.at_rest();
    assert_eq!(status["effects"]["torn"], 1, "{status}");
    assert_eq!(status["effects"]["finished"], 1, "{status}");
}

/// L22: the crash after which the image is in between.
#[test]
fn s42_torn_by_a_crash() {
    let on = OnImage::blocks(&["--policy", "transaction"]);
    let tracer = on.trace("big", Some(Point::AfterEffect(1)));
    on.mkdir("big").result().unwrap();
    assert!(tracer.finish().unwrap().crashed);
    assert_blocks(&on.image, b'b', 70);
    let status = on.at_rest();
    assert_eq!(status["effects"]["torn"], 2, "{status}");
    let reports = PathBuf::from(status["report_dir"].as_str().unwrap());
    let told = || {
        let decisions = decisions(&reports, "MKDIR");
        let said = |decision: &Value| decision["text"].as_str().unwrap().contains("too many");
        decisions.iter().any(said)
    };
    assert!(until(told), "{}", on.mount.log());
}

/// S42: fsync within and beside transactions.
#[test]
fn s42_files_are_synced() {
    let bed = held(Kind::Ntfs3g, &[], &["--policy", "auto"]);
    let mut last = 0;
    for round in 0..5 {
        let mut file = File::create(bed.at(&format!("file{round}"))).unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        let committed = bed.number("/effects/committed");
        assert!(committed > last, "{committed} {last}");
        last = committed;
    }
    bed.stop();
}

/// S42: a writer under twenty kills, each at any moment.
#[test]
fn s42_under_kills() {
    let bed = held(Kind::Ntfs3g, &[], &["--policy", "auto", "--max-crashes", "0"]);
    let mut crash = belay_testbed::Belay::find().unwrap().command();
    crash.args(["crash", "--count", "20", "--every", "25ms"]).arg(bed.bed.mountpoint());
    let crashes = call(move || run(crash, LIMIT).unwrap());
    let dir = bed.at("dir");
    fs::create_dir(&dir).unwrap();
    let content =
        |round: usize| vec![u8::try_from(round % 251).unwrap(); 1000 + 997 * (round % 40)];
    let mut rounds = 0;
    while !crashes.is_done() {
        let (old, new) = (dir.join("old"), dir.join(format!("file{rounds}")));
        fs::write(&old, content(rounds)).unwrap();
        fs::rename(&old, &new).unwrap();
        if rounds >= 20 {
            fs::remove_file(dir.join(format!("file{}", rounds - 20))).unwrap();
        }
        rounds += 1;
    }
    let output = crashes.result();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(bed.number("/crashes"), 20);
    let kept = rounds.saturating_sub(20)..rounds;
    let mut wanted: Vec<_> = kept.clone().map(|round| format!("file{round}")).collect();
    wanted.sort();
    assert_eq!(names(&dir), wanted);
    for round in kept {
        assert_eq!(fs::read(dir.join(format!("file{round}"))).unwrap(), content(round), "{round}");
    }
    // Also checks the image.
    bed.stop();
}

/// The daemon has several threads and no lock of its own: its requests share buffers.
#[test]
fn s42_requests_of_several_threads_take_turns() {
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let on = OnImage::blocks(&["--policy", "transaction", "--max-crashes", "0"]);
    fs::create_dir(on.mount.at("a")).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    fs::metadata(on.mount.at("a")).unwrap();
                }
            });
        }
        let _done = Done(&done);
        for (letter, crash) in (b'c'..=b'v').zip([false, false, true].into_iter().cycle()) {
            let name = char::from(letter).to_string();
            let tracer = crash.then(|| on.trace(&name, Some(Point::AfterEffect(2))));
            fs::create_dir(on.mount.at(&name)).unwrap();
            assert_blocks(&on.image, letter, 3);
            if let Some(tracer) = tracer {
                assert!(tracer.finish().unwrap().crashed, "{name}");
                on.mount.wait_for("service", |status| status["state"] == "serving");
            }
        }
    });
    let status = on.at_rest();
    assert_eq!(status["effects"]["torn"], 0, "{status}");
    assert!(number(&status, "/crashes") >= 6, "{status}");
}

/// S95: a child of vfork closes the image, in the daemon's memory: the daemon has it still.
#[test]
fn s95_children_of_vfork_do_not_close_the_image() {
    let on = OnImage::blocks(&["--policy", "transaction"]);
    on.mkdir("v").result().unwrap();
    let status = on.at_rest();
    assert_eq!(number(&status, "/crashes"), 0, "{}", on.mount.log());
    assert!(fs::read(&on.image).unwrap()[4096..4096 + (3 << 20)].iter().all(|byte| *byte == b'v'));
    on.mount.stop();
}

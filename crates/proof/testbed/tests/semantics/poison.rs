//! S40: requests that daemons die of.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use belay_testbed::Signal;
use belay_testbed::process::run;
use serde_json::Value;

use crate::common::{Caller, LIMIT, call, number, until};
use crate::custom::Custom;

/// A mount by `poison.c`, and the directory by which its daemons are controlled.
pub struct Deadly {
    pub mount: Custom,
    control: PathBuf,
}

impl Deadly {
    pub fn start(arguments: &[&str], options: &[&str]) -> Self {
        let mut control = PathBuf::new();
        // What the daemon reads and writes in its control directory is not for a journal to remember.
        let arguments: Vec<&str> =
            ["--policy", "reconcile"].iter().chain(arguments).copied().collect();
        let mount = Custom::start(&arguments, |place| {
            let program = place.dir.join("poison");
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/poison.c");
            let mut flags = Command::new("pkg-config");
            flags.args(["--cflags", "--libs", "fuse3"]);
            let flags = String::from_utf8(run(flags, LIMIT).unwrap().stdout).unwrap();
            let mut build = Command::new("cc");
            build.args(["-O1", "-Wall", "-Wextra", "-o"]).arg(&program).arg(source);
            build.args(flags.split_whitespace());
            let output = run(build, LIMIT).unwrap();
            assert!(output.status.success(), "{output:?}");
            control = place.dir.join("control");
            fs::create_dir(&control).unwrap();
            fs::create_dir(place.behind.join("p")).unwrap();
            let mut words = vec![program.into(), place.behind.into(), control.clone().into()];
            words.extend([place.mountpoint.into(), "-f".into()]);
            words.extend(options.iter().map(Into::into));
            words
        });
        mount.serves();
        Self { mount, control }
    }

    /// Makes a directory in one of its own, so that the kernel's lock on it does not hold up anybody else.
    pub fn mkdir(&self, name: &str) -> Caller<io::Result<()>> {
        let path = self.mount.at("p").join(name);
        call(move || fs::create_dir(path))
    }

    /// Waits until so many daemons have got the request to make `gate`.
    pub fn await_at_the_gate(&self, times: u64) {
        let reached = self.control.join("reached");
        let reached = || fs::metadata(&reached).map_or(0, |data| data.len());
        assert!(until(|| reached() == times), "{} times\n{}", reached(), self.mount.log());
    }

    /// Lets whoever makes `gate` go on.
    pub fn open_the_gate(&self) {
        fs::write(self.control.join("open"), "").unwrap();
    }

    fn fails(&self, caller: Caller<io::Result<()>>) {
        let error = caller.result().expect_err("it fails");
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{}", self.mount.log());
    }

    fn serving(&self) -> Value {
        self.mount.wait_for("service", |status| status["state"] == "serving")
    }

    /// The mount serves on: what it was, what is new, and after one more crash.
    pub fn serves_on(&self) {
        assert_eq!(fs::read_to_string(self.mount.at("file")).unwrap(), "text");
        self.mkdir("harmless").result().unwrap();
        assert!(self.mount.behind.join("p/harmless").is_dir());
        self.mount.crash_and_recover();
        assert_eq!(fs::read_to_string(self.mount.at("file")).unwrap(), "text");
    }

    /// All reports, as text.
    fn reports(&self) -> String {
        let dir = self.serving()["report_dir"].as_str().unwrap().to_owned();
        let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|kind| kind == "txt")).collect();
        paths.sort();
        paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
    }

    /// The requests that failed, as the reports name them.
    fn named(&self) -> BTreeSet<String> {
        let dir = self.serving()["report_dir"].as_str().unwrap().to_owned();
        let mut named = BTreeSet::new();
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let report: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
                let decisions = report["decisions"].as_array().unwrap();
                let failed = decisions.iter().filter(|decision| decision["errno"] != 0);
                named.extend(failed.map(|decision| {
                    assert_eq!((&decision["row"], &decision["errno"]), (&11.into(), &5.into()));
                    decision["text"].as_str().unwrap().to_owned()
                }));
            }
        }
        named
    }
}

/// Clients that work all the while, each in a directory of its own.
struct Clients {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    callers: Vec<Caller<io::Result<()>>>,
}

impl Clients {
    fn start(mount: &Custom) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let rounds = Arc::new(AtomicU64::new(0));
        let start = |n: u32| {
            let (dir, stop, rounds) = (mount.at(&format!("c{n}")), stop.clone(), rounds.clone());
            call(move || {
                fs::create_dir(&dir)?;
                while !stop.load(Ordering::Relaxed) {
                    let (old, new) = (dir.join("old"), dir.join("new"));
                    fs::write(&old, "something")?;
                    fs::rename(&old, &new)?;
                    assert_eq!(fs::read_to_string(&new)?, "something");
                    assert_eq!(crate::common::names(&dir), ["new"]);
                    fs::remove_file(&new)?;
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
                fs::remove_dir(&dir)
            })
        };
        let callers = (0..3).map(start).collect();
        let clients = Self { stop, rounds, callers };
        clients.work();
        clients
    }

    /// Waits until some more has been done.
    fn work(&self) {
        let end = self.rounds.load(Ordering::Relaxed) + 10;
        assert!(until(|| self.rounds.load(Ordering::Relaxed) >= end), "the clients hang");
    }

    fn end(self) {
        self.work();
        self.stop.store(true, Ordering::Relaxed);
        for caller in self.callers {
            caller.result().unwrap();
        }
    }
}

/// S40: the second crash by the same request is the last; its caller gets EIO, and nobody else notices.
#[test]
fn s40_a_deadly_request_fails_alone() {
    for arguments in [&[][..], &["--no-resend"]] {
        let deadly = Deadly::start(arguments, &[]);
        let clients = Clients::start(&deadly.mount);
        for (i, name) in ["poison-segv", "poison-abort", "poison-exit"].into_iter().enumerate() {
            deadly.fails(deadly.mkdir(name));
            let status = deadly.serving();
            let done = i as u64 + 1;
            // More if a daemon took a second to die: it was not alone with the request then.
            let told = || format!("{status}\n{}\n{}", deadly.reports(), deadly.mount.log());
            assert!(number(&status, "/crashes") >= 2 * done, "{}", told());
            assert_eq!(number(&status, "/requests/poisoned"), done, "{}", told());
            assert_eq!(number(&status, "/requests/failed"), done, "{}", told());
            let named = deadly.named();
            let names = |text: &&String| text.contains(&format!("name=\"{name}\""));
            assert_eq!(named.iter().filter(names).count(), 1, "{named:?}");
            assert_eq!(named.len() as u64, done, "{named:?}");
            clients.work();
        }
        clients.end();
        deadly.serves_on();
        assert!(!deadly.mount.behind.join("p/poison-segv").exists());
    }
}

/// S40: what kills one daemon and not the next is carried out.
#[test]
fn s40_deadly_once_is_not_poison() {
    let deadly = Deadly::start(&[], &[]);
    let clients = Clients::start(&deadly.mount);
    fs::write(deadly.control.join("once"), "").unwrap();
    deadly.mkdir("poison-once").result().unwrap();
    clients.end();
    let status = deadly.serving();
    assert_eq!((number(&status, "/crashes"), number(&status, "/requests/failed")), (1, 0));
    deadly.serves_on();
}

/// S40: several at once fail one after another, and the mount is not given up meanwhile.
#[test]
fn s40_several_deadly_requests_at_once() {
    let deadly = Deadly::start(&[], &[]);
    let clients = Clients::start(&deadly.mount);
    // In directories of their own, or the kernel would have them one after another.
    let names: Vec<_> = (0..4).map(|n| format!("d{n}")).collect();
    for name in &names {
        deadly.mkdir(name).result().unwrap();
    }
    let callers: Vec<_> =
        names.iter().map(|name| deadly.mkdir(&format!("{name}/poison-abort"))).collect();
    for caller in callers {
        deadly.fails(caller);
    }
    clients.end();
    let status = deadly.serving();
    assert_eq!(number(&status, "/requests/poisoned"), 4);
    assert!(number(&status, "/crashes") >= 5, "{status}");
    deadly.serves_on();
}

/// S40: so many crashes as are asked for; 0 is never, and then S36 is all that is left.
#[test]
fn s40_after_as_many_crashes_as_are_asked_for() {
    let deadly = Deadly::start(&["--poison-after", "4", "--max-crashes", "2"], &[]);
    deadly.fails(deadly.mkdir("poison-abort"));
    assert!(number(&deadly.serving(), "/crashes") >= 4);
    deadly.serves_on();

    let mut deadly = Deadly::start(&["--poison-after", "0", "--max-crashes", "3"], &[]);
    let caller = deadly.mkdir("poison-abort");
    assert_eq!(deadly.mount.end().code(), Some(1));
    assert!(caller.result().is_err());
    assert!(deadly.mount.log().contains("giving up"), "{}", deadly.mount.log());
}

/// S36: deaths in a row without one served request are counted, and with the last one every caller has an error.
#[test]
fn s36_as_many_deaths_as_are_asked_for() {
    for most in ["1", "4"] {
        let arguments = ["--poison-after", "0", "--max-crashes", most, "--retry-for", "1h"];
        let mut deadly = Deadly::start(&arguments, &[]);
        let open = fs::File::open(deadly.mount.at("file")).unwrap();
        let caller = deadly.mkdir("poison-abort");
        assert_eq!(deadly.mount.end().code(), Some(1));
        assert!(caller.result().is_err());
        assert!(call(move || open.metadata().map(drop)).result().is_err());
        let log = deadly.mount.log();
        let told = format!("the daemon died {most} times without serving one request");
        assert!(log.contains("giving up") && log.contains(&told), "{log}");
    }
}

/// S40: a request that daemons hang in, with all the threads they have.
#[test]
fn s40_a_request_that_daemons_hang_in() {
    for options in [&[][..], &["-s"]] {
        let deadly = Deadly::start(&["--hang-timeout", "1500ms"], options);
        let caller = deadly.mkdir("poison-hang");
        let path = deadly.mount.at("file");
        let reader = call(move || fs::read_to_string(path));
        deadly.fails(caller);
        assert_eq!(reader.result().unwrap(), "text");
        let status = deadly.serving();
        assert!(number(&status, "/crashes") >= 2);
        assert_eq!(number(&status, "/requests/poisoned"), 1);
        deadly.serves_on();
    }
}

/// S40: a daemon that kills itself is to blame for it. What others do is nobody's fault, however often they do it just when
/// the daemon has a request alone.
#[test]
fn s40_daemons_that_are_killed() {
    let deadly = Deadly::start(&[], &[]);
    let clients = Clients::start(&deadly.mount);
    deadly.fails(deadly.mkdir("poison-kill"));
    clients.end();

    let gated = deadly.mkdir("gate");
    for (time, signal) in
        [Signal::KILL, Signal::SEGV, Signal::ABORT].into_iter().cycle().take(12).enumerate()
    {
        deadly.await_at_the_gate(time as u64 + 1);
        deadly.mount.signal("daemon", signal);
    }
    deadly.await_at_the_gate(13);
    deadly.open_the_gate();
    gated.result().unwrap();
    let status = deadly.serving();
    assert!(number(&status, "/crashes") >= 14, "{status}");
    assert_eq!(number(&status, "/requests/poisoned"), 1);
    deadly.serves_on();
}

/// S40: `belay crash` is nobody's fault, whatever the signal.
#[test]
fn s40_crashes_that_are_asked_for() {
    let deadly = Deadly::start(&[], &[]);
    let clients = Clients::start(&deadly.mount);
    for _ in 0..20 {
        deadly.mount.crash_with("SEGV");
    }
    clients.end();
    let status = deadly.serving();
    assert_eq!((number(&status, "/crashes"), number(&status, "/requests/failed")), (20, 0));
    deadly.serves_on();
}

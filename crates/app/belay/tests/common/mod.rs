//! A held mount for tests, torn down whatever happens.
#![allow(dead_code)]

use serde_json::Value;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Nothing takes this long unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// The belay program under test.
pub fn belay() -> Command {
    Command::new(env!("CARGO_BIN_EXE_belay"))
}

/// Runs a command to its end, killed by `timeout` if it hangs.
pub fn run(command: &Command) -> Output {
    let mut limited = Command::new("timeout");
    limited.args(["-s", "KILL", "60"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.stdin(Stdio::null()).output().expect("timeout(1)")
}

/// Both outputs of a command as text.
pub fn text(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    parts.concat()
}

/// Whether this machine and user can hold mounts at all.
pub fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let able = root && Path::new("/dev/fuse").exists();
    if !able {
        eprintln!("skipped: needs root and /dev/fuse");
    }
    able
}

/// Whether the shim is built and bindfs installed, for tests that hold a real mount.
pub fn can_hold() -> bool {
    let shim = Path::new(env!("CARGO_BIN_EXE_belay")).with_file_name("libbelay_shim.so");
    let shim = shim.exists() || std::env::var_os("BELAY_SHIM_LIB").is_some();
    if !shim {
        eprintln!("skipped: build the shim first: cargo build -p belay-shim");
    }
    let bindfs = Path::new("/usr/bin/bindfs").exists();
    if !bindfs {
        eprintln!("skipped: needs bindfs");
    }
    shim && bindfs && can_mount()
}

/// A directory shown by bindfs under belay.
pub struct Held {
    /// What bindfs shows.
    pub source: PathBuf,
    /// Where.
    pub mount: PathBuf,
    /// Where belay keeps its state.
    pub state: PathBuf,
    /// The copy of bindfs that is the daemon.
    pub daemon: PathBuf,
    /// The `belay run`.
    pub child: Child,
    dir: tempfile::TempDir,
}

impl Held {
    /// Starts `belay run OPTIONS -- bindfs DAEMON_OPTIONS SOURCE MOUNT` and waits until it serves.
    pub fn start(options: &[&str], daemon_options: &[&str]) -> Self {
        Self::start_by(belay().arg("run").args(options).arg("--"), daemon_options, "mount".as_ref())
    }

    /// The same by another belay than the one under test, such as a copy of it.
    pub fn start_of(belay: &Path, options: &[&str], daemon_options: &[&str]) -> Self {
        let mut command = Command::new(belay);
        Self::start_by(command.arg("run").args(options).arg("--"), daemon_options, "mount".as_ref())
    }

    /// The same with a mountpoint of this name.
    pub fn start_at(name: &OsStr) -> Self {
        Self::start_by(belay().args(["run", "--"]), &["-f"], name)
    }

    /// The same with something else for its standard error than the log.
    pub fn start_heard_by(stderr: OwnedFd, daemon_options: &[&str]) -> Self {
        let mut command = belay();
        command.args(["run", "-vv", "--hang-timeout", "1s", "--"]);
        Self::start_with(&mut command, daemon_options, "mount".as_ref(), Some(stderr), None)
    }

    /// Another one that shows what this one shows.
    pub fn start_on_top(&self) -> Self {
        let mut command = belay();
        let command = command.args(["run", "--"]);
        Self::start_with(command, &["-f"], "mount".as_ref(), None, Some(&self.mount))
    }

    fn start_by(command: &mut Command, daemon_options: &[&str], name: &OsStr) -> Self {
        Self::start_with(command, daemon_options, name, None, None)
    }

    fn start_with(
        command: &mut Command,
        daemon_options: &[&str],
        name: &OsStr,
        stderr: Option<OwnedFd>,
        shown: Option<&Path>,
    ) -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let place = |name: &str| dir.path().canonicalize().expect("canonical").join(name);
        let (source, mount, state) = (place("source"), place("").join(name), place("state"));
        let daemon = place("daemon");
        copy("/usr/bin/bindfs".as_ref(), &daemon);
        for dir in [&source, &mount] {
            std::fs::create_dir(dir).expect("mkdir");
        }
        std::fs::write(source.join("file"), "content\n").expect("write");
        std::fs::write(place("log"), "").expect("log");
        let log = std::fs::File::options().append(true).open(place("log")).expect("log");
        let child = command
            .arg(&daemon)
            .args(daemon_options)
            .args([shown.unwrap_or(&source), &mount])
            .env("BELAY_STATE_DIR", &state)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("dup"))
            .stderr(stderr.map_or_else(|| log.into(), Stdio::from))
            .spawn()
            .expect("belay");
        let held = Self { source, mount, state, daemon, child, dir };
        held.wait_for("serving");
        held
    }

    /// What belay and the daemon have said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The same, to have more written to it.
    pub fn log_file(&self) -> std::fs::File {
        let path = self.dir.path().join("log");
        std::fs::File::options().append(true).open(path).expect("log")
    }

    /// A belay command on this state directory.
    pub fn belay(&self, words: &[&str]) -> Command {
        let mut command = belay();
        command.args(words).env("BELAY_STATE_DIR", &self.state);
        command
    }

    /// Runs a belay command on this mount; its standard output, and success.
    pub fn ask(&self, words: &[&str]) -> Output {
        let mut command = self.belay(words);
        command.arg(&self.mount);
        run(&command)
    }

    /// The status; null if there is none.
    pub fn status(&self) -> Value {
        let output = self.ask(&["status", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// Waits until the mount is in this state, and gives its status.
    pub fn wait_for(&self, state: &str) -> Value {
        self.wait_until(state, |status| status["state"] == state)
    }

    /// Waits until the status is as wanted, and gives it.
    pub fn wait_until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + LIMIT;
        loop {
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < end, "never {what}: {status}\n{}", self.log());
            sleep(Duration::from_millis(10));
        }
    }

    /// A process id in the status, such as that of `daemon`.
    pub fn pid(&self, of: &str) -> i32 {
        self.status()[of]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a pid")
    }

    /// Reads the file through the mount.
    pub fn read(&self) -> String {
        let mut cat = Command::new("cat");
        cat.arg(self.mount.join("file"));
        text(&run(&cat))
    }

    /// Waits for the end of `belay run`; its exit code.
    pub fn exit_code(&mut self) -> Option<i32> {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                return status.code();
            }
            assert!(Instant::now() < end, "belay does not end\n{}", self.log());
            sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end of `belay run`, and goes on with another; the exit code of the first.
    pub fn go_on_with(&mut self, next: Child) -> Option<i32> {
        let code = self.exit_code();
        self.child = next;
        code
    }

    /// Whether something is mounted.
    pub fn is_mounted(&self) -> bool {
        let table = std::fs::read("/proc/self/mountinfo").expect("mountinfo");
        // The kernel writes some characters as octal digits.
        let mut place = vec![b' '];
        for byte in self.mount.as_os_str().as_bytes() {
            match byte {
                b' ' | b'\t' | b'\n' | b'\\' => place.extend(format!("\\{byte:03o}").bytes()),
                byte => place.push(*byte),
            }
        }
        place.push(b' ');
        table.windows(place.len()).any(|part| part == place)
    }

    /// The text of crash report `number`, which comes a little after the successor's first answers.
    pub fn report(&self, number: u32) -> String {
        let entries = std::fs::read_dir(&self.state).expect("state").flatten();
        let mut folders = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
        let dir = folders.next().expect("an instance").join("reports");
        let path = dir.join(format!("{number:04}.txt"));
        let end = Instant::now() + LIMIT;
        while !path.exists() && Instant::now() < end {
            sleep(Duration::from_millis(2));
        }
        std::fs::read_to_string(path).expect("a report")
    }
}

/// Copies a program, by another process: a copy that this one has open for writing cannot be run
/// while some thread of it forks.
pub fn copy(from: &Path, to: &Path) {
    let output = run(Command::new("cp").arg(from).arg(to));
    assert!(output.status.success(), "{}", text(&output));
}

/// Sends a signal to one process.
pub fn signal(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("kill");
}

impl Drop for Held {
    fn drop(&mut self) {
        let lives = matches!(self.child.try_wait(), Ok(None));
        if lives || self.is_mounted() {
            self.ask(&["stop", "--force"]);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.is_mounted() {
            let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
        }
        if std::thread::panicking() {
            eprintln!("what belay said:\n{}", self.log());
        }
    }
}

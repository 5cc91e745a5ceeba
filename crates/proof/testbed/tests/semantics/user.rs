//! An ordinary user: `belay run` and applications under an id without any privilege.
//!
//! The tests run as root, so this user is an id that owns nothing. Without `allow_other` nobody else, not even root,
//! may look at such a mount: whatever is done there is done by threads and programs of the same id.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use belay_testbed::process::{Process, kill, run};
use belay_testbed::{Belay, Signal, mounts};
use rustix::process::{Gid, Uid};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Caller, LIMIT, await_status, call, number, until};

/// `nobody`: ssh wants its user to have a name.
const ID: u32 = 65534;

/// A `belay run` of an ordinary user, in a directory that is all that this user has.
pub struct User {
    process: Option<Process>,
    pub mountpoint: PathBuf,
    pub behind: PathBuf,
    pub home: PathBuf,
    _device: DeviceForAll,
    _dir: TempDir,
}

impl User {
    /// A user with a home, a mountpoint, and a copy of belay, which may be built where others may not look.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("belay-user-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in("/dev/shm")
            .unwrap();
        let home = dir.path().canonicalize().unwrap();
        let (mountpoint, behind) = (home.join("mnt"), home.join("back"));
        for path in [&mountpoint, &behind, &home.join("run"), &home.join("bin")] {
            fs::create_dir(path).unwrap();
            chown(path, Some(ID), Some(ID)).unwrap();
        }
        fs::set_permissions(home.join("run"), Permissions::from_mode(0o700)).unwrap();
        chown(&home, Some(ID), Some(ID)).unwrap();
        let belay = PathBuf::from(Belay::find().unwrap().command().get_program());
        for file in [belay.clone(), belay.with_file_name("libbelay_shim.so")] {
            copy(&file, &home.join("bin"));
        }
        fs::write(behind.join("file"), "text").unwrap();
        chown(behind.join("file"), Some(ID), Some(ID)).unwrap();
        let _device = DeviceForAll::new();
        Self { process: None, mountpoint, behind, home, _device, _dir: dir }
    }

    /// A program that this user runs.
    pub fn command(&self, program: impl Into<OsString>) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        self.command_with(&[], program, &format!("{}/bin:{path}", self.home.display()))
    }

    /// The same with further options of setpriv(1), and another PATH.
    pub fn command_with(
        &self,
        options: &[&str],
        program: impl Into<OsString>,
        path: &str,
    ) -> Command {
        let mut command = Command::new("/usr/bin/setpriv");
        command.args(["--reuid", &ID.to_string(), "--regid", &ID.to_string(), "--clear-groups"]);
        command.args(options).arg(program.into());
        command.env("HOME", &self.home).env("XDG_RUNTIME_DIR", self.home.join("run"));
        command.env("PATH", path).env_remove("BELAY_STATE_DIR").current_dir(&self.home);
        command
    }

    fn belay(&self) -> Command {
        self.command(self.home.join("bin/belay"))
    }

    /// Puts a program where this user may run it.
    pub fn program(&self, from: &Path) -> PathBuf {
        copy(from, &self.home.join("bin"));
        self.home.join("bin").join(from.file_name().unwrap())
    }

    /// Starts `belay run ARGUMENTS -- WORDS`.
    pub fn start(&mut self, arguments: &[&str], words: &[OsString]) {
        let mut command = self.belay();
        command.arg("run").args(arguments).arg("--").args(words);
        self.start_command(command);
    }

    pub fn start_command(&mut self, command: Command) {
        self.process = Some(Process::start(command, &self.home.join("log")).unwrap());
    }

    /// A user whose passthrough_ll in the foreground, with `options`, is held and serves.
    pub fn low_level(options: &[&str]) -> Self {
        let mut user = Self::new();
        let program = user.program(&crate::custom::low_level_program());
        let source = format!("source={},cache=never,timeout=0", user.behind.display());
        let mut words: Vec<OsString> =
            vec![program.into(), "-f".into(), "-o".into(), source.into()];
        words.extend(options.iter().map(OsString::from));
        words.push(user.mountpoint.clone().into());
        user.start(&["--max-crashes", "0", "-vv"], &words);
        user.serves();
        user
    }

    pub fn serves(&self) {
        self.wait_for("service", |status| status["state"] == "serving");
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.mountpoint.join(name)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.home.join("log")).unwrap_or_default()
    }

    /// All crash reports.
    fn reports(&self) -> String {
        let instances = fs::read_dir(self.home.join("run/belay")).into_iter().flatten().flatten();
        let dirs = instances.filter_map(|entry| fs::read_dir(entry.path().join("reports")).ok());
        let files = dirs.flatten().flatten().map(|entry| entry.path());
        let texts = files.filter(|path| path.extension().is_some_and(|ext| ext == "txt"));
        texts.filter_map(|path| fs::read_to_string(path).ok()).collect()
    }

    pub fn status(&self) -> Option<Value> {
        let mut command = self.belay();
        command.args(["status", "--json"]).arg(&self.mountpoint);
        let output = run(command, LIMIT).unwrap();
        serde_json::from_slice(&output.stdout).ok()
    }

    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        await_status(what, || self.status(), wanted, || self.log())
    }

    pub fn pid(&self, role: &str) -> u32 {
        let status = self.wait_for(role, |status| status[role]["pid"].is_u64());
        u32::try_from(number(&status, &format!("/{role}/pid"))).unwrap()
    }

    pub fn signal(&self, role: &str, signal: Signal) -> u32 {
        let pid = self.pid(role);
        let _ = kill(pid, signal);
        pid
    }

    /// Stops belay, which leaves nothing behind.
    pub fn stops_cleanly(&mut self) {
        self.says(&["stop", "--force"]);
        assert_eq!(self.end().code(), Some(0), "{}", self.log());
        self.left_nothing();
    }

    /// Kills the daemon and waits for its recovery.
    pub fn crash(&self) {
        self.says(&["crash"]);
    }

    /// Runs a command of belay's on the mount.
    pub fn says(&self, words: &[&str]) -> String {
        let mut command = self.belay();
        command.args(words).arg(&self.mountpoint);
        let output = run(command, LIMIT).unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}\n{}", self.log());
        text(&output)
    }

    /// Runs a program of this user on the mountpoint.
    pub fn tool(&self, words: &[&str]) {
        let mut command = self.command(words[0]);
        command.args(&words[1..]).arg(&self.mountpoint);
        let output = run(command, LIMIT).unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    }

    /// Does something as this user.
    pub fn call<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Caller<T> {
        call(move || {
            let (user, group) = (Uid::from_raw(ID), Gid::from_raw(ID));
            // Of this thread alone.
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            work()
        })
    }

    /// Does something as this user and waits for it.
    pub fn does<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let caller = self.call(work);
        assert!(until(|| caller.is_done()), "a caller hangs\n{:?}\n{}", self.status(), self.log());
        caller.result()
    }

    pub fn is_mounted(&self) -> bool {
        mounts::find(&self.mountpoint).unwrap().is_some()
    }

    /// Waits for the end of `belay run`.
    pub fn end(&mut self) -> ExitStatus {
        let status = self.process.as_mut().unwrap().wait(LIMIT).unwrap();
        status.unwrap_or_else(|| panic!("belay does not end\n{}", self.log()))
    }

    /// Checks that nothing is left: no mount, no process, no socket, and the mountpoint as it was.
    pub fn left_nothing(&self) {
        assert!(!self.is_mounted(), "{}", self.log());
        assert_eq!(fs::read_dir(&self.mountpoint).unwrap().count(), 0);
        self.left_no_process();
        for instance in fs::read_dir(self.home.join("run/belay")).unwrap() {
            let instance = instance.unwrap().path();
            assert!(
                !instance.join("control.sock").exists() && !instance.join("mountpoint").exists()
            );
        }
    }

    /// The processes of this user that have to do with the mount and have `name` in their command lines.
    pub fn processes_with(&self, name: &str) -> Vec<(u32, String)> {
        let all = processes_about(&self.home.display().to_string());
        all.into_iter().filter(|(_, line)| line.contains(name)).collect()
    }

    /// Checks that no process is left.
    pub fn left_no_process(&self) {
        let place = self.home.display().to_string();
        assert!(until(|| processes_about(&place).is_empty()), "{:?}", processes_about(&place));
    }

    /// Waits until belay has ended by itself, or serves and is then stopped.
    pub fn wait_for_end_or_service(&mut self) {
        let mut process = self.process.take().unwrap();
        let over = until(|| {
            process.exited().unwrap().is_some()
                || self.status().is_some_and(|status| status["state"] == "serving")
        });
        assert!(over, "neither ended nor serving\n{}", self.log());
        self.process = Some(process);
    }

    /// The process group of `belay run`, as the terminal knows it.
    pub fn group(&self) -> u32 {
        self.process.as_ref().unwrap().pid()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}\n{}", self.log(), self.reports());
        }
        if let Some(mut process) = self.process.take()
            && matches!(process.exited(), Ok(None))
        {
            let _ = process.signal(Signal::TERM);
            if !matches!(process.wait(LIMIT), Ok(Some(_))) {
                let _ = process.signal(Signal::TERM);
                let _ = process.wait(std::time::Duration::from_secs(2));
            }
        }
        mounts::unmount_by_force(&self.mountpoint);
        for (pid, _) in processes_about(&self.home.display().to_string()) {
            let _ = kill(pid, Signal::KILL);
        }
    }
}

/// Copies a program (without any set-uid of its own), by another process: a copy that this one has open for writing cannot be run while some thread
/// of it forks.
pub fn copy(from: &Path, into: &Path) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "--"]).arg(from).arg(into);
    assert!(run(install, LIMIT).unwrap().status.success());
}

/// What a command said, on both of its outputs.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Living processes of this user that have to do with `place`, by their command lines: zombies have none.
fn processes_about(place: &str) -> Vec<(u32, String)> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let whose = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let ours = whose.lines().any(|l| l.starts_with(&format!("Uid:\t{ID}\t")));
        (ours && line.contains(place)).then_some((pid, line))
    })
    .collect()
}

/// While it lives, everybody may open /dev/fuse: the mode that udev gives it, and that a bare machine may lack.
struct DeviceForAll;

/// How many of them live, and the mode before the first.
static OPENED: Mutex<(u32, u32)> = Mutex::new((0, 0));

fn opened() -> MutexGuard<'static, (u32, u32)> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DeviceForAll {
    fn new() -> Self {
        let mut opened = opened();
        if opened.0 == 0 {
            opened.1 = fs::metadata("/dev/fuse").unwrap().permissions().mode() & 0o7777;
            fs::set_permissions("/dev/fuse", Permissions::from_mode(0o666)).unwrap();
        }
        opened.0 += 1;
        Self
    }
}

impl Drop for DeviceForAll {
    fn drop(&mut self) {
        let mut opened = opened();
        opened.0 -= 1;
        if opened.0 == 0 {
            let _ = fs::set_permissions("/dev/fuse", Permissions::from_mode(opened.1));
        }
    }
}

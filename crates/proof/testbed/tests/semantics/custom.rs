//! `belay run` with any command line, for what a [`belay_testbed::Bed`] does not do: daemons in the background, ends
//! of all kinds, starts that fail.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};

use belay_testbed::process::{Process, run};
use belay_testbed::{Belay, Signal, cache_dir, mounts};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{LIMIT, Trap, await_status, number, until};

/// A `belay run` in a directory of its own.
pub struct Custom {
    belay: Belay,
    process: Process,
    pub mountpoint: PathBuf,
    pub behind: PathBuf,
    log: PathBuf,
    _dir: TempDir,
}

/// A place for a daemon: where it mounts, what it shows, and room for programs.
pub struct Place<'a> {
    pub mountpoint: &'a Path,
    pub behind: &'a Path,
    pub dir: &'a Path,
}

/// Compiled by the bed of that kind, as a side effect of any start.
pub fn low_level_program() -> PathBuf {
    let program = cache_dir().unwrap().join("passthrough_ll");
    if !program.is_file() {
        crate::common::caching().stop();
    }
    program
}

impl Custom {
    /// Starts `belay run ARGUMENTS -- WORDS`.
    pub fn start(arguments: &[&str], words: impl FnOnce(&Place<'_>) -> Vec<OsString>) -> Self {
        Self::start_with(&[], arguments, words)
    }

    /// The same with variables in its environment.
    pub fn start_with(
        variables: &[(&str, &Path)],
        arguments: &[&str],
        words: impl FnOnce(&Place<'_>) -> Vec<OsString>,
    ) -> Self {
        let mut command = Belay::find().unwrap().command();
        command.envs(variables.iter().copied());
        Self::start_by(command, arguments, words)
    }

    /// The same by another command that runs belay.
    pub fn start_by(
        mut command: Command,
        arguments: &[&str],
        words: impl FnOnce(&Place<'_>) -> Vec<OsString>,
    ) -> Self {
        let dir = tempfile::Builder::new().prefix("belay-custom-").tempdir_in("/dev/shm").unwrap();
        let path = dir.path().canonicalize().unwrap();
        let (mountpoint, behind, log) = (path.join("mnt"), path.join("back"), path.join("log"));
        std::fs::create_dir(&mountpoint).unwrap();
        std::fs::create_dir(&behind).unwrap();
        std::fs::write(behind.join("file"), "text").unwrap();
        let belay = Belay::find().unwrap();
        command.arg("run").args(arguments).arg("--");
        command.args(words(&Place { mountpoint: &mountpoint, behind: &behind, dir: &path }));
        let process = Process::start(command, &log).unwrap();
        Self { belay, process, mountpoint, behind, log, _dir: dir }
    }

    /// Starts passthrough_ll in the foreground, and waits until it serves.
    pub fn low_level(arguments: &[&str], more: &[&str]) -> Self {
        let custom = Self::start(arguments, |place| Self::low_level_words(place, more));
        custom.serves();
        custom
    }

    /// The command line of passthrough_ll in the foreground.
    pub fn low_level_words(place: &Place<'_>, more: &[&str]) -> Vec<OsString> {
        let source = format!("source={},cache=never,timeout=0", place.behind.display());
        let mut words: Vec<OsString> = vec![low_level_program().into(), "-f".into()];
        words.extend(more.iter().map(OsString::from));
        words.extend(["-o".into(), source.into(), place.mountpoint.into()]);
        words
    }

    pub fn serves(&self) {
        self.wait_for("service", |status| status["state"] == "serving");
        assert_eq!(std::fs::read_to_string(self.at("file")).unwrap(), "text");
        // A release comes after its close.
        self.wait_for("release", |status| {
            status["open_handles"] == 0 && status["requests"]["in_flight"] == 0
        });
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.mountpoint.join(name)
    }

    /// What belay and the daemon have said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// `belay ARGUMENTS`.
    pub fn belay(arguments: &[&OsStr]) -> Output {
        let mut command = Belay::find().unwrap().command();
        command.args(arguments);
        run(command, LIMIT).unwrap()
    }

    pub fn status(&self) -> Option<Value> {
        self.belay.status(&self.mountpoint).ok()
    }

    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        await_status(what, || self.status(), wanted, || self.words())
    }

    /// For what should have been and is not: what all have said, and where the processes of this mount are.
    fn words(&self) -> String {
        let status = self.belay.status(&self.mountpoint);
        let name = self.mountpoint.to_string_lossy().into_owned();
        let mut words = format!("{}\nstatus now: {status:?}\n", self.log());
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let text = |name: &str| {
                let bytes = std::fs::read(entry.path().join(name)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).replace('\0', " ")
            };
            let command = text("cmdline");
            if command.contains(&name) {
                let pid = entry.file_name();
                let (stat, stack) = (text("stat"), text("stack"));
                words += &format!("{} {command}\n{stat}{stack}", pid.display());
            }
        }
        words
    }

    pub fn pid(&self, role: &str) -> u32 {
        let status = self.belay.status(&self.mountpoint);
        let status = status.unwrap_or_else(|why| panic!("no status: {why:#}\n{}", self.log()));
        u32::try_from(number(&status, &format!("/{role}/pid"))).unwrap()
    }

    pub fn signal(&self, role: &str, signal: Signal) -> u32 {
        let pid = self.pid(role);
        belay_testbed::process::kill(pid, signal).unwrap();
        pid
    }

    /// The memory that belay shares with the daemon: of what the supervisor has open the memory file with that name, or the
    /// largest file that has none.
    pub fn recorder(&self) -> File {
        let dir = std::fs::read_dir(format!("/proc/{}/fd", self.pid("supervisor"))).unwrap();
        let is_it = |path: &PathBuf| {
            let name = std::fs::read_link(path).unwrap_or_default().display().to_string();
            let size = || std::fs::metadata(path).map_or(0, |meta| meta.len());
            name.contains("belay-recorder") || name.contains("deleted") && size() > 1 << 28
        };
        let path = dir.map(|entry| entry.unwrap().path()).filter(is_it).last().unwrap();
        File::options().read(true).write(true).open(path).unwrap()
    }

    /// Runs `belay WORDS MOUNTPOINT`; what it printed.
    pub fn ask(&self, words: &[&str]) -> String {
        let mut command = self.belay.command();
        command.args(words).arg(&self.mountpoint);
        let output = run(command, LIMIT).unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn crash_and_recover(&self) {
        self.crash_with("KILL");
    }

    pub fn crash_with(&self, signal: &str) {
        let mut command = self.belay.command();
        command.args(["crash", "--signal", signal]).arg(&self.mountpoint);
        let output = run(command, LIMIT).unwrap();
        assert!(output.status.success(), "{output:?}\n{}", self.log());
    }

    /// How `belay run` has ended, if it has.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.process.exited().unwrap()
    }

    /// Waits for the end of `belay run`.
    pub fn end(&mut self) -> ExitStatus {
        let status = self.process.wait(LIMIT).unwrap();
        status.unwrap_or_else(|| panic!("belay does not end\n{}", self.log()))
    }

    /// Kills belay and the daemon at one instant, as a power failure does, and takes away what is left of the mount.
    /// A process in a trap goes when that is gone.
    pub fn kill_all(&mut self, trap: Option<Trap>) {
        // None of them if belay has just ended, or is about to.
        let status = self.status().unwrap_or_default();
        let pid = |role| status.pointer(role).and_then(Value::as_u64);
        let others = ["/supervisor/pid", "/daemon/pid"].into_iter().filter_map(pid);
        let others: Vec<u32> = others.map(|pid| pid.try_into().unwrap()).collect();
        let group = i32::try_from(self.process.pid()).ok().and_then(rustix::process::Pid::from_raw);
        let _ = rustix::process::kill_process_group(group.unwrap(), Signal::KILL);
        drop(trap);
        assert!(self.process.wait(LIMIT).unwrap().is_some(), "belay survives SIGKILL");
        for other in others {
            assert!(belay_testbed::process::wait_for_exit(other, LIMIT).unwrap());
        }
        mounts::unmount_by_force(&self.mountpoint);
    }

    pub fn is_mounted(&self) -> bool {
        mounts::find(&self.mountpoint).unwrap().is_some()
    }

    /// `belay stop`.
    pub fn stop(&self) {
        self.belay.stop(&self.mountpoint).unwrap();
    }

    /// Runs a program on the mountpoint, such as `umount`. While another test starts a process, that has, until its exec,
    /// copies of all descriptors of this one, and with them perhaps a file that was closed here: the mount is in use for
    /// that moment.
    pub fn tool(&self, words: &[&str]) {
        let mut last = None;
        let done = until(|| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).arg(&self.mountpoint);
            let output = run(command, LIMIT).unwrap();
            let busy = String::from_utf8_lossy(&output.stderr).contains("target is busy");
            last = Some(output);
            !busy
        });
        let output = last.unwrap();
        assert!(done && output.status.success(), "{words:?}: {output:?}");
    }
}

impl Drop for Custom {
    fn drop(&mut self) {
        if matches!(self.process.exited(), Ok(None)) {
            let _ = self.belay.stop(&self.mountpoint);
            if !matches!(self.process.wait(LIMIT), Ok(Some(_))) {
                let _ = self.process.signal(Signal::TERM);
                let _ = self.process.wait(std::time::Duration::from_secs(2));
            }
        }
        mounts::unmount_by_force(&self.mountpoint);
    }
}

//! A daemon on its back end, mounted.

use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::belay::{Belay, all_pids, daemon_pid};
use crate::command::{Parts, daemon};
use crate::kind::Kind;
use crate::process::{self, Process};
use crate::sshd::Sshd;
use crate::zoo::Place;
use crate::{image, mounts};

const START: Duration = Duration::from_secs(30);
const END: Duration = Duration::from_secs(30);

/// How a daemon is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On its own, as users run it today.
    Bare,
    /// Under `belay run`.
    Held {
        /// Further arguments for `belay run`, before the `--`.
        extra_args: Vec<String>,
    },
}

impl Mode {
    /// Under `belay run` without further arguments.
    #[must_use]
    pub fn held() -> Self {
        Self::Held { extra_args: Vec::new() }
    }
}

/// How a bed is prepared.
#[derive(Clone, Debug)]
pub struct BedOptions {
    /// Where backing store, mountpoint and logs are made; `/dev/shm` if it is there, else the temporary directory.
    pub workdir: Option<PathBuf>,
    /// Further `-o` options for the daemon; what starts with a dash is an argument of its own.
    pub daemon_opts: Vec<String>,
    /// The one CPU to which daemon, belay and sshd are bound.
    pub pin_cpu: Option<usize>,
    /// Size of the image in MiB, for daemons that work on one.
    pub image_mib: u64,
    /// Turns off caches that expire with time (in the kernel and in the daemon), so that the same calls give the same
    /// answers however long they take.
    pub repeatable: bool,
    /// Leaves the work directory behind, for inspection.
    pub keep_files: bool,
}

impl Default for BedOptions {
    fn default() -> Self {
        Self {
            workdir: None,
            daemon_opts: Vec::new(),
            pin_cpu: None,
            image_mib: 256,
            repeatable: false,
            keep_files: false,
        }
    }
}

/// A daemon on its back end, mounted. Dropping it takes everything away; [`Bed::stop`] does so politely and checks.
#[derive(Debug)]
pub struct Bed {
    kind: Kind,
    root: PathBuf,
    mountpoint: PathBuf,
    backing: PathBuf,
    belay: Option<Belay>,
    /// The daemon, or `belay run`.
    process: Option<Mutex<Process>>,
    /// The daemon's program and arguments.
    daemon: Vec<OsString>,
    sshd: Option<Sshd>,
    /// What a daemon of the table has behind it.
    place: Option<Place>,
    /// From the start of the daemon (or of belay) to its first answer.
    launch: Duration,
    stopped: bool,
    /// Last, so that it is removed when nothing uses it any more.
    _dir: TempDir,
}

/// Where beds and scenes are made unless somebody says where.
pub(crate) fn default_workdir() -> PathBuf {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() }
}

impl Bed {
    /// Prepares the back end, starts the daemon and waits until it is mounted.
    ///
    /// # Errors
    /// When something is not installed, or the daemon (or belay) ends or does not mount in time; its last words are
    /// part of the error.
    pub fn start(kind: Kind, mode: &Mode, options: &BedOptions) -> Result<Self> {
        Self::try_start(kind, mode, options).with_context(|| {
            let how = if *mode == Mode::Bare { "bare" } else { "held" };
            format!("starting a {how} {kind} bed")
        })
    }

    fn try_start(kind: Kind, mode: &Mode, options: &BedOptions) -> Result<Self> {
        let parent = options.workdir.clone().unwrap_or_else(default_workdir);
        // Open to other users, whom some tests act as.
        let temp = tempfile::Builder::new()
            .prefix("belay-bed-")
            .permissions(Permissions::from_mode(0o755))
            .disable_cleanup(options.keep_files)
            .tempdir_in(&parent);
        let temp = temp.with_context(|| format!("making a directory in {}", parent.display()))?;
        // Daemons and belay name mounts by their resolved path.
        let dir = temp.path().canonicalize().context("resolving the work directory")?;
        let make = |name: &str| -> Result<PathBuf> {
            let path = dir.join(name);
            std::fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
            Ok(path)
        };
        let mountpoint = make("mnt")?;
        let backing = if !kind.has_image() {
            make("back")?
        } else {
            let image = dir.join("image");
            image::make(kind, &image, options.image_mib)?;
            image
        };
        let mut bed = Self {
            kind,
            root: mountpoint.clone(),
            mountpoint,
            backing,
            belay: None,
            process: None,
            daemon: Vec::new(),
            sshd: None,
            place: None,
            launch: Duration::ZERO,
            stopped: kind == Kind::Dir,
            _dir: temp,
        };
        if kind == Kind::Dir {
            bed.root.clone_from(&bed.backing);
            return Ok(bed);
        }
        if kind.mirrors_root() {
            bed.root = bed.mountpoint.join(bed.backing.strip_prefix("/").unwrap_or(&bed.backing));
        }
        if kind == Kind::Sshfs {
            bed.sshd = Some(Sshd::start(&make("sshd")?)?);
        }
        if let Kind::Zoo(zoo) = kind {
            bed.place = Some(Place::prepare(zoo, &dir, &bed.backing, &bed.mountpoint)?);
        }
        let before = Instant::now();
        bed.launch(mode, options, &dir)?;
        bed.launch = before.elapsed();
        Ok(bed)
    }

    fn launch(&mut self, mode: &Mode, options: &BedOptions, dir: &Path) -> Result<()> {
        let parts = Parts {
            kind: self.kind,
            backing: &self.backing,
            mountpoint: &self.mountpoint,
            sshd: self.sshd.as_ref(),
            place: self.place.as_ref(),
            extra: &options.daemon_opts,
            repeatable: options.repeatable,
        };
        let mut words: Vec<OsString> = Vec::new();
        if let Some(cpu) = options.pin_cpu {
            words.extend(["taskset".into(), "-c".into(), cpu.to_string().into()]);
        }
        if let Mode::Held { extra_args } = mode {
            let belay = Belay::find()?;
            words.extend([belay.command().get_program().to_owned(), "run".into()]);
            words.extend(extra_args.iter().map(OsString::from));
            if let Some(daemon) = self.kind.entry() {
                words.extend(daemon.belay.iter().map(OsString::from));
            }
            words.push("--".into());
            self.belay = Some(belay);
        }
        self.daemon = daemon(&parts)?;
        words.extend(self.daemon.iter().cloned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        if let Some(place) = &self.place {
            command.envs(place.environment());
        }
        let process =
            self.process.insert(Mutex::new(Process::start(command, &dir.join("daemon.log"))?));
        mounts::wait(&self.mountpoint, true, START, || lock(process).must_run())?;
        // Mounted is not yet served: the first answer says that it is.
        if let Err(error) = std::fs::metadata(&self.root) {
            let words = self.last_words();
            if let Some(sshd) = &mut self.sshd {
                sshd.check()?;
            }
            return Err(error)
                .with_context(|| format!("first look at {}{words}", self.root.display()));
        }
        Ok(())
    }

    /// The kind of daemon.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The directory that tests work in. For daemons that mirror `/` it lies below the mountpoint.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The mountpoint (of a plain directory: an unused empty directory).
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// The directory or image behind the mount.
    #[must_use]
    pub fn backing(&self) -> &Path {
        &self.backing
    }

    /// The server behind an sshfs bed.
    pub fn server(&mut self) -> Option<&mut Sshd> {
        self.sshd.as_mut()
    }

    /// Whether belay holds this bed.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.belay.is_some()
    }

    /// How long it took from the start of the daemon to its first answer, without what was prepared before. Zero for a
    /// plain directory.
    #[must_use]
    pub fn launch_time(&self) -> Duration {
        self.launch
    }

    /// The daemon's program and its arguments, as they were given. (The command line in /proc is what the daemon has left
    /// of it: fusefat changes its own.) Empty for a plain directory.
    #[must_use]
    pub fn daemon_command(&self) -> &[OsString] {
        &self.daemon
    }

    /// The process id of the present daemon.
    ///
    /// # Errors
    /// For a plain directory, when the bare daemon has ended, or when belay names none at the moment.
    pub fn daemon_pid(&self) -> Result<u32> {
        if self.belay.is_some() {
            let status = self.belay_status()?;
            return daemon_pid(&status)
                .with_context(|| format!("no daemon.pid in belay's status: {status}"));
        }
        let process =
            self.process.as_ref().with_context(|| format!("a {} bed has no daemon", self.kind))?;
        let mut process = lock(process);
        process.must_run()?;
        Ok(process.pid())
    }

    /// Sends a signal to the present daemon and says to which process.
    ///
    /// # Errors
    /// When there is none or it has ended meanwhile.
    pub fn kill_daemon(&self, signal: Signal) -> Result<u32> {
        let pid = self.daemon_pid()?;
        process::kill(pid, signal)?;
        Ok(pid)
    }

    /// The process id of `belay run`, if belay holds this bed.
    #[must_use]
    pub fn belay_pid(&self) -> Option<u32> {
        self.belay.as_ref().and(self.process.as_ref()).map(|process| lock(process).pid())
    }

    /// What `belay status --json` says of this mount.
    ///
    /// # Errors
    /// When the bed is not held or the command fails; if `belay run` has ended, its last words.
    pub fn belay_status(&self) -> Result<Value> {
        let belay = self.belay.as_ref().context("this bed is not held by belay")?;
        belay.status(&self.mountpoint).or_else(|error| {
            self.check().context("asking for belay's status")?;
            Err(error)
        })
    }

    /// An error with last words if the daemon (or `belay run`, or sshd) has ended.
    ///
    /// # Errors
    /// See above.
    pub fn check(&self) -> Result<()> {
        self.process.as_ref().map_or(Ok(()), |process| lock(process).must_run())
    }

    /// The last lines that the daemon (and belay) wrote, for messages.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.process.as_ref().map(|process| lock(process).tail()).unwrap_or_default()
    }

    /// Unmounts, waits for the end of every process, and checks the image where there is one.
    ///
    /// # Errors
    /// When any of that fails. Everything is taken away in any case.
    pub fn stop(mut self) -> Result<()> {
        let result =
            self.stop_politely().with_context(|| format!("stopping the {} bed", self.kind));
        self.stopped = result.is_ok();
        result
    }

    fn stop_politely(&mut self) -> Result<()> {
        let Some(process) = &self.process else {
            return Ok(());
        };
        if let Some(sshd) = &mut self.sshd {
            sshd.check()?;
        }
        let deadline = Instant::now() + END;
        match &self.belay {
            Some(belay) => belay.stop(&self.mountpoint)?,
            None => mounts::unmount_clean(&self.mountpoint, END)?,
        }
        mounts::wait(&self.mountpoint, false, END, || Ok(()))?;
        let mut process = lock(process);
        match process.wait(deadline.saturating_duration_since(Instant::now()))? {
            Some(status) if status.success() => {}
            Some(status)
                if self
                    .kind
                    .entry()
                    .is_some_and(|daemon| status.code() == Some(daemon.end_status)) => {}
            Some(status) => bail!("it ended with {status}{}", process.tail()),
            None => bail!("it still ran {END:?} after the unmount{}", process.tail()),
        }
        drop(process);
        if let Some(place) = &self.place {
            return place.check();
        }
        image::check(self.kind, &self.backing)
    }

    /// Takes everything away, whatever state it is in, and checks that belay has come to its end within `limit`.
    ///
    /// # Errors
    /// When it has not.
    pub fn end(mut self, limit: Duration) -> Result<()> {
        if let Some(belay) = &self.belay {
            let _ = belay.stop(&self.mountpoint);
        }
        let ended = match &self.process {
            Some(process) => {
                let mut process = lock(process);
                if process.wait(Duration::from_secs(1))?.is_none() {
                    process.signal(Signal::TERM)?;
                    process.signal(Signal::TERM)?;
                }
                process.wait(limit)?.is_some()
            }
            None => true,
        };
        let words = self.last_words();
        self.teardown();
        self.stopped = true;
        ensure!(ended, "belay has not come to its end within {limit:?}{words}");
        Ok(())
    }

    /// Takes everything away, by force where needed.
    fn teardown(&mut self) {
        let pids = self.belay_status().map(|status| all_pids(&status)).unwrap_or_default();
        if let (Some(belay), Some(process)) = (&self.belay, &self.process) {
            let _ = belay.stop(&self.mountpoint);
            let mut process = lock(process);
            if !matches!(process.wait(Duration::from_secs(2)), Ok(Some(_))) {
                let _ = process.signal(Signal::TERM);
                let _ = process.wait(Duration::from_secs(2));
            }
        }
        // First the supervisor, so that it starts no successor.
        self.process = None;
        mounts::unmount_by_force(&self.mountpoint);
        for pid in pids.into_iter().filter(|pid| *pid != std::process::id()) {
            let _ = process::kill(pid, Signal::KILL);
        }
        mounts::unmount_by_force(&self.mountpoint);
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if !self.stopped {
            self.teardown();
        }
    }
}

fn lock(process: &Mutex<Process>) -> MutexGuard<'_, Process> {
    process.lock().unwrap_or_else(PoisonError::into_inner)
}

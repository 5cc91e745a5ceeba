//! The daemon under study: started bare or under `belay run`, mounted, and taken away again.

mod mounted;
pub use mounted::Launcher;

use super::image_argument::{self, ImageArgument};
use super::mount::{self, Family};
use super::options::Tried;
use crate::profile::checkpoint::FlushName;
use anyhow::{Context, Result, bail, ensure};
use belay_study::User;
use belay_study::trial::limited;
use belay_supervisor::config::Until;
use belay_supervisor::degraded::Kind;
use belay_supervisor::status::{State, Status};
use belay_supervisor::text::span;
use std::cell::Cell;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a daemon may take until it is mounted.
const START: Duration = Duration::from_secs(60);
/// How long after the end of the process that was started: one that goes into the background has
/// mounted by then.
const BACKGROUND: Duration = Duration::from_secs(5);
/// How long it may take to end.
const END: Duration = Duration::from_secs(20);

/// What is studied, and where.
#[derive(Debug)]
pub struct Target {
    /// The daemon's command line, as the user gave it.
    pub command: Vec<OsString>,
    /// Where it mounts.
    pub mountpoint: PathBuf,
    /// The directory of the mount in which everything happens.
    pub work: PathBuf,
    /// The same behind the mount, if the user has said where that is.
    pub behind: Option<PathBuf>,
    /// The disk image that it works on.
    pub image: Option<ImageArgument>,
    /// What checks that image.
    pub check: Option<String>,
    /// A directory of our own for copies, state and logs.
    pub scratch: PathBuf,
    /// Whom operations are done as.
    pub user: User,
    /// Whether inode numbers tell which names are one file.
    pub links: bool,
    /// How long anything may take.
    pub limit: Duration,
    /// How it is made to write all that it holds.
    pub flush: Option<FlushName>,
    /// Until when it holds what it has acknowledged, under the policy `buffer`.
    pub until: Until,
    /// Its inode numbers are told to change from life to life.
    pub volatile: Cell<bool>,
    /// All processes of this study.
    pub family: Family,
    /// Whether the directory to work in was made.
    pub made: Cell<bool>,
}

impl Target {
    fn log(&self) -> PathBuf {
        self.scratch.join("log")
    }

    fn state(&self) -> PathBuf {
        self.scratch.join("state")
    }

    /// The last lines of what was started, as an addition to a message.
    fn last_words(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines.get(lines.len().saturating_sub(5)..).unwrap_or_default();
        if last.is_empty() { String::new() } else { format!("; it said: {}", last.join(" | ")) }
    }

    fn words(&self) -> Vec<OsString> {
        match &self.image {
            None => self.command.clone(),
            Some(image) => {
                let path = image_argument::path_in(&self.scratch, image);
                image_argument::replaced(&self.command, &image.word, &path)
            }
        }
    }

    /// Whether it works on a disk image.
    pub fn has_file_system(&self) -> bool {
        self.image.as_ref().is_some_and(|image| image.file_system)
    }

    /// Makes the copy of the image anew.
    fn renew_image(&self) -> Result<()> {
        match &self.image {
            Some(image) if !image.device => {
                let from = Path::new(&image.word);
                image_argument::copy(from, &image_argument::path_in(&self.scratch, image))
            }
            _ => Ok(()),
        }
    }

    /// Starts the daemon, under a policy or bare, and waits until it serves.
    fn start(self: &Rc<Self>, policy: Option<Tried>) -> Result<Running> {
        ensure!(mount::fuse_at(&self.mountpoint).is_none(), "the mountpoint is busy");
        let _ = fs::remove_dir_all(self.state());
        let words = self.words();
        let mut command = match policy {
            None => Command::new(words.first().context("no command")?),
            Some(policy) => {
                let mut command = Command::new("/proc/self/exe");
                command.arg0("belay").args(["run", "--policy", policy.name(), "--state-dir"]);
                command.arg(self.state());
                // Nobody waits for a server here: a daemon that does not start again has failed the
                // experiment.
                command.args(["--retry-for", "2s"]);
                if self.volatile.get() {
                    command.args(["--inode-numbers", "volatile"]);
                }
                if let (Tried::Epoch, Some(flush)) = (policy, self.flush) {
                    command.args(["--flush", flush.name()]);
                }
                if policy == Tried::Buffer {
                    command.args(["--buffer-until", until_name(self.until)]);
                }
                command.arg("--").args(words.first());
                command
            }
        };
        let log = File::create(self.log()).context("creating a file for what the daemon says")?;
        command.args(words.get(1..).unwrap_or_default());
        // Ctrl-C is for this process, which then ends the others.
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let name = words.first().map(|name| name.display().to_string()).unwrap_or_default();
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        let running = Running { target: Rc::clone(self), over: Cell::new(false) };
        running.wait(child, &name)?;
        Ok(running)
    }
}

/// A daemon that was started. Dropping it ends it.
#[derive(Debug)]
struct Running {
    target: Rc<Target>,
    over: Cell<bool>,
}

impl Running {
    /// Waits until it is mounted and has answered once.
    fn wait(&self, mut child: Child, name: &str) -> Result<()> {
        let target = &self.target;
        let mut deadline = Instant::now() + START;
        let mut background = false;
        while mount::fuse_at(&target.mountpoint).is_none() {
            if !background && let Some(status) = child.try_wait().context("waiting for it")? {
                let said = target.last_words();
                ensure!(status.success(), "{name} ended with {status} before it mounted{said}");
                background = true;
                deadline = Instant::now() + BACKGROUND;
            }
            if Instant::now() >= deadline {
                let at = target.mountpoint.display();
                bail!(
                    "{name} did not mount anything at {at}: is it a FUSE daemon, and is that its mountpoint \
                     (--mountpoint)?{}",
                    target.last_words()
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let work = target.work.clone();
        // It lives in the copy of an image, and in a directory from the first start on.
        let made = limited(target.limit, move || DirBuilder::new().mode(0o755).create(work));
        match made.context("the daemon does not answer")? {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error)
                .with_context(|| {
                    let at = target.work.display();
                    format!("creating {at} (--dir names another directory of the mount to work in)")
                }),
            _ => {
                target.made.set(true);
                Ok(())
            }
        }
    }

    /// Unmounts and waits for the end of all processes; by force, if it must be.
    fn end(&self) -> Result<()> {
        if self.over.replace(true) {
            return Ok(());
        }
        let target = &self.target;
        let polite = mount::unmount_politely(&target.mountpoint, target.limit.min(END));
        mount::unmount_by_force(&target.mountpoint);
        if !target.family.wait(END) {
            target.family.kill();
            bail!(
                "the daemon did not end within {} after the unmount{}",
                span(END),
                target.last_words()
            );
        }
        polite
    }

    /// The same for one that something is wrong with.
    fn give_up(&self) {
        if !self.over.replace(true) {
            mount::unmount_by_force(&self.target.mountpoint);
            if !self.target.family.wait(Duration::from_secs(2)) {
                self.target.family.kill();
            }
            mount::unmount_by_force(&self.target.mountpoint);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// What belay's status counts that a verdict depends on, over all mounts of one policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tallies {
    /// Effects of threads without a request, for which journals were void.
    pub untagged: u64,
    /// Requests that were answered by another thread than the one that took them.
    pub handed_over: u64,
    /// Requests that did something else when they were done again.
    pub diverged: u64,
    /// Transactions that were too long.
    pub torn: u64,
    /// Mounts that were degraded in the end.
    pub degraded: u64,
    /// Mounts in which files had other inode numbers after a crash, for which they counted as
    /// replaced.
    pub renumbered: u64,
    /// Mounts that belay gave up.
    pub gave_up: u64,
}

impl Tallies {
    fn add(&mut self, status: &Status) {
        self.untagged += status.effects.untagged;
        self.handed_over += status.effects.handed_over;
        self.diverged += status.effects.diverged;
        self.torn += status.effects.torn;
        self.degraded += u64::from(status.degraded);
        let mut reasons = status.degraded_reasons.iter();
        let renumbered = reasons.any(|r| r.kind == Kind::Handle && r.what.contains("inode number"));
        self.renumbered += u64::from(renumbered);
        self.gave_up += u64::from(status.state == State::GaveUp);
    }
}

/// As on the command line.
fn until_name(until: Until) -> &'static str {
    match until {
        Until::End => "end",
        Until::Flush => "flush",
        Until::Close => "close",
        Until::Release => "release",
    }
}

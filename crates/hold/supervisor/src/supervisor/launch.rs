//! Starting a generation.
//!
//! Invariant: the lease is `{generation, 0}` before a process of that generation is started, and
//! the instants are cleared only then, when nobody can set them.

use super::Supervisor;
use super::lifecycle::Event;
use super::parts::deadlines::Due;
use super::parts::tokens::PROCESS;
use super::second::give_outer;
use crate::clock;
use crate::error::{Error, passes};
use crate::fusermount::may_mount;
use crate::instances::standin;
use crate::ledger::Life;
use crate::look::{Found, There, is_local, look_held};
use crate::mounts::{self, MountFact};
use crate::process::{Watched, children_of_thread, started};
use crate::text::OsText;
use crate::threads::Bounded;
use crate::unmount;
use belay_recorder::control::{Counter, Options};
use belay_sys::{ChildSetup, PrivateMountNamespace, dup_cloexec, prepare_child};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::process::{Resource, getrlimit};
use signal_hook::consts::SIGKILL;
use std::ffi::{CString, OsString};
use std::fmt::Write;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Component, Path};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Where a daemon finds the recorder; device and event counter follow. High, so that daemons which
/// count on low numbers, or close them, are not disturbed.
const DESCRIPTORS: u64 = 200;
/// How long it may take until a program that somebody else serves has been started.
const EXEC: Duration = Duration::from_secs(5);
/// How often the way to the mountpoint is looked for again.
const LOOKS: u32 = 100;
/// For how long, at the most.
const LOOKING: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Starts the generation that the book names. A failure becomes a start failure or a crash.
    pub(super) fn launch(&mut self) {
        self.mark_stores();
        self.live(Event::Starts);
        self.daemon.take_cause();
        self.deadlines.cancel(Due::Retiring);
        self.looks.hang.clear();
        self.choose_program();
        self.tidy_mailbox();
        self.take_off_seconds();
        let now = clock::now();
        self.deadlines.set(Due::Unheld, now + super::program::FIRST_LOOK);
        self.begin_to_look_for_stray();
        self.looks.record.reset();
        self.deadlines.set(Due::Look, now);
        self.calm_event();
        self.control().clear_instants();
        let control = self.control();
        control.set_poison_after(self.config.poison_after);
        self.book.life = Life {
            started_ns: clock::now(),
            process_started: 0,
            requests: control.counter(Counter::Requests),
            poisoned: control.counter(Counter::Poisoned),
            restored: (
                control.counter(Counter::NodesRestored),
                control.counter(Counter::HandlesRestored),
                control.counter(Counter::LocksRestored),
            ),
        };
        self.begin_to_watch_start();
        match self.spawn() {
            Ok(watched) => {
                tracing::debug!("generation {} is process {}", self.book.generation, watched.pid);
                self.book.spawned = Some(watched.pid);
                self.book.background = None;
                self.book.life.process_started = started(watched.pid).unwrap_or(0);
                if let Some(crash) = &mut self.book.crash {
                    crash.spawned_ns = clock::now();
                }
                // The number may have belonged to a process before.
                self.exits.forget(watched.pid);
                self.daemon.is_started(watched);
                self.keep_book();
            }
            Err(error) => self.not_started(&error),
        }
        // An edge of the dead one is no event any more if its counter was emptied before anybody looked.
        self.hear_daemon();
    }

    /// Makes the event counter what it was at first, whatever a daemon has done to it: one that is full, or makes its writers
    /// wait, would hold up the next generation.
    fn calm_event(&self) {
        let event = &self.fds.event;
        let flags = fcntl_getfl(event).unwrap_or(OFlags::RDWR);
        if !flags.contains(OFlags::NONBLOCK) {
            let _ = fcntl_setfl(event, flags | OFlags::NONBLOCK);
        }
        // Never a plain read: somebody may have changed that again.
        let here = u64::MAX;
        let mut count = [0; 8];
        let _ = preadv2(event, &mut [IoSliceMut::new(&mut count)], here, ReadWriteFlags::NOWAIT);
    }

    fn spawn(&mut self) -> io::Result<Watched> {
        let begin = Instant::now();
        for _ in 0..LOOKS {
            match self.spawn_once(false) {
                // Somebody has exchanged folders on the way to the mountpoint in that very moment.
                Err(error) if error.raw_os_error() == Some(Errno::STALE.raw_os_error()) => {}
                done => return done,
            }
            if begin.elapsed() > LOOKING {
                break;
            }
        }
        self.spawn_once(true)
    }

    /// `far`: the way to the mountpoint is taken for one on which somebody may have to be waited for.
    fn spawn_once(&mut self, far: bool) -> io::Result<Watched> {
        let [recorder, device, event, post, mail, image_post, image_mail, shim, program, covered] =
            descriptor_numbers();
        let (outer, image) = (covered + 1, covered + 2);
        let mut setup = ChildSetup {
            descriptors: vec![
                (dup_cloexec(as_fd(&self.fds.recorder))?, recorder),
                (dup_cloexec(as_fd(&self.fds.device))?, device),
                (dup_cloexec(as_fd(&self.fds.event))?, event),
                (dup_cloexec(as_fd(&self.fds.post))?, post),
                (dup_cloexec(as_fd(&self.fds.mail))?, mail),
                (dup_cloexec(as_fd(&self.fds.image_post))?, image_post),
                (dup_cloexec(as_fd(&self.fds.image_mail))?, image_mail),
                (dup_cloexec(as_fd(&self.fds.shim))?, shim),
            ],
            blocked_signals: self.config.blocked_signals,
            mark: Some(self.lineage().mark(self.book.generation)),
            ..ChildSetup::default()
        };
        let held = self.runs_held_program();
        let file = self.program_to_start(held)?;
        if let Some(rights) = file.gained() {
            return Err(io::Error::other(format!("it is {rights} by now, and would run unheld")));
        }
        if held {
            setup.descriptors.push((dup_cloexec(as_fd(&self.fds.program))?, program));
        }
        let started = match held {
            true => own_descriptor(program).into(),
            false => self.config.program.clone(),
        };
        let mut command = match self.config.relay {
            true => Command::new("/proc/self/exe"), // what belay was started with, whatever is installed by now
            false => Command::new(&started),
        };
        let (mut has_covered, mut has_outer, mut led) = (false, false, None);
        if self.book.generation > 0
            && let Some(mount) = &self.book.mount
        {
            // The successor must find its mountpoint as it was before the mount: a look at the
            // mount itself would wait for the very daemon that looks.
            if may_mount() {
                setup.mount_namespace = Some(self.namespace_without(mount, far)?);
                has_outer = give_outer(&mut setup, outer);
            } else {
                // A mount table of its own is not for everybody: the shim sees to it.
                let is_file = mounted_on_file(&self.control().mount_data());
                let instead = if !is_file && self.covers(mount) {
                    setup.descriptors.push((dup_cloexec(as_fd(&self.fds.covered))?, covered));
                    has_covered = true;
                    own_descriptor(covered).into()
                } else {
                    standin(&self.folder, is_file).map_err(Error::into_io)?
                };
                command.env("BELAY_STANDIN", &instead);
                command.env("BELAY_MOUNTPOINT", &mount.mountpoint.0);
                led = Some((mount.mountpoint.0.clone(), instead));
            }
        }
        let mut words = self.config.command.iter().map(|word| &word.0);
        if self.config.relay {
            command.arg0("belay").arg("relay");
            if held {
                command.arg(format!("--held={program}"));
            }
            if let Some((mountpoint, instead)) = led {
                command.arg("--mountpoint").arg(mountpoint).arg("--instead").arg(instead);
            }
            command.arg(&started).arg("--");
        } else if let Some(name) = words.next() {
            command.arg0(name);
        }
        command.args(words);
        command.stderr(Stdio::from(dup_cloexec(as_fd(&self.fds.stderr_write))?));
        if self.config.log.is_some() {
            // What it writes there is belay's to keep short, too.
            command.stdout(Stdio::from(dup_cloexec(as_fd(&self.fds.stderr_write))?));
        }
        command.env("LD_PRELOAD", self.preload(shim));
        command.env("BELAY_PRELOAD", &self.config.preload.0);
        let mut options = self.options();
        options.set(
            Options::VOLATILE_INODES,
            options.contains(Options::VOLATILE_INODES) || self.is_same_medium(),
        );
        let mut told = format!(
            "v2:recorder={recorder}:device={device}:event={event}:post={post}:mail={mail}:\
             image_post={image_post}:image_mail={image_mail}:shim={shim}:generation={}:options={}",
            self.book.generation,
            options.bits()
        );
        if held && !self.config.relay {
            let _ = write!(told, ":program={program}");
        }
        if has_covered {
            let _ = write!(told, ":covered={covered}");
        }
        if has_outer {
            let _ = write!(told, ":outer={outer}");
        }
        if let Some(known) = &self.config.image {
            let _ = write!(told, ":image_device={}:image_inode={}", known.device, known.inode);
            if let Ok(place) = place_of(&self.fds.image) {
                setup.descriptors.push((place, image));
                let _ = write!(told, ":image={image}");
            }
            command.env("BELAY_IMAGE", &known.path.0);
            command.env("BELAY_IMAGE_AS", &self.config.image_as.as_ref().unwrap_or(&known.path).0);
        }
        command.env("BELAY_SHIM", told);
        let apart = setup.mount_namespace.is_some();
        let near = setup.mount_namespace.as_ref().is_none_or(|namespace| !namespace.may_wait);
        prepare_child(&mut command, setup);
        let mut child = match near && is_local(&file.place) {
            true => command.spawn()?,
            false => spawn_elsewhere(command)?,
        };
        let watched = self.watch_child(child.id());
        match &watched {
            Ok(watched) if apart => self.helpers.mirror.note(watched.pid),
            Ok(_) => {}
            // Nobody would hear of its end.
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        watched
    }

    /// A mount namespace without the held mount, if that can be seen in this one's.
    fn namespace_without(&self, mount: &MountFact, far: bool) -> io::Result<PrivateMountNamespace> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidInput);
        let part = |part: Component<'_>| match part {
            Component::Normal(name) => Some(CString::new(name.as_bytes()).map_err(|_| wrong())),
            _ => None,
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
        let (major, minor) = mount.device.split_once(':').ok_or_else(wrong)?;
        let device = (number(major)?, number(minor)?);
        let Some(seen) = mounts::uncovered(mount)? else {
            return Ok(PrivateMountNamespace { way: Vec::new(), device, may_wait: false });
        };
        let may_wait = match unmount::is_near(&seen, &self.helpers.scouts) {
            Ok(near) => far || !near,
            Err(Errno::TIMEDOUT) => {
                let why = unmount::silent();
                return Err(io::Error::other(format!("{}: {why}", mount.mountpoint.show())));
            }
            Err(error) => return Err(error.into()),
        };
        let way = Path::new(&OsText::from_bytes(&seen.mountpoint).0)
            .components()
            .filter_map(part)
            .collect::<io::Result<_>>()?;
        Ok(PrivateMountNamespace { way, device, may_wait })
    }

    /// Whether the folder that was held before the mount is the one that the mount covers.
    fn covers(&self, mount: &MountFact) -> bool {
        let link = own_descriptor(self.fds.covered.as_raw_fd());
        std::fs::read_link(link).is_ok_and(|path| path.as_os_str() == mount.mountpoint.0)
    }

    /// The program, which may be another by now than the one that was looked at before the first start.
    fn program_to_start(&self, held: bool) -> io::Result<There> {
        let found = if held {
            look_held(&self.helpers.scouts, as_fd(&self.fds.program))
        } else if self.is_hidden(&self.config.program) {
            return Err(io::Error::other("its own mount hides it"));
        } else {
            self.look(&self.config.program)
        };
        match found {
            Found::There(there) => Ok(there),
            Found::Not(error) => Err(error.into()),
            Found::Unknown => Err(silent()),
        }
    }

    fn watch_child(&self, pid: u32) -> io::Result<Watched> {
        let watched = Watched::find(pid)?;
        let watched = watched.ok_or_else(|| io::Error::other("cannot watch its process"))?;
        self.events.listen_to(&watched, PROCESS)?;
        Ok(watched)
    }

    /// Whether what the daemon shows is a file that was made once, and still is that.
    fn is_same_medium(&self) -> bool {
        self.config.medium.as_ref().is_some_and(|medium| {
            let folder = as_fd(&self.fds.medium_folder);
            let found = self.look_behind(medium.path(), Some(folder)).there();
            found.is_some_and(|there| medium.is(&there.facts))
        })
    }

    /// The choices for a generation: what the user chose, and what was learnt since. Of none of it the recorder is asked, which
    /// daemons can write to.
    pub(super) fn options(&self) -> Options {
        let mut options = self.config.options();
        if self.book.resend == Some(false) {
            options |= Options::NO_RESEND;
        }
        if self.book.read_only.is_some() {
            options |= Options::READ_ONLY;
        }
        options
    }

    /// The shim by its descriptor in the child, which leads to what belay was started with, whatever is installed by now.
    fn preload(&self, shim: i32) -> OsString {
        let mut value = OsString::from(own_descriptor(shim));
        if !self.config.preload.0.is_empty() {
            value.push(":");
            value.push(&self.config.preload.0);
        }
        value
    }

    fn not_started(&mut self, error: &io::Error) {
        self.live(Event::NotStarted { passes: passes(error), why: error.to_string() });
        if self.life.ended().is_none() {
            self.tell_of_wait(&[]);
            self.keep_book();
        }
    }
}

fn as_fd(fd: &rustix::fd::OwnedFd) -> rustix::fd::BorrowedFd<'_> {
    rustix::fd::AsFd::as_fd(fd)
}

fn silent() -> io::Error {
    io::Error::other("whoever serves the file system that it is on does not answer")
}

/// Starts a program that somebody else serves, or one whose mountpoint is on what somebody else serves: to read its first page,
/// or to go the way there, is to wait for that one. A start that takes too long has failed, and what was started is killed.
fn spawn_elsewhere(mut command: Command) -> io::Result<Child> {
    static STARTS: Bounded = Bounded::new();
    let number = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&number);
    let start = move || {
        told.store(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(), Relaxed);
        command.spawn()
    };
    STARTS.within(EXEC, "start", start).unwrap_or_else(|| {
        let thread = number.load(Relaxed);
        for child in children_of_thread(std::process::id(), thread) {
            let _ = Watched::open(child).map(|child| child.signal(SIGKILL));
        }
        Err(silent())
    })
}

/// Whether the mount covers a file, as its options say.
fn mounted_on_file(data: &[u8]) -> bool {
    let mode = data.split(|byte| *byte == b',').find_map(|word| word.strip_prefix(b"rootmode="));
    let mode = mode.and_then(|mode| std::str::from_utf8(mode).ok());
    mode.and_then(|mode| u32::from_str_radix(mode, 8).ok())
        .is_some_and(|mode| FileType::from_raw_mode(mode) == FileType::RegularFile)
}

/// The path by which a process finds what its descriptor of that number is open on.
fn own_descriptor(number: i32) -> String {
    format!("/proc/self/fd/{number}")
}

/// What is open as `file`, as a place only: nobody can read or write by that, and locks on it are none of its.
fn place_of(file: &rustix::fd::OwnedFd) -> io::Result<rustix::fd::OwnedFd> {
    let path = own_descriptor(file.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, rustix::fs::Mode::empty())?)
}

/// Of those that each life has. Two more are free behind them.
fn descriptor_numbers() -> [i32; 10] {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let first = DESCRIPTORS.min(limit.saturating_sub(13)).max(10);
    let first = i32::try_from(first).unwrap_or(200);
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|number| first + number)
}

#[cfg(test)]
mod tests {
    #[test]
    fn files_as_mountpoints_are_told_from_directories() {
        assert!(super::mounted_on_file(b"rw,fd=4,rootmode=100000,user_id=0"));
        assert!(super::mounted_on_file(b"rw,rootmode=100644"));
        for data in [&b"rw,rootmode=40000"[..], b"", b"rootmode=x"] {
            assert!(!super::mounted_on_file(data));
        }
    }

    #[test]
    fn descriptors_are_below_the_limit() {
        let [first, .., last] = super::descriptor_numbers();
        assert!(first >= 10 && last == first + 9);
    }
}

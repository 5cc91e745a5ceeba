//! The process of a generation: what it inherits, what it is told, and how it is kept from its own mount.

use super::Supervisor;
use super::parts::tokens::PROCESS;
use super::second::give_outer;
use crate::error::Error;
use crate::fusermount::may_mount;
use crate::instances::standin;
use crate::look::{Found, There, is_local, look_held};
use crate::mounts::{self, MountFact};
use crate::process::{Watched, children_of_thread};
use crate::text::OsText;
use crate::threads::Bounded;
use crate::unmount;
use belay_recorder::control::Options;
use belay_sys::{ChildSetup, PrivateMountNamespace, dup_cloexec, prepare_child};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use signal_hook::consts::SIGKILL;
use std::ffi::{CString, OsString};
use std::fmt::Write;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
/// Where a daemon finds the recorder; device and event counter follow. High, so that daemons which
/// count on low numbers, or close them, are not disturbed.
const DESCRIPTORS: u64 = 200;
/// How long it may take until a program that somebody else serves has been started.
const EXEC: Duration = Duration::from_secs(5);

/// The numbers by which a daemon finds what it inherits.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    first: i32,
}

impl Numbers {
    /// As high as the limit of open files lets them be.
    fn new() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let first = DESCRIPTORS.min(limit.saturating_sub(13)).max(10);
        Self { first: i32::try_from(first).unwrap_or(200) }
    }

    fn of(self, what: Inherited) -> i32 {
        self.first + what as i32
    }
}

/// What a daemon inherits, in the order of the numbers.
#[derive(Clone, Copy, Debug)]
enum Inherited {
    Recorder,
    Device,
    Event,
    Post,
    Mail,
    ImagePost,
    ImageMail,
    Shim,
    Program,
    Covered,
    Outer,
    Image,
}

/// A process that is about to be started.
struct Start {
    command: Command,
    setup: ChildSetup,
    numbers: Numbers,
    /// What the shim is told of what was inherited besides what each life has.
    told: String,
}

impl Start {
    /// Has the process inherit a descriptor.
    fn give(&mut self, what: Inherited, fd: OwnedFd) {
        self.setup.descriptors.push((fd, self.numbers.of(what)));
    }

    /// Tells the shim of what the process inherits besides what each life has.
    fn tell(&mut self, name: &str, what: Inherited) {
        let _ = write!(self.told, ":{name}={}", self.numbers.of(what));
    }
}

impl Supervisor {
    /// Starts the process. `far`: the way to the mountpoint is taken for one on which somebody may have to be waited for.
    pub(super) fn spawn_once(&mut self, far: bool) -> io::Result<Watched> {
        let held = self.runs_held_program();
        let file = self.program_to_start(held)?;
        if let Some(rights) = file.gained() {
            return Err(io::Error::other(format!("it is {rights} by now, and would run unheld")));
        }
        let numbers = Numbers::new();
        let program: PathBuf = match held {
            true => own_descriptor(numbers.of(Inherited::Program)).into(),
            false => self.config.program.clone(),
        };
        let command = match self.config.relay {
            true => Command::new("/proc/self/exe"), // what belay was started with, whatever is installed by now
            false => Command::new(&program),
        };
        let mut start =
            Start { command, setup: self.setup(numbers)?, numbers, told: String::new() };
        if held {
            start.give(Inherited::Program, dup_cloexec(as_fd(&self.fds.program))?);
        }
        let led = self.keep_from_mount(&mut start, far)?;
        self.name(&mut start, &program, held, led);
        self.tell_shim(&mut start, held);
        let Start { mut command, setup, .. } = start;
        command.stderr(Stdio::from(dup_cloexec(as_fd(&self.fds.stderr_write))?));
        if self.config.log.is_some() {
            // What it writes there is belay's to keep short, too.
            command.stdout(Stdio::from(dup_cloexec(as_fd(&self.fds.stderr_write))?));
        }
        let apart = setup.mount_namespace.is_some();
        let near = setup.mount_namespace.as_ref().is_none_or(|namespace| !namespace.may_wait);
        prepare_child(&mut command, setup);
        let mut child = match near && is_local(&file.pinned) {
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

    /// What each life inherits.
    fn setup(&self, numbers: Numbers) -> io::Result<ChildSetup> {
        let fds = &self.fds;
        let inherited = [
            (&fds.recorder, Inherited::Recorder),
            (&fds.device, Inherited::Device),
            (&fds.event, Inherited::Event),
            (&fds.post, Inherited::Post),
            (&fds.mail, Inherited::Mail),
            (&fds.image_post, Inherited::ImagePost),
            (&fds.image_mail, Inherited::ImageMail),
            (&fds.shim, Inherited::Shim),
        ];
        let give = |(fd, what)| Ok((dup_cloexec(as_fd(fd))?, numbers.of(what)));
        Ok(ChildSetup {
            descriptors: inherited.into_iter().map(give).collect::<io::Result<_>>()?,
            blocked_signals: self.config.blocked_signals,
            mark: Some(self.lineage().mark(self.book.generation)),
            ..ChildSetup::default()
        })
    }

    /// A successor must find its mountpoint as it was before the mount: a look at the mount itself would wait for the very daemon
    /// that looks. Gives the mountpoint, and what is to be looked at instead, where a mount table cannot see to that.
    fn keep_from_mount(
        &self,
        start: &mut Start,
        far: bool,
    ) -> io::Result<Option<(PathBuf, PathBuf)>> {
        let Some(mount) = self.book.mounts.held.as_ref().filter(|_| self.book.generation > 0)
        else {
            return Ok(None);
        };
        if may_mount() {
            start.setup.mount_namespace = Some(self.namespace_without(mount, far)?);
            if give_outer(&mut start.setup, start.numbers.of(Inherited::Outer)) {
                start.tell("outer", Inherited::Outer);
            }
            return Ok(None);
        }
        // A mount table of its own is not for everybody: shim or relay see to it.
        let is_file = mounted_on_file(&self.control().mount_data());
        let instead = if !is_file && self.covers(mount) {
            start.give(Inherited::Covered, dup_cloexec(as_fd(&self.fds.covered))?);
            start.tell("covered", Inherited::Covered);
            own_descriptor(start.numbers.of(Inherited::Covered)).into()
        } else {
            standin(&self.folder, is_file).map_err(Error::into_io)?
        };
        start.command.env("BELAY_STANDIN", &instead);
        start.command.env("BELAY_MOUNTPOINT", &mount.mountpoint.0);
        Ok(Some((mount.mountpoint.0.clone().into(), instead)))
    }

    /// Gives the process its name and its words: those of the daemon, or of the relay before it.
    fn name(&self, start: &mut Start, program: &Path, held: bool, led: Option<(PathBuf, PathBuf)>) {
        let Start { command, numbers, .. } = start;
        let mut words = self.config.command.iter().map(|word| &word.0);
        if self.config.relay {
            command.arg0("belay").arg("relay");
            if held {
                command.arg(format!("--held={}", numbers.of(Inherited::Program)));
            }
            if let Some((mountpoint, instead)) = led {
                command.arg("--mountpoint").arg(mountpoint).arg("--instead").arg(instead);
            }
            command.arg(program).arg("--");
        } else if let Some(name) = words.next() {
            command.arg0(name);
        }
        command.args(words);
    }

    /// Tells the shim what it was given, and what is chosen.
    fn tell_shim(&self, start: &mut Start, held: bool) {
        if held && !self.config.relay {
            start.tell("program", Inherited::Program);
        }
        if let Some(known) = &self.config.image {
            let _ =
                write!(start.told, ":image_device={}:image_inode={}", known.device, known.inode);
            if let Ok(pinned) = pin_of(&self.fds.image) {
                start.give(Inherited::Image, pinned);
                start.tell("image", Inherited::Image);
            }
            start.command.env("BELAY_IMAGE", &known.path.0);
            let name = self.config.image_as.as_ref().unwrap_or(&known.path);
            start.command.env("BELAY_IMAGE_AS", &name.0);
        }
        let mut options = self.options();
        options.set(
            Options::VOLATILE_INODES,
            options.contains(Options::VOLATILE_INODES) || self.is_same_medium(),
        );
        let of = |what| start.numbers.of(what);
        let told = format!(
            "v2:recorder={}:device={}:event={}:post={}:mail={}:image_post={}:image_mail={}:shim={}:generation={}:options={}{}",
            of(Inherited::Recorder),
            of(Inherited::Device),
            of(Inherited::Event),
            of(Inherited::Post),
            of(Inherited::Mail),
            of(Inherited::ImagePost),
            of(Inherited::ImageMail),
            of(Inherited::Shim),
            self.book.generation,
            options.bits(),
            start.told,
        );
        start.command.env("LD_PRELOAD", self.preload(of(Inherited::Shim)));
        start.command.env("BELAY_PRELOAD", &self.config.preload.0);
        start.command.env("BELAY_SHIM", told);
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
            found.is_some_and(|there| medium.is(&there.stat))
        })
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

/// What is open as `file`, pinned only: nobody can read or write by that, and locks on it are none of its.
fn pin_of(file: &rustix::fd::OwnedFd) -> io::Result<rustix::fd::OwnedFd> {
    let path = own_descriptor(file.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, rustix::fs::Mode::empty())?)
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
        let numbers = super::Numbers::new();
        let last = numbers.of(super::Inherited::Image);
        assert!(numbers.first >= 10 && last == numbers.first + 11);
    }
}

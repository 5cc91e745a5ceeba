//! The process of a generation: what it inherits, what it is told, and how it is kept from its own
//! mount.

use super::Supervisor;
use super::second::give_outer;
use crate::error::Error;
use crate::fusermount::may_mount;
use crate::instances::standin;
use crate::look::{Found, There, is_local, look_held};
use crate::mounts::{self, MountFact};
use crate::process::{Watched, started};
use crate::text::OsText;
use crate::unmount;
use belay_recorder::control::Options;
use belay_sys::{ChildSetup, PrivateMountNamespace, dup_cloexec};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::ffi::{CString, OsString};
use std::fmt::Write;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

/// Where a daemon finds the recorder; device and event counter follow. High, so that daemons which
/// count on low numbers, or close them, are not disturbed.
const DESCRIPTORS: u64 = 200;

/// The numbers by which a daemon finds what it inherits.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    first: i32,
}

impl Numbers {
    /// As high as the limit of open files lets them be.
    fn new() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let first = DESCRIPTORS.min(limit.saturating_sub(14)).max(10);
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
    Gate,
}

/// A process that is about to be started.
pub(super) struct Start {
    pub command: Command,
    pub setup: ChildSetup,
    /// The program file.
    pub file: There,
    /// What the shim is told.
    pub told: String,
    numbers: Numbers,
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

    /// Tells the shim which generation it is, and what is chosen.
    fn tell_life(&mut self, generation: u32, options: Options) {
        let _ = write!(self.told, ":generation={generation}:options={}", options.bits());
    }

    /// Has the shim wait until it is told that.
    pub fn waits_at(&mut self, gate: OwnedFd) {
        self.give(Inherited::Gate, gate);
        self.tell("gate", Inherited::Gate);
    }

    /// Whether nobody may have to be waited for, until it runs.
    pub fn is_near(&self) -> bool {
        let namespace = self.setup.mount_namespace.as_ref();
        namespace.is_none_or(|namespace| !namespace.may_wait) && is_local(&self.file.pinned)
    }
}

impl Supervisor {
    /// Starts the process; gives when that was (see [`started`]). `program`: the file, if it was
    /// looked at already. `far`: the way to the mountpoint is taken for one on which somebody may
    /// have to be waited for.
    pub(super) fn spawn_once(
        &mut self,
        program: Option<There>,
        far: bool,
    ) -> io::Result<(Watched, u64)> {
        let generation = self.book.generation;
        let mut start = self.prepare_start(program, generation, far)?;
        let options = self.options_of_start();
        if let Some(standby) = self.let_standby_in(&start, generation, options) {
            return Ok(standby);
        }
        start.tell_life(generation, options);
        let process = self.execute(start)?;
        let since = started(process.pid).ok().flatten().unwrap_or(0);
        Ok((process, since))
    }

    /// A process of that generation, but for what the shim is told of it. `program`: see
    /// [`Self::spawn_once`].
    pub(super) fn prepare_start(
        &self,
        program: Option<There>,
        generation: u32,
        far: bool,
    ) -> io::Result<Start> {
        let held = self.runs_held_program();
        let file = program.map_or_else(|| self.program_to_start(held), Ok)?;
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
        let setup = self.setup(numbers, generation)?;
        let mut start = Start { command, setup, file, told: String::new(), numbers };
        if held {
            start.give(Inherited::Program, dup_cloexec(as_fd(&self.fds.program))?);
        }
        let led = self.keep_from_mount(&mut start, generation, far)?;
        self.name(&mut start, &program, held, led);
        self.tell_shim(&mut start, held);
        start.command.stderr(Stdio::from(dup_cloexec(as_fd(&self.fds.stderr_write))?));
        if self.config.log.is_some() {
            // What it writes there is belay's to keep short, too.
            start.command.stdout(Stdio::from(dup_cloexec(as_fd(&self.fds.stderr_write))?));
        }
        Ok(start)
    }

    /// What each life inherits.
    fn setup(&self, numbers: Numbers, generation: u32) -> io::Result<ChildSetup> {
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
            mark: Some(self.lineage().mark(generation)),
            ..ChildSetup::default()
        })
    }

    /// A successor must find its mountpoint as it was before the mount: a look at the mount itself
    /// would wait for the very daemon that looks. Gives the mountpoint, and what is to be looked at
    /// instead, where a mount table cannot see to that.
    fn keep_from_mount(
        &self,
        start: &mut Start,
        generation: u32,
        far: bool,
    ) -> io::Result<Option<(PathBuf, PathBuf)>> {
        let Some(mount) = self.book.mounts.held.as_ref().filter(|_| generation > 0) else {
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

    /// Tells the shim what it was given.
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
        let of = |what| start.numbers.of(what);
        start.told = format!(
            "v2:recorder={}:device={}:event={}:post={}:mail={}:image_post={}:image_mail={}:shim={}{}",
            of(Inherited::Recorder),
            of(Inherited::Device),
            of(Inherited::Event),
            of(Inherited::Post),
            of(Inherited::Mail),
            of(Inherited::ImagePost),
            of(Inherited::ImageMail),
            of(Inherited::Shim),
            start.told,
        );
        start.command.env("LD_PRELOAD", self.preload(of(Inherited::Shim)));
        start.command.env("BELAY_PRELOAD", &self.config.preload.0);
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

    /// The program, which may be another by now than the one that was looked at before the first
    /// start.
    fn program_to_start(&self, held: bool) -> io::Result<There> {
        let found = if held {
            look_held(&self.helpers.scouts, as_fd(&self.fds.program))
        } else {
            self.look(&self.config.program)
        };
        match found {
            Found::There(there) => Ok(there),
            Found::Not(error) => Err(error.into()),
            Found::Unknown if !held && self.is_hidden(&self.config.program) => {
                Err(io::Error::other("its own mount hides it"))
            }
            Found::Unknown => Err(silent()),
        }
    }

    /// Whether what the daemon shows is a file that was made once, and still is that.
    pub(super) fn is_same_medium(&self) -> bool {
        self.config.medium.as_ref().is_some_and(|medium| {
            let folder = as_fd(&self.fds.medium_folder);
            let found = self.look_behind(medium.path(), Some(folder)).there();
            found.is_some_and(|there| medium.is(&there.stat))
        })
    }

    /// The shim by its descriptor in the child, which leads to what belay was started with,
    /// whatever is installed by now.
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

pub(super) fn silent() -> io::Error {
    io::Error::other("whoever serves the file system that it is on does not answer")
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

/// What is open as `file`, pinned only: nobody can read or write by that, and locks on it are none
/// of its.
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
        let last = numbers.of(super::Inherited::Gate);
        assert!(numbers.first >= 10 && last == numbers.first + 12);
    }
}

//! How the shim comes to life: the environment, the recorder, the lease.

use crate::connection::Connection;
use crate::effects::epoch::Epochs;
use crate::effects::image::Images;
use crate::effects::journal::is_all_seen;
use crate::effects::{after, choose};
use crate::image_box::ImageBox;
use crate::mailbox::Mailbox;
use crate::waiting::Waiting;
use belay_effects::area::{Area, Tally};
use belay_host::{Host, Place};
use belay_recorder::control::{Instant, Lease, flags, options};
use belay_recorder::{Capacity, Control, Layout, Store};
use belay_session::Session;
use belay_sys::Mapping;
use rustix::fs::OFlags;
use std::ffi::{CString, OsStr};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, OnceLock};

/// Everything that the shim knows. Absent in a process that belay did not start.
pub(crate) struct Shim {
    pub(crate) host: Host<Arc<Mapping>>,
    /// The held device, which every /dev/fuse that the daemon opens is a duplicate of.
    pub(crate) device: OwnedFd,
    event: OwnedFd,
    /// The mount namespace that everybody sees, of a successor that has one of its own.
    pub(crate) outer: Option<OwnedFd>,
    /// Where fusermount puts the device.
    pub(crate) mailbox: Mailbox,
    /// Where the daemon's image is left.
    pub(crate) image_box: ImageBox,
    /// The user's choices, as the supervisor has told them.
    pub(crate) options: u64,
    pub(crate) connection: Connection,
    pid: AtomicU32,
    /// Requests are answered by other threads than those that take them.
    pub(crate) handed_over: AtomicBool,
    /// The image, under the policy `transaction`.
    pub(crate) image: Images,
    /// What is collected until a checkpoint, under the policy `epoch`.
    pub(crate) epochs: Epochs,
    /// How the daemon waits for the device.
    pub(crate) waiting: Waiting,
}

static SHIM: OnceLock<Option<Shim>> = OnceLock::new();

/// The shim of this process, if belay started it.
#[inline]
pub(crate) fn shim() -> Option<&'static Shim> {
    SHIM.get()?.as_ref()
}

impl Shim {
    pub(crate) fn control(&self) -> Control<'_, Arc<Mapping>> {
        self.host.control()
    }

    /// Tells the supervisor to look at the recorder. Never blocks: the eventfd is non-blocking.
    pub(crate) fn tell(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// O_NONBLOCK and O_ASYNC belong to the description, which all generations share: what the dead one had set, its
    /// successor does not know of.
    fn restore_flags(&self) {
        if self.host.generation() > 0
            && let Ok(flags) = rustix::fs::fcntl_getfl(&self.device)
        {
            let fresh =
                flags.difference(OFlags::NONBLOCK | OFlags::from_bits_retain(libc::O_ASYNC as u32));
            if fresh != flags {
                let _ = rustix::fs::fcntl_setfl(&self.device, fresh);
            }
        }
    }

    /// Whether a read of the device waits until there is something.
    pub(crate) fn reads_wait(&self) -> bool {
        let flags = rustix::fs::fcntl_getfl(&self.device);
        let waits = flags.is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
        self.waiting.set_nonblocking(!waits);
        waits
    }

    /// Whether the calling process is the one that belay has started, and nothing has been mounted yet, by itself or by a
    /// child in the background.
    pub(crate) fn is_starting(&self) -> bool {
        let own = Lease { generation: self.host.generation(), pid: std::process::id() };
        self.control().lease() == own
            && !self.control().has(flags::MOUNTED)
            && !self.host.is_ready()
    }

    /// The daemon may have gone into the background since it started: the process that reads the
    /// device is the one that holds the lease.
    pub(crate) fn claim_for_this_process(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        let (old, new) = (self.pid.load(Relaxed), std::process::id());
        if old != new {
            let lease = |pid| Lease { generation: self.host.generation(), pid };
            let control = self.control();
            // Another thread of this process may have been faster.
            if !control.change_lease(lease(old), lease(new)) && control.lease() != lease(new) {
                end_superseded();
            }
            self.pid.store(new, Relaxed);
            self.tell();
        }
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    let Some(setup) = std::env::var_os("BELAY_SHIM") else {
        let _ = SHIM.set(None);
        return;
    };
    // A bug here must look like any other crash of the daemon, not like undefined behaviour in
    // its C frames.
    std::panic::set_hook(Box::new(|info| {
        eprintln!("belay: the shim failed: {info}");
        std::process::abort();
    }));
    let standin = std::env::var_os("BELAY_STANDIN").zip(std::env::var_os("BELAY_MOUNTPOINT"));
    clean_environment();
    crate::real::prepare();
    crate::descriptors::own_memory();
    crate::populate::watch_forks();
    match attach(&setup) {
        Ok(shim) => {
            let _ = SHIM.set(Some(shim));
            if let Some((standin, mountpoint)) = standin {
                crate::standin::use_for(mountpoint.into_vec(), standin.into_vec());
            }
            if let Some(shim) = self::shim() {
                shim.host.reach(shim, Instant::Attached);
            }
        }
        Err(why) => {
            eprintln!("belay: cannot start under supervision: {why}");
            end_superseded();
        }
    }
}

/// Children of the daemon must not be preloaded: they get the environment that the user gave.
fn clean_environment() {
    let original = std::env::var_os("BELAY_PRELOAD").unwrap_or_default();
    let ours = [c"BELAY_SHIM", c"BELAY_STANDIN", c"BELAY_MOUNTPOINT", c"BELAY_PRELOAD"];
    for name in ours.into_iter().chain([c"LD_PRELOAD"]) {
        // SAFETY: in the loader's constructor phase no other thread exists; the name is a
        // NUL-terminated literal.
        unsafe { libc::unsetenv(name.as_ptr()) };
    }
    if let (false, Ok(value)) = (original.is_empty(), CString::new(original.as_bytes())) {
        // SAFETY: as above; setenv copies both strings.
        unsafe { libc::setenv(c"LD_PRELOAD".as_ptr(), value.as_ptr(), 1) };
    }
}

fn attach(setup: &OsStr) -> Result<Shim, String> {
    let setup = setup.to_str().ok_or("BELAY_SHIM is not text")?;
    let mut recorder = None;
    let mut device = None;
    let mut event = None;
    let mut outer = None;
    let mut post = None;
    let mut mail = None;
    let mut generation = None;
    let (mut image_post, mut image_mail) = (None, None);
    let (mut bits, mut image_device, mut image_inode) = (0, None, None);
    let mut fields = setup.split(':');
    if fields.next() != Some("v2") {
        return Err(format!("BELAY_SHIM={setup} is of another version: install matching parts"));
    }
    for field in fields {
        let (name, value) = field.split_once('=').ok_or("BELAY_SHIM is malformed")?;
        let value: u64 = value.parse().map_err(|_| "BELAY_SHIM is malformed")?;
        match name {
            "recorder" => recorder = Some(take(value)?),
            "device" => device = Some(take(value)?),
            "event" => event = Some(take(value)?),
            "outer" => outer = Some(take(value)?),
            "post" => post = Some(take(value)?),
            "mail" => mail = Some(take(value)?),
            "image_post" => image_post = Some(take(value)?),
            "image_mail" => image_mail = Some(take(value)?),
            "generation" => generation = u32::try_from(value).ok(),
            "options" => bits = value,
            "image_device" => image_device = Some(value),
            "image_inode" => image_inode = Some(value),
            // What the loader and the kernel have needed: closed, as nobody needs it any more.
            "shim" | "program" => drop(take(value)?),
            // What the stand-in leads to: open until the daemon ends, as its path names it by number.
            "covered" => std::mem::forget(take(value)?),
            _ => {}
        }
    }
    let (Some(recorder), Some(device), Some(event)) = (recorder, device, event) else {
        return Err("BELAY_SHIM is incomplete".into());
    };
    let (Some(post), Some(mail), Some(generation)) = (post, mail, generation) else {
        return Err("BELAY_SHIM is incomplete".into());
    };
    let (Some(image_post), Some(image_mail)) = (image_post, image_mail) else {
        return Err("BELAY_SHIM is incomplete".into());
    };
    let image_box = ImageBox::new(image_post, image_mail, image_device.zip(image_inode));
    let layout = Layout::new(Capacity::MOUNT);
    let borrowed: BorrowedFd<'_> = std::os::fd::AsFd::as_fd(&recorder);
    let memory = Mapping::new(borrowed, layout.bytes())
        .map_err(|error| format!("cannot map the recorder: {error}"))?;
    let memory = Arc::new(memory);
    let control = Control::new(&memory, layout);
    if !control.is_valid() {
        return Err("the recorder is of another version: install matching parts".into());
    }
    let pid = std::process::id();
    let free = Lease { generation, pid: 0 };
    if !control.change_lease(free, Lease { generation, pid }) {
        return Err(format!("generation {generation} is not to start any more"));
    }
    let mut problem = None;
    let store = Store::new(memory.clone(), layout);
    let mut session = Session::attach_knowing(store, generation, bits, |store| {
        after::learn(store, bits, &image_box).unwrap_or_else(|why| {
            problem = Some(why);
            Default::default()
        })
    })
    .map_err(|error| format!("the record of the mount cannot be used: {error}"))?;
    if let Some(why) = problem {
        return Err(why);
    }
    if generation > 0 {
        session.end_kept(is_all_seen(&Control::new(&memory, layout), &Area::new(&memory, layout)));
    }
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    session.set_owner(user.as_raw(), group.as_raw());
    choose(bits);
    let handed_over = Area::new(&memory, layout).tally(Tally::HandedOver) > 0;
    let epochs = Epochs::new(&Control::new(&memory, layout));
    let shim = Shim {
        host: Host::new(session, memory, Place { layout, generation }),
        device,
        event,
        outer,
        mailbox: Mailbox::new(post, mail, generation),
        image_box,
        options: bits,
        connection: Connection::new(bits & options::ENDS_UNCONNECTED != 0),
        pid: AtomicU32::new(pid),
        handed_over: AtomicBool::new(handed_over),
        image: Images::default(),
        epochs,
        waiting: Waiting::default(),
    };
    shim.restore_flags();
    if bits & options::EPOCH != 0 {
        shim.begin_epochs(bits)?;
    }
    Ok(shim)
}

/// Takes over a descriptor that the supervisor left open for us.
fn take(fd: u64) -> Result<OwnedFd, String> {
    let fd = i32::try_from(fd).map_err(|_| "BELAY_SHIM is malformed")?;
    // SAFETY: F_SETFD on any number is harmless; it fails on one that is not open.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(format!("descriptor {fd} from the supervisor is not open"));
    }
    // SAFETY: the descriptor is open (just checked), was left for this purpose by the supervisor
    // and is named once in BELAY_SHIM, which is gone from the environment now.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// This process is not (or no longer) the one that may serve the mount.
fn end_superseded() -> ! {
    // SAFETY: _exit ends the process at once; nothing of this process is to be flushed or run.
    unsafe { libc::_exit(125) }
}

/// The kernel told this daemon that the mount is gone.
pub(crate) fn disconnected() {
    if let Some(shim) = shim() {
        shim.control().raise(flags::DISCONNECTED);
    }
}

//! What there is of belay in the daemon's process, and how everybody finds it.

use crate::connection::Connection;
use crate::descriptors;
use crate::effects::policy::Policy;
use crate::exchanged::Named;
use crate::image_box::ImageBox;
use crate::mailbox::Mailbox;
use crate::waiting::bell::Waiting;
use belay_host::Host;
use belay_recorder::Control;
use belay_recorder::control::{Flags, Lease, Options};
use belay_sys::Mapping;
use rustix::fs::OFlags;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Everything that the shim knows. Absent in a process that belay did not start.
pub(crate) struct Shim {
    pub(crate) host: Host<Arc<Mapping>>,
    /// The held device, which every /dev/fuse that the daemon opens is a duplicate of.
    pub(crate) device: OwnedFd,
    /// Counts what the supervisor is to look at.
    pub(crate) event: OwnedFd,
    /// The mount namespace that everybody sees, of a successor that has one of its own.
    pub(crate) outer: Option<OwnedFd>,
    /// Where fusermount puts the device.
    pub(crate) mailbox: Mailbox,
    /// Where the daemon's image is left.
    pub(crate) image_box: ImageBox,
    /// The image by its names, if the user has named one.
    pub(crate) image: Option<Named>,
    /// The user's choices, as the supervisor has told them.
    pub(crate) options: Options,
    pub(crate) connection: Connection,
    /// The process that holds the lease, as far as this one knows.
    pub(crate) pid: AtomicU32,
    /// Requests are answered by other threads than those that take them.
    pub(crate) handed_over: AtomicBool,
    /// What is done about what the daemon does outside of itself.
    pub(crate) policy: Policy,
    /// How the daemon waits for the device.
    pub(crate) waiting: Waiting,
}

static SHIM: OnceLock<Option<Shim>> = OnceLock::new();

/// The shim of this process, if belay started it.
#[inline]
pub(crate) fn shim() -> Option<&'static Shim> {
    SHIM.get()?.as_ref()
}

/// Makes `shim` that of this process. Once, by [`crate::start`], before any other thread is there.
pub(crate) fn settle(shim: Option<Shim>) {
    let _ = SHIM.set(shim);
}

/// The policy of this process: one load more than [`shim`].
#[inline]
pub(crate) fn policy() -> &'static Policy {
    shim().map_or(&Policy::None, |shim| &shim.policy)
}

impl Shim {
    pub(crate) fn control(&self) -> Control<'_, Arc<Mapping>> {
        self.host.control()
    }

    /// Has the daemon leave alone what this holds.
    pub(crate) fn reserve(&self) {
        let own = [&self.device, &self.event].into_iter().chain(&self.outer);
        let own = own.map(AsRawFd::as_raw_fd).chain(self.image.as_ref().map(Named::number));
        own.chain(self.mailbox.numbers())
            .chain(self.image_box.numbers())
            .for_each(descriptors::reserve);
    }

    /// Tells the supervisor to look at the recorder. Never blocks: the eventfd is non-blocking.
    pub(crate) fn tell(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// O_NONBLOCK and O_ASYNC belong to the description, which all generations share: what the dead
    /// one had set, its successor does not know of.
    pub(crate) fn restore_flags(&self) {
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

    /// Whether the calling process is the one that belay has started, and nothing has been mounted
    /// yet, by itself or by a child in the background.
    pub(crate) fn is_starting(&self) -> bool {
        let own = Lease { generation: self.host.generation(), pid: std::process::id() };
        self.control().lease() == own
            && !self.control().has(Flags::MOUNTED)
            && !self.host.is_ready()
    }

    /// The daemon may have gone into the background since it started: the process that reads the
    /// device is the one that holds the lease.
    pub(crate) fn claim_for_this_process(&self) {
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

/// This process is not (or no longer) the one that may serve the mount.
pub(crate) fn end_superseded() -> ! {
    // SAFETY: _exit ends the process at once; nothing of this process is to be flushed or run.
    unsafe { libc::_exit(125) }
}

/// The kernel told this daemon that the mount is gone.
pub(crate) fn disconnected() {
    if let Some(shim) = shim() {
        shim.control().raise(Flags::DISCONNECTED);
    }
}

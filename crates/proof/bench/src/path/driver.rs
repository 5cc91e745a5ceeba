//! Drives a host by requests and replies that are data.

use std::borrow::Cow;
use std::hint::black_box;
use std::os::fd::AsFd;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use belay_host::{After, Before, Host, Place};
use belay_recorder::{Capacity, Layout, Store};
use belay_session::Session;
use belay_sys::Mapping;
use belay_wire::{Ids, build};
use clap::ValueEnum;

use super::still::Still;

/// Bytes of a reply's header.
const HEADER: usize = 16;

/// A mount's, but for room that is not needed here: valgrind has less address space to give.
const CAPACITY: Capacity = Capacity {
    nodes: 1 << 16,
    handles: 1 << 12,
    heap_words: 1 << 22,
    copy_bytes: 0,
    effect_bytes: 0,
    epoch_bytes: 0,
    ..Capacity::MOUNT
};

/// Whether belay sees the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// They are only made.
    Bare,
    /// They go through the host.
    Held,
}

/// See the module.
pub struct Driver {
    host: Option<Host<Arc<Mapping>>>,
    still: Still,
    unique: u64,
    served: u64,
    /// A file, by the kernel's number of it, and a handle of it.
    pub file: u64,
    pub handle: u64,
}

/// What the kernel has got.
#[derive(Clone, Copy, Debug, Default)]
pub struct Got {
    /// The first number: a node, or a handle.
    pub first: u64,
    /// The handle of a file that was made.
    pub handle: u64,
}

impl Driver {
    /// A mount that nobody has used yet.
    pub fn new(side: Side) -> Result<Self> {
        let (host, still) = (None, Still::default());
        let mut driver = Self { host, still, unique: 0, served: 0, file: 0, handle: 0 };
        if side == Side::Held {
            let layout = Layout::new(CAPACITY);
            let file = rustix::fs::memfd_create("path", rustix::fs::MemfdFlags::CLOEXEC)?;
            rustix::fs::ftruncate(&file, layout.bytes() as u64)?;
            let memory = Arc::new(Mapping::new(file.as_fd(), layout.bytes())?);
            let session = Session::attach(Store::new(memory.clone(), layout), 0)
                .map_err(|error| anyhow!("{error:?}"))
                .context("the recorder cannot be used")?;
            let host = Host::new(session, memory, Place { layout, generation: 0 });
            host.settled(&driver.still);
            driver.host = Some(host);
        }
        Ok(driver)
    }

    /// The ids of the next request, about the node that the kernel knows by this number.
    pub fn ids(&mut self, nodeid: u64) -> Ids {
        self.unique += 2;
        Ids { unique: self.unique, nodeid, uid: 0, gid: 0, pid: 1 }
    }

    /// How many requests there were.
    #[cfg(test)]
    pub fn served(&self) -> u64 {
        self.served
    }

    /// A request that nobody answers.
    pub fn tell(&mut self, message: Vec<u8>) {
        self.served += 1;
        self.deliver(message);
    }

    /// A request, and the daemon's answer: what is behind its header, or an errno.
    pub fn ask(&mut self, message: Vec<u8>, answer: Result<&[u8], i32>) -> Got {
        self.served += 1;
        self.deliver(message);
        let reply = match answer {
            Ok(body) => build::reply(self.unique, body),
            Err(errno) => build::reply_error(self.unique, errno),
        };
        self.answer(&reply)
    }

    fn deliver(&mut self, mut message: Vec<u8>) {
        let Some(host) = &self.host else {
            black_box(&mut message);
            return;
        };
        let before = host.before_read(&self.still);
        assert!(matches!(before, Before::Read), "there is something else to do");
        let after = host.after_read(&self.still, &mut message, None);
        // A FORGET that only belay cares for is taken.
        assert!(matches!(after, After::Deliver(_) | After::Again));
    }

    fn answer(&self, reply: &[u8]) -> Got {
        self.still.wrote(reply);
        if let Some(host) = &self.host {
            let (head, body) = reply.split_at(HEADER.min(reply.len()));
            let pass = || Ok(reply.len());
            let written =
                host.outgoing(&self.still, (head, reply.len()), || Cow::Borrowed(body), pass);
            assert_eq!(written, Ok(reply.len()));
        } else {
            black_box(reply);
        }
        self.still.got()
    }
}

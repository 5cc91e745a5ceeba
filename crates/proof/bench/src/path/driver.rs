//! Drives a host by requests and replies that are data.

use std::borrow::Cow;
use std::hint::black_box;
use std::os::fd::AsFd;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use belay_host::{After, Attachment, Before, Host};
use belay_recorder::{Capacity, Layout, Store};
use belay_session::Session;
use belay_sys::Mapping;
use belay_wire::fields::{NODEID_OFFSET, UNIQUE_OFFSET};
use belay_wire::put_u64;
use clap::ValueEnum;

use super::requests::Kind;
use super::step::{BODY, Known, Step};
use super::still::Still;

/// Room for the longest message.
const ROOM: usize = 8192;

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

/// Operations that differ by their names, after which the first comes again.
const VARIANTS: u64 = 64;

/// See the module.
pub struct Driver {
    host: Option<Host<Arc<Mapping>>>,
    still: Still,
    operations: Vec<Vec<Step>>,
    known: Known,
    unique: u64,
    /// The request, and the answer, that are on their way.
    message: Vec<u8>,
    reply: Vec<u8>,
}

impl Driver {
    /// A mount that is ready for operations of this kind.
    pub fn new(kind: Kind, side: Side) -> Result<Self> {
        let still = Still::default();
        let host = match side {
            Side::Bare => None,
            Side::Held => Some(host(&still)?),
        };
        let operations = (0..VARIANTS).map(|number| kind.steps(number)).collect();
        let (message, reply) = (Vec::with_capacity(ROOM), Vec::with_capacity(ROOM));
        let known = Known::default();
        let mut driver = Self { host, still, operations, known, unique: 0, message, reply };
        for step in Kind::preparation() {
            driver.take(&step);
        }
        Ok(driver)
    }

    /// Does one operation.
    pub fn operate(&mut self, number: u64) {
        let operations = std::mem::take(&mut self.operations);
        for step in &operations[(number % VARIANTS) as usize] {
            self.take(step);
        }
        self.operations = operations;
    }

    fn take(&mut self, step: &Step) {
        self.unique += 2;
        self.message.clear();
        self.message.extend_from_slice(&step.message);
        let _ = put_u64(&mut self.message, UNIQUE_OFFSET, self.unique);
        let _ = put_u64(&mut self.message, NODEID_OFFSET, self.known.node(step.of));
        if let Some((at, handle)) = self.known.handle(step.names) {
            let _ = put_u64(&mut self.message, at, handle);
        }
        self.deliver();
        let Some(reply) = &step.reply else { return };
        self.reply.clear();
        self.reply.extend_from_slice(reply);
        let _ = put_u64(&mut self.reply, UNIQUE_OFFSET, self.unique);
        self.answer();
        let (first, second) = self.still.got();
        self.known.learn(step.learns, first, second);
    }

    fn deliver(&mut self) {
        let Some(host) = &self.host else {
            black_box(&mut self.message);
            return;
        };
        let before = host.before_read(&self.still);
        assert!(matches!(before, Before::Read), "there is something else to do");
        let after = host.after_read(&self.still, &mut self.message, None);
        // A FORGET that only belay cares for is taken.
        assert!(matches!(after, After::Deliver(_) | After::Again));
    }

    fn answer(&self) {
        let reply = &self.reply;
        self.still.wrote(reply);
        if let Some(host) = &self.host {
            let (head, body) = reply.split_at(BODY.min(reply.len()));
            let pass = || Ok(reply.len());
            let body = || Cow::Borrowed(body);
            let written = host.outgoing(&self.still, (head, reply.len()), body, pass);
            assert_eq!(written, Ok(reply.len()));
        } else {
            black_box(reply);
        }
    }

    /// How many requests there were, and how many of them the host has counted, if there is one.
    #[cfg(test)]
    pub fn served(&self) -> (u64, Option<u64>) {
        let counted = |host: &Host<Arc<Mapping>>| {
            host.control().counter(belay_recorder::control::Counter::Requests)
        };
        (self.unique / 2, self.host.as_ref().map(counted))
    }
}

fn host(still: &Still) -> Result<Host<Arc<Mapping>>> {
    let layout = Layout::new(CAPACITY);
    let file = rustix::fs::memfd_create("path", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, layout.bytes() as u64)?;
    let memory = Arc::new(Mapping::new(file.as_fd(), layout.bytes())?);
    let session = Session::attach(Store::new(memory.clone(), layout), 0)
        .map_err(|error| anyhow!("{error:?}"))
        .context("the recorder cannot be used")?;
    let host = Host::new(session, memory, Attachment { layout, generation: 0 });
    host.settled(still);
    Ok(host)
}

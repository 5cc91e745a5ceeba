//! One generation: the daemon's threads, and the host that ships, which each of them drives as it
//! reads and writes the device.

use super::daemon::{Daemon, Flavour, Outcome};
use super::disk::Disk;
use super::kernel::Kernel;
use super::memory::{Clock, Ended, Rng, Words};
use super::surroundings::{Sabotage, Surroundings};
use belay_host::splice::{SHORT, Spliced};
use belay_host::{After, Attachment, Before, Device, Host};
use belay_oplog::{Capacity, Oplog};
use belay_recorder::control::{Instant, Options};
use belay_recorder::{Layout, Slot, Store};
use belay_session::Session;
use belay_wire::errno::{EINTR, ENODEV};
use belay_wire::{Opcode, Request};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Bytes of a reply's header.
const HEADER: usize = 16;
/// Room for the largest message.
const ROOM: usize = 1 << 17;
/// Threads of a life that may be cancelled: fewer than there are slots.
const MOST_CANCELLED: usize = 8;

/// What outlives a daemon.
pub struct Outside {
    pub options: Options,
    pub kernel: Rc<RefCell<Kernel>>,
    pub disk: Rc<RefCell<Disk>>,
    pub memory: Words,
    pub layout: Layout,
    pub oplog: Capacity,
    pub clock: Rc<Clock>,
    pub time: Cell<u64>,
    /// The disk as of the last checkpoint, and how many there were.
    pub image: Rc<RefCell<Disk>>,
    pub epoch: Cell<u64>,
    /// The last epoch that outlives a power failure.
    pub durable: Cell<u64>,
    /// A message that was read from the kernel and not yet taken.
    pub in_hand: RefCell<Option<Vec<u8>>>,
    /// What signals come by, if any do.
    pub signals: Option<RefCell<Rng>>,
    /// What is done wrong on purpose.
    pub sabotage: Option<Sabotage>,
}

impl Outside {
    /// Whether a signal comes now, as it does in so many of a hundred cases.
    pub fn has_signal(&self, percent: u64) -> bool {
        self.signals.as_ref().is_some_and(|rng| rng.borrow_mut().chance(percent))
    }

    /// The image is as the daemon has made the disk, and a new epoch begins.
    pub fn end_epoch(&self) {
        self.clock.tick();
        *self.image.borrow_mut() = self.disk.borrow().clone();
        self.epoch.set(self.epoch.get() + 1);
    }

    /// Whether the epoch before is on the image.
    pub fn can_seal(&self) -> bool {
        self.durable.get() + 1 == self.epoch.get()
    }
}

enum Thread {
    /// About to read the device.
    Idle,
    /// Sleeping in read(2).
    Blocked(Option<Slot>),
    /// Serving a request.
    Busy(Vec<u8>),
    /// About to reply.
    Replying(Opcode, Vec<u8>),
}

pub struct Life {
    pub host: Host<Words>,
    pub daemon: Daemon,
    /// A checkpoint is due.
    due: Cell<bool>,
    /// The last epoch that the session knows to be durable.
    durable: Cell<u64>,
    /// Those that read the device, and behind them those that only answer.
    threads: Vec<Thread>,
    readers: usize,
    /// Slots that threads had claimed which were cancelled in their read: nobody gives these back
    /// while this life lasts.
    cancelled: usize,
}

impl Life {
    pub fn new(out: &Outside, generation: u32, flavour: Flavour, threads: usize) -> Self {
        let store = Store::new(out.memory.clone(), out.layout);
        let mut session = Session::attach_with(store, generation, out.options).expect("whole");
        session.set_epochs(out.epoch.get(), out.durable.get());
        if out.options.contains(Options::EPOCH) {
            let log = Oplog::open(out.memory.clone(), out.layout.words, out.oplog, out.epoch.get());
            session.keep_log(log.expect("the op-log")).expect("the op-log");
        }
        session.control().reach(Instant::Attached, out.time.get() + 1);
        let attachment = Attachment { layout: out.layout, generation };
        let life = Self {
            host: Host::new(session, out.memory.clone(), attachment),
            daemon: Daemon::new(generation, flavour, out.disk.clone(), out.clock.clone()),
            due: Cell::new(false),
            durable: Cell::new(out.durable.get()),
            threads: (0..threads).map(|_| Thread::Idle).collect(),
            readers: threads,
            cancelled: 0,
        };
        life.host.settled(&life.surroundings(out));
        life
    }

    fn surroundings<'a>(&'a self, out: &'a Outside) -> Surroundings<'a> {
        Surroundings::new(out, &self.due, &self.durable, self.daemon.dirty)
    }

    /// Slots that sleeping threads have claimed, or had when they were cancelled.
    pub fn claimed(&self) -> usize {
        let sleeping = self.threads.iter().filter(|t| matches!(t, Thread::Blocked(Some(_))));
        sleeping.count() + self.cancelled
    }

    /// What happens besides the requests: the committer is done, or a checkpoint is due.
    pub fn checkpoints(&self, out: &Outside, rng: &mut Rng, waiting: bool, busy: bool) {
        if out.durable.get() + 1 < out.epoch.get() && (waiting || rng.chance(20)) {
            out.durable.set(out.epoch.get() - 1);
            self.host.look_again();
            // The supervisor asks the mount for something.
            let nudge = self.host.session().kick_message();
            out.kernel.borrow_mut().write(&nudge);
        }
        if busy && rng.chance(3) {
            self.due.set(true); // noted by a thread that is awake
            self.host.look_again();
        }
    }

    /// What the daemon's threads are at.
    pub fn describe(&self) -> String {
        let at = |thread: &Thread| match thread {
            Thread::Idle => "about to read".to_owned(),
            Thread::Blocked(_) => "in a read".to_owned(),
            Thread::Busy(message) => Request::parse(message).unwrap().describe(),
            Thread::Replying(opcode, _) => format!("answers {opcode}"),
        };
        let threads: Vec<_> = self.threads.iter().map(at).collect();
        let session = self.host.session();
        format!(
            "threads {threads:?}, {:?}, quiet {}, due {}",
            session.phase(),
            session.is_quiet(),
            self.due.get()
        )
    }

    pub fn is_idle(&self) -> bool {
        self.host.session().is_quiet()
            && self.threads.iter().all(|t| matches!(t, Thread::Idle | Thread::Blocked(_)))
    }

    /// Lets one thread take one step. `false` if none did anything.
    pub fn step(&mut self, out: &Outside, rng: &mut Rng) -> bool {
        let mut order: Vec<usize> = (0..self.threads.len()).collect();
        let n = order.len();
        for i in 0..n {
            order.swap(i, i + rng.below(n - i));
        }
        for i in order {
            let sleeps = matches!(self.threads[i], Thread::Blocked(_));
            if sleeps && !out.kernel.borrow().is_readable() {
                self.disturb(i, out);
                continue;
            }
            let thread = std::mem::replace(&mut self.threads[i], Thread::Idle);
            let (thread, acted) = self.thread_step(thread, out);
            match thread {
                Thread::Busy(_) if self.daemon.flavour.hands_over && i < self.readers => {
                    self.threads.push(thread);
                }
                Thread::Idle if i >= self.readers => {
                    self.threads.remove(i);
                }
                _ => self.threads[i] = thread,
            }
            if acted {
                return true;
            }
        }
        false
    }

    /// A signal may come to a thread that sleeps in a read: the read fails with EINTR, or the
    /// thread is cancelled, and the daemon starts another.
    fn disturb(&mut self, i: usize, out: &Outside) {
        if !out.has_signal(3) {
            return;
        }
        let Thread::Blocked(slot) = std::mem::replace(&mut self.threads[i], Thread::Idle) else {
            unreachable!("it sleeps");
        };
        let is_cancelled = self.cancelled < MOST_CANCELLED && out.has_signal(20);
        if is_cancelled {
            self.cancelled += usize::from(slot.is_some());
        } else if out.sabotage != Some(Sabotage::NotGivenBack) {
            self.host.unclaim(slot);
        }
    }

    fn thread_step(&mut self, thread: Thread, out: &Outside) -> (Thread, bool) {
        match thread {
            Thread::Idle => self.ask(out),
            Thread::Blocked(slot) => (self.read(slot, out), true),
            Thread::Busy(message) => {
                out.clock.tick();
                let opcode = Request::parse(&message).unwrap().opcode();
                out.kernel.borrow_mut().note(|| {
                    format!("    daemon {}", Request::parse(&message).unwrap().describe())
                });
                match self.daemon.serve(&message) {
                    Outcome::Wait => (Thread::Busy(message), false),
                    Outcome::Nothing => (Thread::Idle, true),
                    Outcome::Reply(reply) => {
                        out.clock.tick();
                        (Thread::Replying(opcode, reply), true)
                    }
                }
            }
            Thread::Replying(opcode, reply) => {
                for note in std::mem::take(&mut self.daemon.notes) {
                    self.write(&note, out).expect("a notification");
                }
                if self.write(&reply, out).is_err() {
                    self.daemon.refused(opcode, &reply);
                }
                (Thread::Idle, true)
            }
        }
    }

    /// A thread has nothing to do.
    fn ask(&mut self, out: &Outside) -> (Thread, bool) {
        let env = self.surroundings(out);
        match self.host.before_read(&env) {
            Before::Deliver(mut message, data) => {
                message.extend(data.to_vec(&out.memory));
                (Thread::Busy(message), true)
            }
            // It has slept for a while, and there was nothing.
            Before::Again => (Thread::Idle, !env.has_slept() || env.readiness().is_something()),
            Before::Read => {
                let slot = self.host.claim(&env);
                (Thread::Blocked(slot), true)
            }
            Before::Fail(ENODEV) if self.host.is_retiring() => {
                // It writes all that it holds and ends, and the supervisor ends the epoch.
                out.end_epoch();
                std::panic::resume_unwind(Box::new(Ended))
            }
            // It reads again.
            Before::Fail(EINTR) => (Thread::Idle, false),
            Before::Fail(errno) => panic!("a read fails with {errno}"),
        }
    }

    /// There is something to be read.
    fn read(&mut self, slot: Option<Slot>, out: &Outside) -> Thread {
        let env = self.surroundings(out);
        let mut message = vec![0; ROOM];
        let got = match slot {
            Some(slot) => {
                let (at, max) = self.host.session().store().slot_copy(slot);
                let got = env.read_into_recorder(at, max).expect("a message");
                message = self.host.session().store().slot_copy_bytes(slot, got);
                got
            }
            None => env.read(&mut message).expect("a message"),
        };
        message.truncate(got);
        if out.sabotage == Some(Sabotage::PassedBy) {
            out.in_hand.take();
            return Thread::Busy(message);
        }
        let after = if self.daemon.flavour.splices && !self.host.copies() {
            self.spliced(&env, &mut message, out.sabotage)
        } else {
            self.host.after_read(&env, &mut message, slot)
        };
        out.in_hand.take();
        out.clock.tick();
        match after {
            After::Again => Thread::Idle,
            After::Deliver(len) => {
                message.truncate(len);
                Thread::Busy(message)
            }
        }
    }

    /// The same of a message that goes through a pipe.
    fn spliced(
        &self,
        env: &Surroundings<'_>,
        message: &mut Vec<u8>,
        sabotage: Option<Sabotage>,
    ) -> After {
        if sabotage == Some(Sabotage::PassedHead) && message.len() >= SHORT {
            return After::Deliver(message.len());
        }
        let mut pipe = message.clone();
        let spliced = self.host.after_splice(env, message.len(), |out| {
            out.copy_from_slice(&pipe[..out.len()]);
            pipe.drain(..out.len());
            true
        });
        match spliced.expect("a pipe") {
            Spliced::Again => return After::Again,
            Spliced::Whole(whole) => *message = whole,
            Spliced::Head(head) => {
                *message = head;
                message.append(&mut pipe);
            }
        }
        After::Deliver(message.len())
    }

    /// The daemon writes a message to the device.
    fn write(&self, message: &[u8], out: &Outside) -> Result<usize, i32> {
        let env = self.surroundings(out);
        out.clock.tick();
        let pass = || match env.write(message) {
            0 => Ok(message.len()),
            errno => Err(errno),
        };
        let (head, body) = message.split_at(HEADER);
        self.host.outgoing(&env, (head, message.len()), || Cow::Borrowed(body), pass)
    }
}

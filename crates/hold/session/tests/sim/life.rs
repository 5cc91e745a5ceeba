//! One generation: the daemon with the session in its process, driven as the shim drives it
//! (crates/hold/shim/src/device.rs), with an instant for its death between any two steps.

use super::daemon::{Daemon, Flavour, Outcome};
use super::disk::Disk;
use super::kernel::Kernel;
use super::memory::{Clock, Died, Ended, Rng, Words};
use belay_oplog::{Capacity, Oplog};
use belay_recorder::control::{Instant, options};
use belay_recorder::{Blame, Layout, MAX_REPLY, Slot, Store};
use belay_session::{Direct, Incoming, Outgoing, Phase, Session, Work};
use belay_wire::errno::ENOENT;
use belay_wire::{Opcode, Request, get_u64};
use std::cell::RefCell;
use std::rc::Rc;

/// What outlives a daemon.
pub struct Outside {
    pub options: u64,
    pub kernel: Rc<RefCell<Kernel>>,
    pub disk: Rc<RefCell<Disk>>,
    pub memory: Words,
    pub layout: Layout,
    pub oplog: Capacity,
    pub clock: Rc<Clock>,
    pub time: u64,
    /// The disk as of the last checkpoint, and how many there were.
    pub image: Rc<RefCell<Disk>>,
    pub epoch: u64,
    /// The last epoch that outlives a loss of power.
    pub durable: u64,
    /// A message that was read from the kernel and not yet taken.
    pub in_hand: Option<Vec<u8>>,
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
    pub session: Session<Words>,
    pub daemon: Daemon,
    pending: bool,
    /// A checkpoint is due.
    due: bool,
    collected: bool,
    copies: bool,
    direct: Direct,
    /// A slot was freed without the session.
    freed: bool,
    threads: Vec<Thread>,
}

enum Before {
    Deliver(Vec<u8>),
    Read,
    Again,
}

impl Life {
    pub fn new(out: &Outside, generation: u32, flavour: Flavour, threads: usize) -> Self {
        let store = Store::new(out.memory.clone(), out.layout);
        let mut session = Session::attach_with(store, generation, out.options).expect("whole");
        session.set_epochs(out.epoch, out.durable);
        if out.options & options::EPOCH != 0 {
            let log = Oplog::open(out.memory.clone(), out.layout.words, out.oplog, out.epoch);
            session.keep_log(log.expect("the op-log")).expect("the op-log");
        }
        session.control().reach(Instant::Attached, out.time + 1);
        let daemon = Daemon::new(generation, flavour, out.disk.clone(), out.clock.clone());
        Self {
            daemon,
            pending: generation > 0,
            due: false,
            collected: generation == 0,
            copies: session.keeps_copies(),
            direct: Direct::default(),
            freed: false,
            threads: (0..threads).map(|_| Thread::Idle).collect(),
            session,
        }
    }

    /// Slots that sleeping threads have claimed.
    pub fn claimed(&self) -> usize {
        self.threads.iter().filter(|t| matches!(t, Thread::Blocked(Some(_)))).count()
    }

    fn can_run(&self, thread: &Thread, kernel: &Kernel) -> bool {
        match thread {
            Thread::Blocked(_) => kernel.is_readable(),
            _ => true,
        }
    }

    /// What a host does about checkpoints besides the requests.
    pub fn checkpoints(&mut self, out: &mut Outside, rng: &mut Rng, waiting: bool) {
        if out.durable + 1 < out.epoch && (waiting || rng.chance(20)) {
            out.durable = out.epoch - 1; // the commit is done
            self.session.set_durable(out.durable);
            self.pending |= !self.session.is_quiet();
        }
        if rng.chance(3) {
            self.due = true; // begun by a thread that is awake
            self.pending = true;
        }
        if self.session.take_kick() {
            let kick = self.session.kick_message();
            out.kernel.borrow_mut().write(&kick);
        }
    }

    pub fn is_idle(&self) -> bool {
        self.session.is_quiet()
            && self.threads.iter().all(|t| matches!(t, Thread::Idle | Thread::Blocked(_)))
    }

    /// Lets one thread take one step. `false` if none did anything.
    pub fn step(&mut self, out: &mut Outside, rng: &mut Rng) -> bool {
        let mut order: Vec<usize> = (0..self.threads.len()).collect();
        let n = order.len();
        for i in 0..n {
            order.swap(i, i + rng.below(n - i));
        }
        for i in order {
            if !self.can_run(&self.threads[i], &out.kernel.borrow()) {
                continue;
            }
            let thread = std::mem::replace(&mut self.threads[i], Thread::Idle);
            let (thread, acted) = self.thread_step(thread, out);
            self.threads[i] = thread;
            if acted {
                return true;
            }
        }
        false
    }

    fn thread_step(&mut self, thread: Thread, out: &mut Outside) -> (Thread, bool) {
        match thread {
            Thread::Idle => match self.before_read(out) {
                Before::Deliver(message) => (Thread::Busy(message), true),
                Before::Again => (Thread::Idle, true),
                Before::Read => {
                    let settling = self.session.phase() == Phase::Settling && self.pending;
                    let settling = settling || self.session.is_awaiting();
                    if settling && !out.kernel.borrow().is_readable() {
                        return (Thread::Idle, false); // poll(2) with a timeout
                    }
                    let slot = self.copies.then(|| self.session.claim_slot().expect("no slot"));
                    (Thread::Blocked(slot), true)
                }
            },
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
                    self.outgoing(&note, out);
                }
                if self.outgoing(&reply, out) != 0 {
                    self.daemon.refused(opcode, &reply);
                }
                (Thread::Idle, true)
            }
        }
    }

    fn read(&mut self, slot: Option<Slot>, out: &mut Outside) -> Thread {
        let mut message = out.kernel.borrow_mut().read().unwrap();
        if let Some(slot) = slot {
            let (at, max) = self.session.store().slot_copy(slot);
            assert!(message.len() <= max);
            out.memory.fill(at, &message);
        }
        out.in_hand = Some(message.clone());
        out.clock.tick();
        if std::mem::take(&mut self.freed) {
            self.session.reap();
        }
        let taken = self.session.on_request(&mut message, slot, out.time);
        out.in_hand = None;
        if taken == Incoming::Taken {
            self.pending = !self.session.is_quiet();
        } else {
            self.session.let_go(&self.direct);
        }
        out.clock.tick();
        if taken == Incoming::Taken {
            return Thread::Idle;
        }
        let len = Request::parse(&message).unwrap().header.len as usize;
        message.truncate(len);
        Thread::Busy(message)
    }

    fn before_read(&mut self, out: &mut Outside) -> Before {
        if !self.pending {
            return Before::Read;
        }
        if !self.collected {
            self.collected = true;
            self.collect(out);
        }
        out.clock.tick();
        let due = self.due || self.session.wants_checkpoint();
        if due && out.durable + 1 == out.epoch && self.session.begin_checkpoint(out.time) {
            self.due = false;
        }
        if self.session.is_rolling_forward() && out.durable + 1 == out.epoch {
            self.session.want_cut();
        }
        let work = self.session.work(out.time);
        let kick = self.session.take_kick();
        self.pending = !self.session.is_quiet();
        out.clock.tick();
        if kick {
            let kick = self.session.kick_message();
            out.kernel.borrow_mut().write(&kick);
        }
        match work {
            Some(Work::Deliver(message)) => Before::Deliver(message),
            Some(Work::DeliverWith(mut message, data)) => {
                message.extend(data.to_vec(&out.memory));
                Before::Deliver(message)
            }
            Some(Work::Answer(message)) => {
                out.clock.tick();
                out.kernel.borrow_mut().write(&message);
                out.clock.tick();
                self.session.on_delivered(get_u64(&message, 8).unwrap());
                self.pending = !self.session.is_quiet() || self.session.phase() == Phase::Settling;
                Before::Again
            }
            Some(Work::Seal) => {
                assert!(!self.daemon.dirty, "the epoch ends, and not all is written");
                if !self.session.prepare_cut() {
                    return Before::Again;
                }
                out.clock.tick();
                *out.image.borrow_mut() = out.disk.borrow().clone();
                out.epoch += 1;
                out.clock.tick();
                self.session.sealed(out.epoch);
                self.pending = !self.session.is_quiet();
                Before::Again
            }
            Some(Work::Retire) => {
                // It writes all that it holds and ends, and the supervisor ends the epoch.
                self.session.control().set_retiring(self.daemon.generation);
                out.clock.tick();
                *out.image.borrow_mut() = out.disk.borrow().clone();
                out.epoch += 1;
                std::panic::resume_unwind(Box::new(Ended))
            }
            None => Before::Read,
        }
    }

    /// Takes what was in flight at the crash; the first new request ends it.
    fn collect(&mut self, out: &mut Outside) {
        while out.kernel.borrow().is_readable() {
            let slot = self.copies.then(|| self.session.claim_slot().expect("no slot"));
            let mut message = out.kernel.borrow_mut().read().unwrap();
            if let Some(slot) = slot {
                out.memory.fill(self.session.store().slot_copy(slot).0, &message);
            }
            out.in_hand = Some(message.clone());
            out.clock.tick();
            let request = Request::parse(&message).unwrap();
            let aside = !request.opcode().expects_reply();
            let resent = request.is_resent();
            let taken = self.session.on_request(&mut message, slot, out.time);
            out.in_hand = None;
            if taken == Incoming::Deliver {
                self.session.pass_on(&message);
            }
            if !resent && !aside {
                return;
            }
        }
    }

    fn outgoing(&mut self, message: &[u8], out: &mut Outside) -> i32 {
        let unique = get_u64(message, 8).unwrap();
        let head = &message[..message.len().min(MAX_REPLY)];
        out.clock.tick();
        let taken = self.direct.take(unique);
        if let Some(expected) = taken
            && !self.pending
        {
            let store = self.session.store();
            assert_eq!(expected.broken(head, &message[16..]), None, "a sound daemon");
            expected.replying(store.memory(), store.layout(), head, &message[16..]);
            let errno = out.kernel.borrow_mut().write(message);
            out.clock.tick();
            expected.delivered(store.memory(), store.layout());
            self.freed = true;
            return errno;
        }
        let outgoing = self.session.on_reply(head, || message[16..].into(), taken.is_some());
        let slot = self.session.take_sending();
        let kick = self.session.take_kick();
        let settling = self.session.phase() == Phase::Settling;
        self.pending = settling || !self.session.is_quiet();
        out.clock.tick();
        let write = |message: &[u8]| out.kernel.borrow_mut().write(message);
        let errno = match outgoing {
            Outgoing::Pass => write(message),
            Outgoing::PassKept => {
                let errno = write(message);
                out.clock.tick();
                self.delivered(slot, unique);
                errno
            }
            Outgoing::Replace(message) => self.replaced(message.as_bytes(), slot, unique, out),
            Outgoing::ReplaceLong(message) => self.replaced(&message, slot, unique, out),
            Outgoing::Swallow => 0,
            Outgoing::Refuse(errno) => errno,
            Outgoing::Fault(rule) => panic!("a sound daemon: {rule}"),
            Outgoing::Unrecordable => {
                std::panic::resume_unwind(Box::new(Died(Blame::Unknown)));
            }
        };
        if kick {
            out.clock.tick();
            let kick = self.session.kick_message();
            out.kernel.borrow_mut().write(&kick);
        }
        errno
    }

    /// As the shim does it: without the session, which hears of it with the next request.
    fn delivered(&mut self, slot: Option<Slot>, unique: u64) {
        match slot {
            Some(slot) if !self.copies => {
                let store = self.session.store();
                belay_recorder::free_slot(store.memory(), store.layout(), slot);
                self.freed = true;
            }
            _ => self.session.on_delivered(unique),
        }
    }

    fn replaced(
        &mut self,
        message: &[u8],
        slot: Option<Slot>,
        unique: u64,
        out: &mut Outside,
    ) -> i32 {
        let errno = out.kernel.borrow_mut().write(message);
        out.clock.tick();
        if errno == ENOENT {
            self.session.on_refused(unique);
        } else {
            self.delivered(slot, unique);
        }
        errno
    }
}

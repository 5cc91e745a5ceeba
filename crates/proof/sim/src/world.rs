//! Everything together: clients, kernel, daemons that die, and the oracle.

use super::audit;
use super::client::Client;
use super::daemon::Flavour;
use super::disk::{Disk, EEXIST, EIO, ENODATA};
use super::kernel::Kernel;
use super::life::{Life, Outside};
use super::memory::{Clock, Died, Ended, OPLOG, Rng, Words};
use super::ops::{Given, Op, Value};
use super::plain::Plain;
use super::surroundings::Sabotage;
use belay_recorder::control::{CheckpointSettings, Counter, Decision, FlushBy, Options};
use belay_recorder::{Blame, Capacity, Control, Layout};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Operations of each client; each works in a directory of its own.
    pub clients: Vec<Vec<Op>>,
    pub flavour: Flavour,
    pub resend: bool,
    pub threads: usize,
    /// Signals end reads, and threads are cancelled in them.
    pub signals: bool,
    pub seed: u64,
    /// Deaths: each in ticks after the one before.
    pub plan: Vec<u64>,
    /// Checkpoints are made.
    pub epochs: bool,
    /// How the daemon is made to write what it holds then.
    pub flush: FlushBy,
    /// Operations that the daemon dies of, by client and place: they fail with EIO, all others do
    /// not.
    pub poison: Vec<(usize, usize)>,
    /// What its op-log can hold.
    pub oplog: belay_oplog::Capacity,
    /// What is done wrong on purpose.
    pub sabotage: Option<Sabotage>,
}

impl Setup {
    /// One in which nobody dies, no checkpoint is made and nothing is wrong: one thread, and a
    /// kernel with RESEND.
    pub fn new(seed: u64, clients: Vec<Vec<Op>>, flavour: Flavour) -> Self {
        Self {
            clients,
            flavour,
            resend: true,
            threads: 1,
            signals: false,
            seed,
            plan: Vec::new(),
            epochs: false,
            flush: FlushBy::FsyncDir,
            poison: Vec::new(),
            oplog: OPLOG,
            sabotage: None,
        }
    }
}

/// What a run was like.
pub struct Ran {
    /// Ticks in all.
    pub ticks: u64,
    /// Lives after the first.
    pub crashes: u32,
    /// What was decided to fail.
    pub failed: Vec<Decision>,
}

type Job = Pin<Box<dyn Future<Output = ()>>>;

struct Oracle {
    plain: Plain,
    client: Client,
    tokens: Rc<RefCell<BTreeMap<u64, u64>>>,
    kernel: Rc<RefCell<Kernel>>,
    id: u64,
    poison: Vec<usize>,
    /// The disk as of the last checkpoint.
    image: Option<Rc<RefCell<Disk>>>,
}

impl Oracle {
    async fn run(mut self, ops: Vec<Op>, trees: Rc<RefCell<Vec<String>>>) {
        for (i, op) in ops.iter().enumerate() {
            self.one(i, op).await;
        }
        let (files, streams) = self.plain.open();
        assert_eq!(self.client.open_ones(), (files.clone(), streams.clone()));
        for fd in files {
            self.one(ops.len(), &Op::Close(fd)).await;
        }
        for dd in streams {
            self.one(ops.len(), &Op::ListRest { dd, room: 600, plus: false }).await;
            self.one(ops.len(), &Op::Closedir(dd)).await;
        }
        trees.borrow_mut().extend(self.plain.disk.tree());
    }

    async fn one(&mut self, i: usize, op: &Op) {
        self.kernel.borrow_mut().note(|| format!("client {} op {i}: {op:?}", self.id));
        let got = self.client.run(op).await;
        if self.poison.contains(&i) {
            assert_eq!(got, Err(EIO), "client {} op {i} {op:?}", self.id);
            return;
        }
        let want = self.plain.run(op);
        if let (Op::Fsync(_), Some(image), Ok(_)) = (op, &self.image, &got) {
            let top = format!("/c{}", self.id - 1);
            // Hidden names are links, too.
            let of_this = |tree: Vec<String>| -> Vec<String> {
                let lines = tree.into_iter().filter(|line| line.starts_with(&top));
                lines
                    .map(|line| {
                        let words = line.split(' ').filter(|word| !word.starts_with("links="));
                        words.collect::<Vec<_>>().join(" ")
                    })
                    .collect()
            };
            let image = image.borrow().tree().into_iter().filter(|line| !line.contains(".belay-"));
            assert_eq!(of_this(image.collect()), of_this(self.plain.disk.tree()), "not safe");
        }
        if self.kernel.borrow().crashes > 0 && is_ambiguous(op, &want, &got) {
            return;
        }
        self.compare(&want, &got).unwrap_or_else(|| {
            panic!("client {} op {i} {op:?}: gave {got:?}, not {want:?}", self.id)
        });
    }

    fn compare(&self, want: &Given, got: &Given) -> Option<()> {
        match (want, got) {
            (
                Ok(Value::Node { who: token, mode, size, nlink }),
                Ok(Value::Node { who: nodeid, mode: m, size: s, nlink: n }),
            ) => {
                let token = token + (self.id << 32);
                self.identify(token, *nodeid);
                ((mode, size, nlink) == (m, s, n)).then_some(())
            }
            (Ok(Value::Expect { must, may }), Ok(Value::Names(names))) => {
                let names =
                    names.iter().filter(|name| name[..] != b"."[..] && name[..] != b".."[..]);
                let names: Vec<_> = names.cloned().collect();
                let set: std::collections::BTreeSet<_> = names.iter().cloned().collect();
                (set.len() == names.len() && set.is_superset(must) && set.is_subset(may))
                    .then_some(())
            }
            _ => (want == got).then_some(()),
        }
    }

    /// One file is one node, and one node is one file, as long as the kernel knows it.
    fn identify(&self, token: u64, nodeid: u64) {
        let mut kernel = self.kernel.borrow_mut();
        let mut tokens = self.tokens.borrow_mut();
        if let Some(old) = tokens.get(&token).copied().filter(|old| *old != nodeid) {
            let same = kernel.inodes.get(&old).is_some_and(|inode| inode.token == Some(token));
            assert!(!same, "file {token:#x} is node {nodeid:#x} and {old:#x} at one time");
        }
        tokens.insert(token, nodeid);
        let Some(inode) = kernel.inodes.get_mut(&nodeid) else { return };
        let known = *inode.token.get_or_insert(token);
        assert_eq!(known, token, "node {nodeid:#x} is two files");
    }
}

/// Whether a request that was in flight at a crash may give this although it failed: nothing on
/// disk tells whether an attribute was there before it was removed or made.
fn is_ambiguous(op: &Op, want: &Given, got: &Given) -> bool {
    *got == Ok(Value::Unit)
        && match op {
            Op::RemoveXattr(..) => *want == Err(ENODATA),
            Op::SetXattr { flags: 1, .. } => *want == Err(EEXIST),
            _ => false,
        }
}

/// Runs a simulation; panics at the first thing that is wrong.
pub fn run(setup: &Setup) -> Ran {
    let trace = Rc::new(RefCell::new(Vec::new()));
    let result = catch_unwind(AssertUnwindSafe(|| run_inner(setup, &trace)));
    result.unwrap_or_else(|cause| {
        let lines = trace.borrow();
        for line in lines.iter().skip(lines.len().saturating_sub(60)) {
            eprintln!("{line}");
        }
        eprintln!(
            "failed with seed {} plan {:?} {:?} resend {} threads {}",
            setup.seed, setup.plan, setup.flavour, setup.resend, setup.threads
        );
        eprintln!(
            "again: BELAY_SEED={} BELAY_TRACE=1 cargo test -p belay-sim --test crash -- {}",
            setup.seed,
            std::thread::current().name().unwrap_or("")
        );
        resume_unwind(cause)
    })
}

fn run_inner(setup: &Setup, trace: &Rc<RefCell<Vec<String>>>) -> Ran {
    let copy_bytes = if setup.resend { 0 } else { 8192 };
    let layout = Layout::new(Capacity {
        nodes: 256,
        handles: 64,
        slots: 32,
        heap_words: 1 << 13,
        copy_bytes,
        effect_bytes: 0,
        epoch_bytes: 0,
    });
    let clock = Clock::new(&setup.plan);
    let disk = if setup.epochs { Disk::reusing() } else { Disk::new() };
    let kernel = Rc::new(RefCell::new(Kernel::new(setup.seed, setup.resend)));
    let resend = if setup.resend { Options::empty() } else { Options::NO_RESEND };
    let epoch = if setup.epochs { Options::EPOCH } else { Options::empty() };
    let out = Outside {
        options: resend | epoch,
        kernel: kernel.clone(),
        disk: Rc::new(RefCell::new(disk.clone())),
        memory: Words::new(&layout, setup.oplog, clock.clone()),
        layout,
        oplog: setup.oplog,
        clock,
        time: Cell::new(1),
        image: Rc::new(RefCell::new(disk.clone())),
        epoch: Cell::new(1),
        durable: Cell::new(0),
        in_hand: RefCell::default(),
        signals: setup.signals.then(|| RefCell::new(Rng::new(setup.seed ^ 0x516))),
        sabotage: setup.sabotage,
    };
    let wishes = CheckpointSettings { flush: setup.flush, ..CheckpointSettings::default() };
    Control::new(&out.memory.calm(), layout).set_checkpoint_settings(&wishes);
    // Deaths that are planned hit one request again and again, too; that is not what is tested
    // then.
    let after = if setup.poison.is_empty() { 100 } else { 2 };
    Control::new(&out.memory.calm(), layout).set_poison_after(after);
    let trees = Rc::new(RefCell::new(Vec::new()));
    let tokens = Rc::new(RefCell::new(BTreeMap::new()));
    let mut jobs: Vec<Job> = Vec::new();
    for (i, ops) in setup.clients.iter().enumerate() {
        let id = i as u64 + 1;
        let oracle = Oracle {
            plain: Plain::new(id, setup.flavour.links),
            client: Client::new(kernel.clone(), id),
            tokens: tokens.clone(),
            kernel: kernel.clone(),
            id,
            poison: setup.poison.iter().filter(|(c, _)| *c == i).map(|(_, op)| *op).collect(),
            image: setup.epochs.then(|| out.image.clone()),
        };
        jobs.push(Box::pin(oracle.run(ops.clone(), trees.clone())));
    }
    let mut rng = Rng::new(setup.seed ^ 0xabcd);
    let mut crashes = 0;
    let mut life: Option<Life> = None;
    let mut stalled = 0;
    let mut ended = false;
    let calm = out.memory.calm();
    let supervisor = Control::new(&calm, layout);
    let mut nudges = 0;
    loop {
        // As the supervisor does it: it has the mount asked for something, if nobody could be woken
        // otherwise.
        if nudges != supervisor.nudges_asked() && kernel.borrow_mut().has_room_for_nudge() {
            nudges = supervisor.nudges_asked();
            kernel.borrow_mut().nudge();
        }
        kernel.borrow_mut().trace.drain(..).for_each(|line| trace.borrow_mut().push(line));
        let mut waiting = Context::from_waker(Waker::noop());
        jobs.retain_mut(|job| job.as_mut().poll(&mut waiting).is_pending());
        let step = catch_unwind(AssertUnwindSafe(|| {
            let life = life.get_or_insert_with(|| {
                let life = Life::new(&out, crashes, setup.flavour, setup.threads);
                // Every other life knows one name alone: a larger table loses names by chance.
                let parity = setup.seed + setup.plan.iter().sum::<u64>() + u64::from(crashes);
                if parity.is_multiple_of(2) {
                    life.host.session().know_names(1);
                }
                life
            });
            if setup.epochs {
                life.checkpoints(&out, &mut rng, stalled > 3, !jobs.is_empty());
            }
            let acted = life.step(&out, &mut rng);
            (acted, life.is_idle())
        }));
        match step {
            Ok((true, _)) => stalled = 0,
            Ok((false, idle)) => {
                let quiet = idle && kernel.borrow().is_idle() && jobs.is_empty();
                if quiet && ended {
                    break;
                }
                if quiet {
                    ended = true;
                    kernel.borrow_mut().shrink(100);
                    kernel.borrow_mut().shrink(100);
                    kernel.borrow_mut().shrink(100);
                    continue;
                }
                stalled += 1;
                out.time.set(out.time.get() + 20_000_000);
                assert!(
                    stalled < 20,
                    "nothing moves: {}; {}",
                    kernel.borrow().waits_for(),
                    life.as_ref().map(Life::describe).unwrap_or_default()
                );
            }
            Err(cause) if cause.is::<Died>() || cause.is::<Ended>() => {
                let blame = cause.downcast_ref::<Died>().map_or(Blame::Unknown, |died| died.0);
                Control::new(&out.memory.calm(), layout).set_blame(crashes, blame);
                crashes += 1;
                // A daemon that writes at its end only ends for each checkpoint.
                let most = if setup.flush == FlushBy::Restart { 2000 } else { 100 };
                assert!(crashes < most, "it dies for ever");
                trace.borrow_mut().push(format!("*** crash {crashes} at {}", out.clock.now()));
                life = None;
                if setup.epochs {
                    *out.disk.borrow_mut() = out.image.borrow().clone();
                }
                out.disk.borrow_mut().purge(|_| false);
                kernel.borrow_mut().crash(out.in_hand.take().as_deref());
                // As the supervisor does it.
                supervisor.clear_instants();
                supervisor.raise_fence(crashes);
                supervisor.set_held(crashes);
                out.time.set(out.time.get() + 1_000_000);
                if cause.is::<Died>() {
                    out.clock.arm();
                }
            }
            Err(cause) => resume_unwind(cause),
        }
    }
    let life = life.expect("alive");
    let mut want = trees.take();
    let mut got = out.disk.borrow().tree();
    want.sort();
    got.sort();
    assert_eq!(got, want, "the tree on disk");
    audit::check(&out, &life, crashes > 0);
    let control = Control::new(&out.memory, layout);
    let mut failed = control.decisions_since(0);
    failed.retain(|decision| decision.errno != 0);
    assert_eq!(control.counter(Counter::Poisoned), setup.poison.len() as u64);
    Ran { ticks: out.clock.now(), crashes, failed }
}

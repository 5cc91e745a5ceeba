//! What is simulated again and again, each time with another seed.

use crate::daemon::Flavour;
use crate::disk::EXCHANGE;
use crate::generate::random_ops;
use crate::memory::Rng;
use crate::ops::Op;
use crate::world::{Ran, Setup, run};
use belay_host::splice::SHORT;
use belay_oplog::Capacity;
use belay_recorder::control::FlushBy;
use serde::Serialize;

/// Daemons of several kinds: with inode numbers of their own, without, and without links.
pub const FLAVOURS: [Flavour; 3] = [
    Flavour { numbered: false, links: true, deadly: None, hands_over: false, splices: false },
    Flavour { numbered: true, links: true, deadly: None, hands_over: false, splices: false },
    Flavour { numbered: false, links: false, deadly: None, hands_over: false, splices: false },
];

/// Operations of one to three clients, on a daemon, kernel and number of threads that the seed
/// chooses. Nobody dies.
pub fn operations(seed: u64, ops: usize) -> Setup {
    let mut setup = undisturbed(seed, ops);
    let mut rng = disturb(&mut setup);
    setup.clients.iter_mut().flatten().for_each(|op| lengthen(op, &mut rng));
    setup
}

/// The same with short messages, which are read, and without signals.
pub fn undisturbed(seed: u64, ops: usize) -> Setup {
    let mut rng = Rng::new(seed);
    let clients = 1 + rng.below(3);
    let clients = (0..clients).map(|i| random_ops(&mut rng, &format!("c{i}"), ops)).collect();
    let flavour = Flavour { hands_over: rng.chance(30), ..*rng.pick(&FLAVOURS) };
    let (resend, threads) = (rng.chance(60), 1 + rng.below(3));
    Setup { resend, threads, ..Setup::new(seed, clients, flavour) }
}

/// Signals end reads, and the daemon splices, if the seed says so. Gives what else is to be chosen
/// by.
fn disturb(setup: &mut Setup) -> Rng {
    let mut rng = Rng::new(setup.seed ^ 0x99);
    setup.flavour.splices = rng.chance(40);
    setup.signals = rng.chance(30);
    rng
}

/// Some WRITEs are so long that their data stay in the pipe of a daemon that splices.
pub fn lengthen(op: &mut Op, rng: &mut Rng) {
    if let Op::Write { data, .. } = op
        && rng.chance(30)
    {
        *data = data.repeat(SHORT.div_ceil(data.len()));
    }
}

/// The same with checkpoints, on a daemon that loses what it has not written when it dies.
pub fn checkpoints(seed: u64) -> Setup {
    let mut rng = Rng::new(seed);
    let clients = 1 + rng.below(3);
    let clients = (0..clients).map(|i| random_ops(&mut rng, &format!("c{i}"), 80)).collect();
    // Links that are one node of a daemon without inode numbers: after a crash nothing tells that a
    // further name is one of a file whose other name has gone.
    let (numbered, links) = if rng.chance(70) { (false, true) } else { (rng.chance(30), false) };
    let flavour = Flavour { numbered, links, hands_over: rng.chance(30), ..FLAVOURS[0] };
    let (resend, threads) = (rng.chance(60), 1 + rng.below(3));
    let mut setup = Setup { resend, threads, epochs: true, ..Setup::new(seed, clients, flavour) };
    disturb(&mut setup);
    setup
}

/// Without inode numbers nothing tells after a crash which of two files is which: takes out what
/// would need it.
fn spare_what_nothing_tells(setup: &mut Setup) {
    if setup.flavour.numbered {
        for ops in &mut setup.clients {
            ops.retain(|op| !matches!(op, Op::Rename(_, _, EXCHANGE) | Op::Link(..)));
        }
    }
}

/// Random operations with up to eleven crashes at random steps.
pub fn crashes(seed: u64) -> Setup {
    with_crashes(operations(seed, 60))
}

/// These, with up to eleven crashes at random steps.
pub fn with_crashes(mut setup: Setup) -> Setup {
    let seed = setup.seed;
    let mut rng = Rng::new(seed + 77);
    let spread = *rng.pick(&[200, 1000, 3000]);
    setup.plan = (0..rng.below(12)).map(|_| 1 + rng.below(spread) as u64).collect();
    spare_what_nothing_tells(&mut setup);
    setup
}

/// Runs it: nothing came out otherwise when it was replayed.
pub fn run_alike(setup: &Setup) -> Ran {
    let ran = run(setup);
    let mut differ = ran.failed.iter().filter(|decision| decision.text.contains("from the op-log"));
    let told = format!("seed {} plan {:?}", setup.seed, setup.plan);
    assert!(differ.next().is_none(), "{told}: {:?}", ran.failed);
    ran
}

/// What is done with a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// Random operations, and crashes at random steps.
    Crashes,
    /// Short random sequences, each once for every step at which the daemon can die.
    EveryStep,
    /// Operations, checkpoints and a daemon that loses what it has not written, with crashes at
    /// random steps.
    RollForward,
    /// The same, short, once for every step at which the daemon can die.
    EveryStepOfRollForward,
    /// The same where the op-log is full again and again.
    FullLog,
    /// Daemons that write at their end only, and die again and again while they are given what was
    /// answered.
    Restarts,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Crashes,
        Self::EveryStep,
        Self::RollForward,
        Self::EveryStepOfRollForward,
        Self::FullLog,
        Self::Restarts,
    ];

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crashes => "crashes",
            Self::EveryStep => "every-step",
            Self::RollForward => "roll-forward",
            Self::EveryStepOfRollForward => "every-step-of-roll-forward",
            Self::FullLog => "full-op-log",
            Self::Restarts => "restarts",
        }
    }

    /// Runs it with this seed; panics at the first thing that is wrong.
    pub fn run(self, seed: u64) -> Tally {
        let mut tally = Tally::default();
        match self {
            Self::Crashes => {
                let setup = crashes(seed);
                tally.add(&setup, &run(&setup));
            }
            Self::EveryStep => {
                let mut setup = operations(seed, 10);
                spare_what_nothing_tells(&mut setup);
                at_every_step(setup, run, &mut tally);
            }
            Self::RollForward => {
                let (setup, ticks) = measured(checkpoints(seed));
                let mut rng = Rng::new(seed ^ 0x77);
                let deaths = 1 + rng.below(3);
                let plan = (0..deaths).map(|_| at_random(&mut rng, ticks)).collect();
                let setup = Setup { plan, ..setup };
                tally.add(&setup, &run_alike(&setup));
            }
            Self::EveryStepOfRollForward => {
                let mut setup = checkpoints(seed);
                setup.clients.truncate(1);
                setup.clients.iter_mut().for_each(|ops| ops.truncate(20));
                at_every_step(setup, run_alike, &mut tally);
            }
            Self::FullLog => {
                let oplog = Capacity { record_bytes: 12 << 10, pages: 8 };
                let (setup, ticks) = measured(Setup { oplog, ..checkpoints(seed) });
                let mut rng = Rng::new(seed ^ 0x55);
                let deaths = 1 + rng.below(4);
                let spread = *rng.pick(&[100, 1000, ticks]);
                let first = at_random(&mut rng, ticks);
                let more = (1..deaths).map(|_| at_random(&mut rng, spread));
                let setup = Setup { plan: std::iter::once(first).chain(more).collect(), ..setup };
                tally.add(&setup, &run_alike(&setup));
            }
            Self::Restarts => {
                let (setup, ticks) =
                    measured(Setup { flush: FlushBy::Restart, ..checkpoints(seed) });
                let mut rng = Rng::new(seed ^ 0x33);
                let spread = *rng.pick(&[60, 200, 600]);
                let first = at_random(&mut rng, ticks);
                let more = (0..12).map(|_| at_random(&mut rng, spread));
                let setup = Setup { plan: std::iter::once(first).chain(more).collect(), ..setup };
                tally.add(&setup, &run_alike(&setup));
            }
        }
        tally
    }
}

fn at_random(rng: &mut Rng, ticks: u64) -> u64 {
    1 + rng.below(ticks as usize) as u64
}

/// With how many steps it takes when nobody dies.
fn measured(setup: Setup) -> (Setup, u64) {
    let ticks = run(&setup).ticks;
    (setup, ticks)
}

fn at_every_step(mut setup: Setup, run: fn(&Setup) -> Ran, tally: &mut Tally) {
    setup.plan.clear();
    let calm = run(&setup);
    tally.add(&setup, &calm);
    for step in 1..=calm.ticks {
        setup.plan = vec![step];
        let ran = run(&setup);
        assert!(ran.crashes > calm.crashes, "it does not die at step {step}");
        tally.add(&setup, &ran);
    }
}

/// What was simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// So many were run.
    pub simulations: u64,
    /// Operations of applications whose results were compared.
    pub operations: u64,
    /// Deaths of the daemon, and ends for a checkpoint.
    pub crashes: u64,
    /// Steps at which it could have died.
    pub steps: u64,
}

impl Tally {
    fn add(&mut self, setup: &Setup, ran: &Ran) {
        self.simulations += 1;
        self.operations += setup.clients.iter().map(|ops| ops.len() as u64).sum::<u64>();
        self.crashes += u64::from(ran.crashes);
        self.steps += ran.ticks;
    }
}

impl belay_seeds::Tally for Tally {
    fn operations(&self) -> u64 {
        self.operations
    }

    fn join(&mut self, other: &Self) {
        self.simulations += other.simulations;
        self.operations += other.operations;
        self.crashes += other.crashes;
        self.steps += other.steps;
    }
}

impl belay_seeds::Scenario for Scenario {
    type Tally = Tally;

    fn run(self, seed: u64) -> Result<Tally, String> {
        // It says itself what is wrong, and panics.
        Ok(Self::run(self, seed))
    }
}

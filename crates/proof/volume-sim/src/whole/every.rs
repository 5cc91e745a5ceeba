//! Short histories, each once for every step at which something can end: the power at each write,
//! the stores' process at each write, and the others at each store to the memory.

use super::history::{Deed, History, Oracle};
use super::request::Module;
use super::{Lives, Stop, Whole, told};
use crate::Random;
use crate::outcome::Outcome;
use crate::posix::Act;
use belay_cache::Capacity;
use belay_cache::layout::CELL;
use rand::{Rng, SeedableRng};
use std::cell::RefCell;
use std::time::Duration;

/// What is done in a short history besides its beginning.
const DEEDS: usize = 12;
/// Stores to the beginning of a cell are those of the heads of records.
const HEAD_STORES: usize = 8;
/// Of the other stores to cells and frames, one of so many is one at which somebody dies.
const PAGE_STORES: usize = 97;

/// Something to work with: a directory, and files of which one is synced.
fn beginning(random: &mut Random) -> Vec<Deed> {
    let mut data = |length| vec![random.random_range(1..=u8::MAX); length];
    vec![
        Deed::Act(Act::Mkdir("a".to_owned())),
        Deed::Act(Act::Create("b".to_owned())),
        Deed::Act(Act::Create("a/c".to_owned())),
        Deed::Act(Act::Write("b".to_owned(), 100, data(5000))),
        Deed::Sync("b".to_owned()),
        Deed::Act(Act::Write("a/c".to_owned(), 0, data(9000))),
    ]
}

/// A volume, and what is done to it again and again.
struct Short {
    volume: Whole,
    history: History,
    outcome: Outcome,
}

impl Short {
    fn new(seed: u64) -> Result<Self, String> {
        let mut volume = Whole::new(seed, Capacity { frames: 160, slots: 40 }, None)?;
        // Checkpoints are taken where the history says so.
        volume.tick = Duration::ZERO;
        let mut random = Random::seed_from_u64(seed ^ 0x5eed);
        let mut history =
            Oracle::new()?.go_on(beginning(&mut random), DEEDS, (4, 20), &mut random)?;
        history.deeds.push(Deed::Checkpoint);
        history.told.push(Ok(Vec::new()));
        history.states.extend(history.states.last().cloned());
        Ok(Self { volume, history, outcome: Outcome::default() })
    }

    /// Runs it once more. `prepare` says what happens; with `share`, the power fails.
    fn run(
        &mut self,
        seed: u64,
        share: Option<u32>,
        prepare: impl Fn(&mut Whole, &mut Lives) -> Result<(), Stop>,
    ) -> Result<(), String> {
        let mut volume = self.volume.copy(seed);
        let history = &self.history;
        let mut run = || {
            let mut lives = volume.begin()?;
            prepare(&mut volume, &mut lives)?;
            let mut done = 0;
            let ran = volume.life(&mut lives, history, &mut done);
            match ran.and_then(|()| volume.finish(&mut lives, history)) {
                Err(Stop::Power) if share.is_some() => {
                    (lives, _) = volume.recover(history, done + 1, share)?;
                    volume.work_on(&mut lives)
                }
                ran => ran,
            }
        };
        let ran = run();
        self.outcome.join(&volume.outcome);
        ran.map_err(told)
    }
}

impl Whole {
    /// A volume that has lost its power can be worked with.
    fn work_on(&mut self, lives: &mut Lives) -> Result<(), Stop> {
        let name = "made after it".to_owned();
        for act in [Act::Create(name.clone()), Act::Write(name, 100, vec![7; 5000])] {
            let told = Ok(Vec::new());
            self.act(lives, &act, Some(&told))?;
        }
        self.settle(lives)?;
        self.check()
    }
}

/// The power fails at every write, and of what was not flushed nothing, all, or any part is there;
/// and the process of the stores dies there.
///
/// # Errors
/// What is wrong.
pub fn every_write(seed: u64) -> Result<Outcome, String> {
    let mut short = Short::new(seed)?;
    let mut step = 0;
    loop {
        let mut is_over = true;
        for share in [Some(0), Some(100), Some(50), None] {
            let is_cut = short.volume_cut(seed, step, share)?;
            is_over &= !is_cut;
        }
        if is_over {
            return Ok(short.outcome);
        }
        step += 1;
    }
}

impl Short {
    /// Ends it at that write; whether there is one.
    fn volume_cut(&mut self, seed: u64, step: u64, share: Option<u32>) -> Result<bool, String> {
        let before = (self.outcome.power_failures, self.outcome.store_deaths);
        let ran = self.run(seed ^ step, share, |volume, _| {
            volume.fails.set(share.is_some());
            volume.power.end_at(Some(volume.power.steps() + step));
            Ok(())
        });
        ran.map_err(|why| match share {
            Some(share) => format!("power cut at write {step}, {share} of 100 blocks left: {why}"),
            None => format!("the stores die at write {step}: {why}"),
        })?;
        Ok(before != (self.outcome.power_failures, self.outcome.store_deaths))
    }
}

/// The namespace module dies at every store to the memory, and the cache at every one of its own.
///
/// # Errors
/// What is wrong.
pub fn every_store(seed: u64) -> Result<Outcome, String> {
    let mut short = Short::new(seed)?;
    let traces = RefCell::new(None);
    short.run(seed, None, |volume, lives| {
        let module = volume.begin_traced(&lives.stores)?;
        let cache = volume.memory.another().traced();
        *traces.borrow_mut() = Some((module.view().clone(), cache.clone()));
        *lives.module.borrow_mut() = module;
        lives.cache = volume.cache_with(&lives.stores, cache)?;
        Ok(())
    })?;
    let Some((module, cache)) = traces.take() else { return Err("nothing was traced".to_owned()) };
    let (cells, frames) = (short.volume.layout.cell_area, short.volume.layout.frames);
    let ends = |trace: Vec<usize>| -> Vec<u64> {
        let is_end = |(number, at): &(usize, usize)| {
            let is_head = (cells..frames).contains(at) && (at - cells) % CELL < HEAD_STORES;
            *at < cells || is_head || number % PAGE_STORES == 0
        };
        trace.into_iter().enumerate().filter(is_end).map(|(number, _)| number as u64).collect()
    };
    for left in ends(module.trace()) {
        let ran = short.run(seed, None, |volume, lives| {
            // As the one that was traced.
            let module: Module = volume.begin_module(&lives.stores)?;
            module.view().dies_after(Some(left));
            *lives.module.borrow_mut() = module;
            Ok(())
        });
        ran.map_err(|why| format!("the module dies at store {left}: {why}"))?;
    }
    for left in ends(cache.trace()) {
        let ran = short.run(seed, None, |_, lives| {
            lives.cache.view.dies_after(Some(left));
            Ok(())
        });
        ran.map_err(|why| format!("the cache dies at store {left}: {why}"))?;
    }
    Ok(short.outcome)
}

//! The last look at what dead generations have left, before anything is reissued: whoever starts
//! another process and ends, again and again, is never there when somebody looks, but for one that
//! is as new as the look.
//!
//! Invariant: what is killed here has the mark of a generation that is dead (see [`Lineage`]), so
//! it is nothing of a successor's.

use crate::fusermount::is_helper;
use crate::lineage::Lineage;
use crate::process::{MOST, Watched, descendants, is_over};
use signal_hook::consts::SIGKILL;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long the last looks may take while applications wait for them.
const LIMIT: Duration = Duration::from_secs(3);
/// The same at the end of a mount, which nobody waits for.
const LIMIT_AT_THE_END: Duration = Duration::from_secs(10);
/// How long the end of those is awaited that were killed at one look.
const DEATH: Duration = Duration::from_millis(20);
/// How many of the killed are named.
const NAMED: usize = 64;

/// What is to be quelled.
#[derive(Clone, Debug)]
pub(super) struct Quell {
    pub lineage: Lineage,
    /// All generations before this one are dead.
    pub before: u32,
    /// Belay's own processes: all that descends from them is looked at.
    pub belay: [u32; 2],
    /// What is below belay and none of the daemon's.
    pub except: Vec<u32>,
    /// These may live on.
    pub spared: Vec<u32>,
}

/// What one look has found.
#[derive(Debug, Default)]
struct Look {
    /// Those that lived, and were sent SIGKILL if that was allowed.
    alive: Vec<Struck>,
    /// The dead that nobody has waited for yet.
    dead: BTreeSet<u32>,
    /// There may be more: what goes while it is looked at may have started another that was not
    /// seen.
    missed: bool,
}

/// One that lived, and whether SIGKILL could be sent to it.
#[derive(Debug)]
struct Struck {
    process: Watched,
    is_struck: bool,
}

impl Quell {
    /// Kills what is left until a look finds nothing that another look could find more of. Gives
    /// the ids of some that it had to kill. What lives on is said. Applications wait for it, and
    /// somebody else reaps what has ended.
    pub(super) fn run(&self) -> Vec<u32> {
        self.run_for(LIMIT, || ())
    }

    /// The same for the thread that reaps, by `reap` after each look: a chain leaves thousands of
    /// dead in a second, and each of them makes a look take longer.
    pub(super) fn run_at_the_end(&self, reap: impl FnMut()) -> Vec<u32> {
        self.run_for(LIMIT_AT_THE_END, reap)
    }

    fn run_for(&self, limit: Duration, mut reap: impl FnMut()) -> Vec<u32> {
        let end = Instant::now() + limit;
        let (mut killed, mut known_dead) = (Vec::new(), BTreeSet::new());
        // Those that no signal ends, as they are over already.
        let mut over = BTreeSet::new();
        loop {
            let Look { alive, dead, missed } = self.look(&over, &known_dead);
            if alive.is_empty() && !missed {
                return killed;
            }
            if Instant::now() > end {
                tell(&alive);
                return killed;
            }
            known_dead = dead;
            let known_over = over.len();
            let (struck, spurned): (Vec<_>, Vec<_>) = alive.iter().partition(|one| one.is_struck);
            let has_no_thread = |one: &&&Struck| is_over(one.process.pid);
            over.extend(spurned.iter().filter(has_no_thread).map(|one| one.process.pid));
            let learnt = missed || over.len() > known_over;
            if struck.is_empty() && !alive.is_empty() && !learnt {
                // None of them is this user's to kill, so that looking on is of no use.
                tell(&alive);
                return killed;
            }
            let patience = Instant::now() + DEATH;
            for Struck { process, .. } in struck {
                let has_ended =
                    process.wait_end(patience.saturating_duration_since(Instant::now()));
                if !has_ended && is_over(process.pid) {
                    over.insert(process.pid);
                } else if killed.len() < NAMED && !killed.contains(&process.pid) {
                    killed.push(process.pid);
                }
            }
            reap();
        }
    }

    /// Looks at all that descends from belay, the newest first, and kills what is of a dead
    /// generation as soon as it is seen: one of a chain has ended when whoever looks has seen the
    /// others too.
    fn look(&self, over: &BTreeSet<u32>, known_dead: &BTreeSet<u32>) -> Look {
        let mut except = self.belay.to_vec();
        except.extend(&self.except);
        let mut found = descendants(&self.belay, &except);
        // Numbers go up, but for one step down in many thousands.
        found.sort_unstable_by_key(|pid| Reverse(*pid));
        let mut look = Look { missed: found.len() >= MOST, ..Look::default() };
        for pid in found.into_iter().filter(|pid| !self.spared.contains(pid)) {
            // By a descriptor first: the mark, seen after that, is of this process, or of nobody.
            let process = Watched::open(pid);
            let Ok(generation) = self.lineage.generation(pid) else {
                look.missed = true;
                continue;
            };
            let is_of_the_dead = generation.is_some_and(|of| of < self.before);
            if !is_of_the_dead || is_helper(pid) {
                continue;
            }
            match process {
                // What else may be asked of it takes a reader: a chain would be faster.
                Some(process) if !process.is_dead() && !over.contains(&pid) => {
                    let is_struck = process.signal(SIGKILL).is_ok();
                    look.alive.push(Struck { process, is_struck });
                }
                Some(_) => {
                    look.missed |= !known_dead.contains(&pid);
                    look.dead.insert(pid);
                }
                None => look.missed = true,
            }
        }
        look
    }
}

fn tell(alive: &[Struck]) {
    if alive.is_empty() {
        tracing::warn!(
            "a dead daemon's processes start each other faster than they can be ended, and may still have effects; end them \
             yourself"
        );
        return;
    }
    let pids: Vec<String> = alive.iter().take(8).map(|one| one.process.pid.to_string()).collect();
    tracing::warn!(
        "{} of a dead daemon's processes cannot be ended and may still have effects: {}; end them yourself",
        alive.len(),
        pids.join(", ")
    );
}

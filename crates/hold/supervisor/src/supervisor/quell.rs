//! The last look at what dead generations have left, before anything is reissued: whoever starts another process and ends, again
//! and again, is never there when somebody looks, but for one that is as new as the look.
//!
//! Invariant: what is killed here has the mark of a generation that is dead (see [`Lineage`]), so it is nothing of a successor's.

use crate::fusermount::is_helper;
use crate::lineage::Lineage;
use crate::process::{Watched, descendants, is_over};
use signal_hook::consts::SIGKILL;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long a last look may take. Applications wait for it.
const LIMIT: Duration = Duration::from_secs(3);
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

impl Quell {
    /// Kills what is left until a look finds nothing that another look could find more of. Gives the ids of some that it had to
    /// kill. What lives on is said.
    pub(super) fn run(&self) -> Vec<u32> {
        let end = Instant::now() + LIMIT;
        let (mut killed, mut known_dead) = (Vec::new(), BTreeSet::new());
        // Those that no signal ends, as they are over already.
        let mut over = BTreeSet::new();
        loop {
            let mut alive = Vec::new();
            let mut dead = BTreeSet::new();
            // What goes while it is looked at may have started another that was not seen.
            let mut missed = false;
            for pid in self.look(&mut missed) {
                match Watched::open(pid) {
                    // What else may be asked of it takes a reader: a chain would be faster.
                    Some(process) if !process.is_dead() && !over.contains(&pid) => {
                        alive.push(process);
                    }
                    Some(_) => {
                        missed |= !known_dead.contains(&pid);
                        dead.insert(pid);
                    }
                    None => missed = true,
                }
            }
            if alive.is_empty() && !missed {
                return killed;
            }
            if Instant::now() > end {
                if !alive.is_empty() {
                    tell(&alive);
                }
                return killed;
            }
            known_dead = dead;
            let mut struck = Vec::new();
            let known_over = over.len();
            for process in &alive {
                if process.signal(SIGKILL).is_ok() {
                    struck.push(process);
                } else if is_over(process.pid) {
                    over.insert(process.pid);
                }
            }
            let learnt = missed || over.len() > known_over;
            if struck.is_empty() && !alive.is_empty() && !learnt {
                // None of them is this user's to kill, so that looking on is of no use.
                tell(&alive);
                return killed;
            }
            let patience = Instant::now() + DEATH;
            for process in struck {
                let has_ended =
                    process.wait_end(patience.saturating_duration_since(Instant::now()));
                if !has_ended && is_over(process.pid) {
                    over.insert(process.pid);
                } else if killed.len() < NAMED && !killed.contains(&process.pid) {
                    killed.push(process.pid);
                }
            }
        }
    }

    fn look(&self, missed: &mut bool) -> Vec<u32> {
        let mut except = self.belay.to_vec();
        except.extend(&self.except);
        let mut found = descendants(&self.belay, &except);
        found.retain(|pid| {
            let generation = self.lineage.generation(*pid);
            *missed |= generation.is_err();
            !self.spared.contains(pid)
                && generation.is_ok_and(|of| of.is_some_and(|of| of < self.before))
                && !is_helper(*pid)
        });
        found
    }
}

fn tell(alive: &[Watched]) {
    let pids: Vec<String> = alive.iter().take(8).map(|process| process.pid.to_string()).collect();
    tracing::warn!(
        "{} of a dead daemon's processes cannot be ended and may still have effects: {}; end them yourself",
        alive.len(),
        pids.join(", ")
    );
}

//! Injects one fault after the other, each when the module has answered since the one before.

use super::super::code::{Code, Patient};
use super::Injection;
use super::table::{End, Shot};
use crate::interrupt::Stop;
use crate::killer;
use crate::target::{self, Target};
use anyhow::{Context, Result, ensure};
use belay_fixtures::{Fixture, Signal, process};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use std::time::{Duration, Instant};

/// So long is waited for a crash before there are more faults.
const ROUND: Duration = Duration::from_millis(300);
/// So many rounds of faults, after which the module is taken to survive them.
const ROUNDS: u32 = 30;
/// Bytes that are overwritten at a place, at most.
const BYTES: usize = 8;
/// When belay takes a process to hang; and how much before it can seem to be.
pub const HANG: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(200);
/// How long a successor may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is injected where.
pub struct Hunt<'a> {
    pub fixture: &'a Fixture,
    pub code: &'a Code,
    pub injection: Injection,
    pub faults: usize,
    pub every: Duration,
    pub signals: &'a [Signal],
    /// No more than so many.
    pub limit: u64,
    pub stop: &'a Stop,
}

impl Hunt<'_> {
    /// Injects until it is enough; asks all others to stop then. Gives also why it could not go on.
    pub fn run(&self, seed: u64, begin: Instant) -> (Vec<Shot>, Option<String>) {
        let mut rng = ChaCha12Rng::seed_from_u64(seed ^ 0x7377_6966);
        let mut shots = Vec::new();
        let mut failed = None;
        while (shots.len() as u64) < self.limit {
            match self.one(&mut rng, begin) {
                Ok(Some(shot)) => shots.push(shot),
                Ok(None) if self.stop.asked() => break,
                Ok(None) => {}
                Err(why) => {
                    failed = Some(format!("{why:#}"));
                    break;
                }
            }
        }
        self.stop.ask();
        (shots, failed)
    }

    fn one(&self, rng: &mut ChaCha12Rng, begin: Instant) -> Result<Option<Shot>> {
        target::ask(self.fixture)?;
        let status = target::status(self.fixture)?;
        let Some(pid) = Target::Namespace.pid(&status) else { return Ok(None) };
        if status["state"] != "serving" || self.stop.wait(killer::pause(self.every, rng)) {
            return Ok(None);
        }
        let at = Instant::now();
        let Some((rounds, end)) = self.inject(pid, rng)? else { return Ok(None) };
        let died = Instant::now();
        target::ask(self.fixture).context("asking the successor")?;
        let dark = died.elapsed();
        ensure!(dark < PATIENCE, "the successor has taken {dark:?}");
        Ok(Some(Shot {
            at_s: at.duration_since(begin).as_secs_f64(),
            rounds,
            end,
            crash_us: u64::try_from(died.duration_since(at).as_micros()).unwrap_or(u64::MAX),
            dark_us: u64::try_from(dark.as_micros()).unwrap_or(u64::MAX),
        }))
    }

    /// Gives how many rounds it took, and how the process has ended; nothing if it had ended
    /// before.
    fn inject(&self, pid: u32, rng: &mut ChaCha12Rng) -> Result<Option<(u32, End)>> {
        if self.injection == Injection::Kill {
            let signal = *self.signals.choose(rng).context("no signals to kill with")?;
            return Ok(target::kill(pid, signal)?.map(|_| (1, End::Crashed)));
        }
        // It may have ended since.
        let Ok(patient) = Patient::open(pid, self.code) else { return Ok(None) };
        if self.injection == Injection::Overwrite {
            return self.overwrite(pid, &patient, rng);
        }
        for round in 1..=ROUNDS {
            for _ in 0..self.faults {
                // False if it has run into one of them meanwhile.
                patient.trap(rng.random_range(0..self.code.instructions()));
            }
            if process::wait_for_exit(pid, ROUND)? {
                return Ok(Some((round, End::Crashed)));
            }
        }
        Ok(target::kill(pid, Signal::KILL)?.map(|_| (ROUNDS, End::Survived)))
    }

    /// What a few wrong bytes do is the question: there are no more of them.
    fn overwrite(
        &self,
        pid: u32,
        patient: &Patient<'_>,
        rng: &mut ChaCha12Rng,
    ) -> Result<Option<(u32, End)>> {
        for _ in 0..self.faults {
            let mut bytes = [0; BYTES];
            rng.fill(&mut bytes);
            let count = rng.random_range(1..=BYTES);
            patient.overwrite(rng.random_range(0..self.code.size()), &bytes[..count]);
        }
        let begin = Instant::now();
        if process::wait_for_exit(pid, HANG * 2)? {
            let hung = begin.elapsed() > HANG - LOOK;
            return Ok(Some((1, if hung { End::Hung } else { End::Crashed })));
        }
        Ok(target::kill(pid, Signal::KILL)?.map(|_| (1, End::Survived)))
    }
}

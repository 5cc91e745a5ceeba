//! `belay crash` and `belay restart`: deaths on purpose.

use super::mounts::{self, status_of};
use crate::cli::{Crash, Mount, Victim};
use crate::messages::{Out, say};
use anyhow::{Context, Result, bail};
use belay_supervisor::instances::Instance;
use belay_supervisor::process::signal_name;
use belay_supervisor::protocol::{Answer, Ask, Client};
use belay_supervisor::signals::defers;
use belay_supervisor::status::{State, Status};
use belay_supervisor::text::counted;
use belay_supervisor::threads;
use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::SIGSTOP;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A recovery that takes longer has failed, or the signal killed nobody.
const PATIENCE: Duration = Duration::from_secs(60);
/// Threads that ask a daemon that is to hang.
const ASKERS: usize = 4;
/// How often a daemon that is to hang is asked for something.
const ASKED: Duration = Duration::from_millis(50);
/// No hang is waited for longer than this.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Runs `belay crash`.
pub fn run(options: &Crash) -> Result<i32> {
    let (instance, status) = mounts::one(&options.state, &options.mount)?;
    let place = &status.shown();
    if options.process != Victim::Daemon {
        return crash_beside(options, &instance, place);
    }
    let mut blackouts = Vec::new();
    let mut next = Instant::now();
    let mut asked = false;
    for number in 1..=options.count {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next = (next + options.every).max(Instant::now());
        let ask = Ask::Crash { signal: options.signal };
        let is_deferred = |pid| defers(pid, options.signal).is_some();
        if !asked && (options.signal == SIGSTOP || status.daemon.pid.is_some_and(is_deferred)) {
            have_it_asked(status.place().unwrap_or_default());
            asked = true;
        }
        let (generation, blackout) = strike(&instance, place, &ask)?;
        blackouts.push(blackout);
        writeln!(
            Out,
            "{number}/{}: {}, generation {generation} serves, blackout {blackout} us",
            options.count,
            signal_name(options.signal)
        )?;
    }
    blackouts.sort_unstable();
    if let (true, Some(max)) = (blackouts.len() > 1, blackouts.last()) {
        let median = median(&blackouts);
        let crashes = counted(blackouts.len() as u64, "crash", "crashes");
        writeln!(Out, "{crashes}: blackout median {median} us, max {max} us")?;
    }
    Ok(0)
}

/// The process of a mount that is one of these.
fn process_of(status: &Status, victim: Victim) -> Option<u32> {
    let role = match victim {
        Victim::Daemon => return status.daemon.pid,
        Victim::Supervisor => return Some(status.supervisor.pid),
        Victim::Keeper => return Some(status.keeper.pid),
        Victim::Store => "store",
        Victim::Cache => "cache",
    };
    status.companions.iter().find(|one| one.role == role)?.pid
}

/// Kills a process beside the daemon so many times, and waits for the next each time. The daemon
/// serves on meanwhile.
fn crash_beside(options: &Crash, instance: &Instance, place: &str) -> Result<i32> {
    let name =
        options.process.to_possible_value().map_or_else(String::new, |it| it.get_name().into());
    let mut next = Instant::now();
    for number in 1..=options.count {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next = (next + options.every).max(Instant::now());
        let end = Instant::now() + PATIENCE;
        let find = || status_of(instance).and_then(|status| process_of(&status, options.process));
        let Some(pid) = find() else {
            bail!("{place}: it has no {name} process; see `belay status {place}`")
        };
        let begin = Instant::now();
        let signal =
            Signal::from_named_raw(options.signal).context("that signal cannot be sent")?;
        let victim = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no such process")?;
        kill_process(victim, signal).with_context(|| {
            format!("cannot send {} to process {pid}", signal_name(options.signal))
        })?;
        let successor = loop {
            match find().filter(|found| *found != pid) {
                Some(found) => break found,
                None if Instant::now() > end => bail!(
                    "{place}: no other {name} process within a minute; did the signal end process {pid}? see `belay status`"
                ),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        writeln!(
            Out,
            "{number}/{}: {}, {name} process {successor} in the place of {pid} after {} us",
            options.count,
            signal_name(options.signal),
            begin.elapsed().as_micros()
        )?;
    }
    Ok(0)
}

/// The median of what is in order: of two in the middle the smaller one, as in `belay status`.
fn median(sorted: &[u64]) -> u64 {
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// A hang is one only for somebody who waits: from now on somebody does. It takes several, since a
/// daemon may be stopped at the very moment when it takes a request over, which then waits neither
/// in the kernel nor on record.
fn have_it_asked(place: PathBuf) {
    let ask = move || {
        for _ in 0..ASKERS {
            let place = place.clone();
            let ask = move || {
                while rustix::fs::statfs(&place).is_ok() {
                    std::thread::sleep(ASKED);
                }
            };
            if let Err((error, _)) = threads::start("ask", ask) {
                tracing::debug!("cannot start a thread: {error}");
            }
            std::thread::sleep(ASKED);
        }
    };
    if let Err((error, _)) = threads::start("askers", ask) {
        tracing::warn!(
            "cannot start a thread: {error}; without a pending request no hang is detected"
        );
    }
}

/// Runs `belay restart`.
pub fn restart(options: &Mount) -> Result<i32> {
    let (instance, status) = mounts::one(&options.state, &options.mount)?;
    let (generation, blackout) = strike(&instance, &status.shown(), &Ask::Restart)?;
    writeln!(Out, "generation {generation} serves, blackout {blackout} us")?;
    Ok(0)
}

/// Asks for one death and waits for the recovery; gives the new generation and its blackout.
fn strike(instance: &Instance, place: &str, ask: &Ask) -> Result<(u32, u64)> {
    let end = Instant::now() + PATIENCE;
    // It may just be starting, or recovering from something else.
    let before = loop {
        let Some(status) = status_of(instance) else {
            bail!("{place}: belay does not hold it any more; see `belay status`");
        };
        match status.state {
            State::Serving => break status,
            // What is asked for then is the next start.
            State::Waiting if *ask == Ask::Restart => break status,
            State::Waiting => {
                bail!("{place}: the daemon does not start; see `belay status {place}`")
            }
            State::Unheld | State::Dead => bail!(
                "{place}: belay was killed there, and nobody holds the mount ({}); `belay stop {place}`, then start it again",
                status.state.name()
            ),
            State::Stopping => bail!("{place}: it is being unmounted"),
            State::GaveUp => bail!(
                "{place}: belay has given it up; clean up with `umount {place}`, then start it again"
            ),
            state => match status.stays() {
                Some(why) => bail!("{place}: {why}"),
                None if Instant::now() > end => {
                    bail!("{place}: still {} after a minute; see `belay status`", state.name())
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            },
        }
    };
    let hang = instance.config().and_then(|config| config.hang_timeout()).unwrap_or_default();
    let (patience, end) = (PATIENCE.saturating_add(hang), end + hang.min(LONGEST));
    match Client::connect(&instance.dir)?.ask(ask, Some(patience)) {
        Ok(Answer::Recovered { generation, blackout_us }) => return Ok((generation, blackout_us)),
        Ok(Answer::Ended { code, .. }) => {
            bail!(
                "{place}: belay ended with code {code} instead of a recovery: it was unmounted, or gave up (`belay status` \
                 tells)"
            )
        }
        Ok(Answer::Refused { why }) => bail!("{place}: {why}"),
        Ok(_) => {
            bail!("{place}: the supervisor gave the wrong answer")
        }
        // The supervisor itself may have died: its successor knows.
        Err(error) => say(&format!("belay: {error}\n")),
    }
    while Instant::now() < end {
        if let Some(status) = status_of(instance)
            && status.state == State::Serving
            && (status.generation > before.generation || before.state == State::Waiting)
        {
            return Ok((status.generation, status.blackout_us.last));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!(
        "{place}: no recovery within a minute; did the signal kill the daemon? see `belay status`"
    )
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn of_two_in_the_middle_the_smaller_one_is_the_median() {
        assert_eq!(
            [&[][..], &[7], &[7, 9], &[1, 7, 9], &[1, 7, 9, 9]].map(median),
            [0, 7, 7, 7, 7]
        );
    }
}

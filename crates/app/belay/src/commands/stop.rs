//! `belay stop`.

use super::{mounts, volume};
use crate::cli::Stop;
use crate::messages::{Out, say};
use anyhow::{Result, bail};
use belay_stack::{Place, Role, memory};
use belay_supervisor::instances::{self, Instance, is_locked};
use belay_supervisor::mounts::Removed;
use belay_supervisor::orphans;
use belay_supervisor::protocol::{Answer, Ask, Client, StopHow};
use belay_supervisor::status::{State, Status};
use belay_supervisor::text::{command_line, counted, escaped};
use belay_supervisor::users::{self, User, Users};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// A daemon gets 10 seconds to end, then it is killed; more only while it stores what it had
/// acknowledged.
const PATIENCE: Duration = Duration::from_secs(20);
/// After this time the user is told what is waited for.
const SILENCE: Duration = Duration::from_secs(2);
/// How long belay may take to say how it is.
const LOOK: Duration = Duration::from_secs(5);
/// How soon a supervisor that was lost is looked for again.
const AGAIN: Duration = Duration::from_millis(50);
/// Users of a mount that are named.
const NAMED: usize = 20;

/// Runs it.
pub fn run(options: &Stop) -> Result<i32> {
    let (instance, status) = mounts::one(&options.state, &options.mount)?;
    // Its folder may go with it.
    let name = daemon_name(&instance, &status);
    let volume = volume::place_of(&instance).filter(|_| !instance.alive);
    if end(options, &instance, &status)? {
        if let Some(place) = volume.filter(is_unsaved) {
            bail!(
                "{}: unmounted, after belay had died: what is not on the stores yet is in {}; mount the volume again for that, before this \
                 machine is restarted",
                status.shown(),
                place.memory().display()
            );
        }
        writeln!(Out, "stopped: {} ({name})", status.shown())?;
    }
    Ok(0)
}

/// Whether something of a volume, of which nobody holds the mount any more, is in memory alone. Its
/// cache stores that first, if it lives.
fn is_unsaved(place: &Place) -> bool {
    let end = Instant::now() + PATIENCE;
    while matches!(place.holder(Role::Cache), Ok(Some(_))) && Instant::now() < end {
        std::thread::sleep(AGAIN);
    }
    memory::has_unsaved(place)
}

/// The daemon's name, for people. The command line in the status is quoted, for shells; the words
/// are what it was started with.
fn daemon_name(instance: &Instance, status: &Status) -> String {
    let word = instance.config().and_then(|config| config.command.into_iter().next());
    let first = || status.daemon.command.split(' ').next().unwrap_or_default().to_owned();
    let word = word.map_or_else(first, |word| word.show());
    let name = Path::new(&word).file_name().map(|name| name.to_string_lossy().into_owned());
    escaped(name.unwrap_or(word).as_ref())
}

/// Ends the mount; says whether it has ended, or is only out of sight.
fn end(options: &Stop, instance: &Instance, status: &Status) -> Result<bool> {
    let place = status.shown();
    let quoted = quoted(status);
    if !instance.alive && clear(instance, options)? {
        return Ok(true);
    }
    if !instance.alive {
        bail!("{place}: belay gave up on it before; clean up with `umount {quoted}`");
    }
    let how = match (options.force, options.lazy) {
        (true, _) => StopHow::Force,
        (_, true) => StopHow::Lazy,
        _ => StopHow::Unused,
    };
    let answer = ask(instance, status, how)?;
    let in_use = answer == Some(Answer::InUse);
    let now = in_use.then(|| look(instance)).flatten();
    if let Some(why) = now.as_ref().and_then(|now| now.stays()) {
        bail!(
            "{place}: it is in use, and goes on as before: {why}. `belay stop --force {quoted}` gives errors to those who use it"
        );
    }
    match answer {
        Some(Answer::Refused { why }) => bail!("{place}: cannot stop: {why}"),
        Some(Answer::InUse) => bail!(
            "{place}: it is in use, and goes on as before{}\nend what uses it first, or `belay stop --lazy {quoted}` (nobody \
             finds it any more, and who has files open is served to the end), or `belay stop --force {quoted}` (errors for those \
             who use it)",
            named(&who_uses(users::device(status)))
        ),
        Some(Answer::Detached { device }) if how == StopHow::Lazy => {
            let users = users(device, users::of_unmounted);
            let named = if users.found.is_empty() { String::new() } else { named(&users) };
            say(&format!(
                "belay: {place}: unmounted; what was open stays served until it is closed{named}\n"
            ));
            Ok(false)
        }
        Some(Answer::Detached { device }) => bail!(
            "{place}: it is unmounted, and served on for those who use it still{}\nend them first (it ends with the last), or \
             `belay stop --force {quoted}`",
            named(&users(device, users::of_unmounted))
        ),
        Some(Answer::Ended { lost, .. }) => {
            await_end(instance, status)?;
            match lost {
                Some(lost) => bail!("{place}: {lost}"),
                None => Ok(true),
            }
        }
        // Nothing that is acknowledged is held back there.
        None if status.epoch.is_none() => Ok(true),
        None => bail!(
            "{place}: it has ended, and nobody was there any more to say whether all that it had acknowledged is stored; what \
             its `belay run` said last, or its log, tells that"
        ),
        Some(other) => {
            tracing::debug!("{other:?}");
            bail!("{place}: the supervisor gave the wrong answer; see `belay status {quoted}`")
        }
    }
}

/// Who uses `device`, as `look` finds them, but for this process: its working directory may be
/// there, and goes with it.
fn users(device: Option<String>, look: fn(&str) -> Users) -> Users {
    let mut users = device.as_deref().map(look).unwrap_or_default();
    let me = std::process::id();
    users.found.retain(|user| !matches!(user, User::Process { pid, .. } if *pid == me));
    users
}

/// Who uses `device`; this process if nobody else does, which has it from whoever started it, then.
fn who_uses(device: Option<String>) -> Users {
    let others = users(device.clone(), users::of);
    if others.found.is_empty() {
        device.as_deref().map(users::of).unwrap_or_default()
    } else {
        others
    }
}

/// Asks to stop, and waits for the answer; `None` if it has ended without one. What was lost is
/// said in the answer alone, so who has not heard one does not know that all is well.
fn ask(instance: &Instance, status: &Status, how: StopHow) -> Result<Option<Answer>> {
    let mut client = Client::connect(&instance.dir)?;
    let mut asked = client.send(&Ask::Stop { how });
    let mut end = Instant::now() + 2 * PATIENCE;
    let (mut silence, mut told) = (SILENCE, None);
    loop {
        let patience = std::mem::replace(&mut silence, PATIENCE);
        match asked.and_then(|()| client.wait(Some(patience))) {
            Ok(Some(answer)) => return Ok(Some(answer)),
            Ok(None) => {
                asked = Ok(());
                if let Some((what, bounded)) = waits_for(instance) {
                    if !bounded {
                        end = Instant::now() + 2 * PATIENCE;
                    }
                    if told.replace(what.clone()) != Some(what.clone()) {
                        let (place, quoted) = (status.shown(), quoted(status));
                        let hint = match how {
                            StopHow::Force => String::new(),
                            _ => format!(" (`belay stop --force {quoted}` ends it)"),
                        };
                        say(&format!("belay: {place}: {what}{hint}\n"));
                    }
                }
            }
            // A supervisor that dies of it is replaced by one that goes on.
            Err(error) => {
                tracing::debug!("{error}");
                if !is_locked(&instance.dir) {
                    return Ok(None);
                }
                std::thread::sleep(AGAIN);
                asked = Client::connect(&instance.dir).and_then(|new| {
                    client = new;
                    client.send(&again(instance, how))
                });
            }
        }
        if Instant::now() > end {
            bail!("{}", too_late(status));
        }
    }
}

/// What is asked when it is not known whether the first wish was heard: to one that is ending
/// already, a second wish by force would say that all patience is over.
fn again(instance: &Instance, how: StopHow) -> Ask {
    let is_ending = how == StopHow::Force
        && look(instance).is_some_and(|status| status.state == State::Stopping);
    Ask::Stop { how: if is_ending { StopHow::Unused } else { how } }
}

fn look(instance: &Instance) -> Option<Box<Status>> {
    match Client::connect(&instance.dir).ok()?.ask(&Ask::Status, Some(LOOK)) {
        Ok(Answer::Status(status)) => Some(status),
        _ => None,
    }
}

/// What is waited for that may take long; and whether belay itself waits no longer than its
/// patience lasts.
fn waits_for(instance: &Instance) -> Option<(String, bool)> {
    let status = look(instance)?;
    if status.epoch.as_ref().is_some_and(|epoch| epoch.storing) {
        let what = "unmounted; waiting until what was acknowledged is written";
        return Some((what.to_owned(), false));
    }
    if let Some(why) = status.stays() {
        return Some((why.to_owned(), true));
    }
    if status.state == State::Stopping
        && status.daemon.pid.is_none()
        && !status.companions.is_empty()
    {
        let what = "unmounted; waiting until what was written is on the stores";
        return Some((what.to_owned(), false));
    }
    let what =
        "waiting for the daemon, which is being started again: pending requests are answered first";
    (status.state == State::Recovering).then(|| (what.to_owned(), false))
}

/// Takes away a mount that no belay holds any more; says whether it was one of belay's.
fn clear(instance: &Instance, options: &Stop) -> Result<bool> {
    let Some(orphan) = orphans::of(&instance.dir, None) else { return Ok(false) };
    let place = orphan.status.shown();
    // Who has something open on a dead mount gets errors already.
    let lazy = orphan.is_dead() || options.force || options.lazy;
    match orphan.remove(lazy, &instances::list(&options.state.path())) {
        Removed::Now | Removed::Before => {
            instances::retire(&instance.dir);
            Ok(true)
        }
        Removed::InUse => bail!(
            "{place}: it is in use, and goes on as before, without belay; end what uses it first, or `belay stop --lazy {}`",
            quoted(&orphan.status)
        ),
        Removed::Not(why) => bail!("{place}: cannot stop: {why}"),
    }
}

/// Waits until its place is free.
fn await_end(instance: &Instance, status: &Status) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while is_locked(&instance.dir) {
        if Instant::now() > end {
            bail!("{}", too_late(status));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn too_late(status: &Status) -> String {
    format!(
        "{}: it does not end; try `belay stop --force {}`, or kill supervisor {} and keeper {}",
        status.shown(),
        quoted(status),
        status.supervisor.pid,
        status.keeper.pid
    )
}

fn quoted(status: &Status) -> String {
    status.place().map(|place| command_line([place.as_os_str()])).unwrap_or_default()
}

/// The users as lines of a message.
fn named(users: &Users) -> String {
    let mut text = String::from(":");
    for user in users.found.iter().take(NAMED) {
        text.push_str(&format!("\n  {user}"));
        if matches!(user, User::Process { pid, .. } if *pid == std::process::id()) {
            text.push_str("; that is this command, which was started with it");
        }
    }
    match users.found.len().saturating_sub(NAMED) {
        0 => {}
        more => text.push_str(&format!("\n  and {more} more")),
    }
    if users.found.is_empty() {
        text.push_str(
            "\n  nothing was found that uses it; files that are mapped and closed are not seen",
        );
    }
    match users.hidden {
        0 => {}
        hidden => text.push_str(&format!(
            "\n  ({} could not be looked at)",
            counted(hidden as u64, "process", "processes")
        )),
    }
    text
}

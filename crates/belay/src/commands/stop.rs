//! `belay stop`.

use super::mounts;
use crate::cli::Stop;
use crate::messages::say;
use anyhow::{Result, bail};
use belay_supervisor::instances::{self, Instance, is_locked};
use belay_supervisor::mounts::Removed;
use belay_supervisor::orphans;
use belay_supervisor::protocol::{Answer, Ask, Client, StopHow};
use belay_supervisor::status::{State, Status};
use belay_supervisor::text::command_line;
use belay_supervisor::users::{self, Users};
use std::time::{Duration, Instant};

/// A daemon gets 10 seconds to end, then it is killed; more only while it stores what it had acknowledged.
const PATIENCE: Duration = Duration::from_secs(20);
/// After this time the user is told what is waited for.
const SILENCE: Duration = Duration::from_secs(2);
/// How long belay may take to say how it is.
const LOOK: Duration = Duration::from_secs(5);
/// Users of a mount that are named.
const NAMED: usize = 20;

/// Runs it.
pub fn run(options: &Stop) -> Result<i32> {
    let (instance, status) = mounts::one(&options.state, &options.mount)?;
    let place = status.shown();
    let quoted = quoted(&status);
    if !instance.alive && clear(&instance, options)? {
        return Ok(0);
    }
    if !instance.alive {
        bail!("{place}: belay gave up on it before; clean up with `umount {quoted}`");
    }
    let how = match (options.force, options.lazy) {
        (true, _) => StopHow::Force,
        (_, true) => StopHow::Lazy,
        _ => StopHow::Unused,
    };
    // Found out before: what is not in the tree any more is harder to name.
    let device = users::device(&status);
    let mut answer = Client::connect(&instance.dir)?.ask(&Ask::Stop { how }, Some(SILENCE));
    let (mut told, mut asked) = (None, false);
    while answer.is_err() {
        let waits = waits_for(&instance);
        match waits {
            None if asked => break,
            Some(what) if told.replace(what) != Some(what) => {
                say(&format!("belay: {place}: {what} (`belay stop --force {quoted}` ends it)\n"));
            }
            _ => {}
        }
        // Of one that ends already, this only waits for the end.
        let again = if how == StopHow::Force { StopHow::Unused } else { how };
        let ask = |mut client: Client| client.ask(&Ask::Stop { how: again }, Some(PATIENCE));
        answer = Client::connect(&instance.dir).and_then(ask);
        asked = true;
    }
    let users = || device.as_deref().map(users::of).unwrap_or_default();
    match answer {
        Ok(Answer::Refused { why }) => bail!("{place}: cannot stop: {why}"),
        Ok(Answer::InUse) => bail!(
            "{place}: it is in use, and goes on as before{}\nend what uses it first, or `belay stop --lazy {quoted}` (nobody \
             finds it any more, and who has files open is served to the end), or `belay stop --force {quoted}` (errors for those \
             who use it)",
            named(&users())
        ),
        Ok(Answer::Detached) if how == StopHow::Lazy => {
            let users = users();
            if !users.found.is_empty() {
                say(&format!(
                    "belay: {place}: unmounted; what was open stays served until it is closed{}\n",
                    named(&users)
                ));
            }
            return Ok(0);
        }
        Ok(Answer::Detached) => bail!(
            "{place}: it is unmounted already, and served on for those who have files open{}\nend them first, or `belay stop \
             --force {quoted}`",
            named(&users())
        ),
        Ok(Answer::Ended { lost: Some(lost), .. }) => {
            await_end(&instance, &status)?;
            bail!("{place}: {lost}");
        }
        Ok(_) => {}
        // A supervisor that died of it is replaced by one that goes on; wait for the end below.
        Err(error) => tracing::debug!("{error}"),
    }
    await_end(&instance, &status)
}

/// What is waited for that may take long.
fn waits_for(instance: &Instance) -> Option<&'static str> {
    let ask = |mut client: Client| client.ask(&Ask::Status, Some(LOOK));
    let Ok(Answer::Status(status)) = Client::connect(&instance.dir).and_then(ask) else {
        return None;
    };
    if status.epoch.as_ref().is_some_and(|epoch| epoch.storing) {
        return Some(
            "unmounted; waiting for the daemon, which has still to write what it had acknowledged",
        );
    }
    (status.state == State::Recovering).then_some(
        "waiting for the daemon, which is being started again: who waits for an answer of it gets that first",
    )
}

/// Takes away a mount that no belay holds any more; says whether it was one of belay's.
fn clear(instance: &Instance, options: &Stop) -> Result<bool> {
    let Some(orphan) = orphans::of(&instance.dir) else { return Ok(false) };
    let place = orphan.status.shown();
    // Who has something open on a dead mount gets errors already.
    match orphan.remove(orphan.is_dead() || options.force || options.lazy) {
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

fn await_end(instance: &Instance, status: &Status) -> Result<i32> {
    let end = Instant::now() + PATIENCE;
    while is_locked(&instance.dir) {
        if Instant::now() > end {
            bail!(
                "{}: it does not end; try `belay stop --force {}`, or kill supervisor {} and keeper {}",
                status.shown(),
                quoted(status),
                status.supervisor.pid,
                status.keeper.pid
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(0)
}

fn quoted(status: &Status) -> String {
    status.place().map(|place| command_line([place.as_os_str()])).unwrap_or_default()
}

/// The users as lines of a message.
fn named(users: &Users) -> String {
    let mut text = String::from(":");
    for user in users.found.iter().take(NAMED) {
        text.push_str(&format!("\n  {user}"));
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
        hidden => text
            .push_str(&format!("\n  ({hidden} processes could not be looked at: of other users)")),
    }
    text
}

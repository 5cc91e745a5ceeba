//! Finding held mounts by their mountpoint, without touching these.

use super::volume::which;
use crate::cli::state_dir::StateDir;
use anyhow::{Result, anyhow};
use belay_supervisor::instances::{self, Instance};
use belay_supervisor::mounts::{self, read_link_untouched, resolve_untouched};
use belay_supervisor::orphans;
use belay_supervisor::protocol::{Answer, Ask, Client};
use belay_supervisor::status::Status;
use belay_supervisor::text::{command_line, escaped, span};
use belay_supervisor::threads;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// A supervisor that is being replaced answers within this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// The status of a folder's mount, if there is one and it can be had.
pub fn status_of(instance: &Instance) -> Option<Status> {
    look(instance, None).ok().flatten()
}

/// The status of a folder's mount, from its supervisor or, if it gave up or was killed, from what
/// it left; `None` if there is no mount, or that is not one of those `meant`.
///
/// # Errors
/// If somebody holds it and does not say.
fn look(instance: &Instance, meant: Option<&[PathBuf]>) -> Result<Option<Status>> {
    if !instance.alive {
        let Some(status) = instance.last_status() else {
            return Ok(orphans::of(&instance.dir, meant).map(|orphan| orphan.status));
        };
        // It matters as long as the mount is still to be cleaned up.
        let there = status.place().and_then(|place| mounts::at(&place));
        return Ok(there.is_some_and(|mount| mount.is_fuse()).then_some(status));
    }
    let end = Instant::now() + PATIENCE;
    let mut why = anyhow!("it gives no status");
    // Once more if the supervisor dies while it is asked.
    for _ in 0..3 {
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            break;
        }
        let answer = Client::connect(&instance.dir)
            .and_then(|mut client| client.ask(&Ask::Status, Some(rest)));
        match answer {
            Ok(Answer::Status(status)) => return Ok(Some(*status)),
            Ok(_) => {}
            Err(error) => why = error.into(),
        }
    }
    // One that has ended meanwhile, or does not serve yet, owes nothing.
    if !instances::is_locked(&instance.dir) || !instances::has_socket(&instance.dir) {
        return Ok(None);
    }
    if Instant::now() >= end {
        let limit = span(PATIENCE);
        why = anyhow!("no answer within {limit}; is it stopped (`ps -o pid,stat,args -C belay`)?");
    }
    Err(why.context(format!("the supervisor of {}", instances::shown(&instance.dir))))
}

/// The status of each folder's mount, as they come: all are asked at once, since one whose
/// supervisor is stuck must not hold up what is said of the others. Of mounts that nobody holds
/// only those `meant` are asked.
fn ask(
    state: &StateDir,
    meant: Option<Arc<[PathBuf]>>,
) -> impl Iterator<Item = (Instance, Result<Option<Status>>)> + use<> {
    let (answers, arrived) = mpsc::channel();
    for instance in instances::list(&state.path()) {
        let (answers, meant) = (answers.clone(), meant.clone());
        threads::beside("ask", move || {
            let found = look(&instance, meant.as_deref());
            // Whoever has what it wanted listens no more.
            let _ = answers.send((instance, found));
        });
    }
    arrived.into_iter()
}

/// All mounts, and whether there are more, of which nothing could be learnt; why is said.
pub fn all(state: &StateDir) -> (Vec<Status>, bool) {
    let (mut found, mut more) = (Vec::new(), false);
    if let Err(why) = instances::check_own(&state.path()) {
        tracing::error!("{why}");
        return (Vec::new(), true);
    }
    for (instance, status) in ask(state, None) {
        match status {
            Ok(Some(status)) => found.push((instance, status)),
            Ok(None) => {}
            Err(why) => {
                tracing::warn!("{why:#}");
                more = true;
            }
        }
    }
    // Of those at one place only the last is there: the others gave up before.
    found.sort_by_key(|(instance, _)| (!instance.alive, Reverse(instance.modified())));
    let mut seen = BTreeSet::new();
    found.retain(|(instance, status)| {
        status.place().is_none_or(|place| seen.insert(place)) || instance.alive
    });
    found.sort_by(|a, b| a.0.dir.cmp(&b.0.dir));
    (found.into_iter().map(|(_, status)| status).collect(), more)
}

/// Links that are followed one after another, as the kernel does.
const LINKS: usize = 40;

/// The places that `path` may mean: itself, and where it leads if it is a link to a mountpoint.
/// Links are followed by their texts alone.
fn ways_to(path: &Path) -> Vec<PathBuf> {
    let mut ways = vec![resolve_untouched(path)];
    while let Some(last) = ways.last()
        && ways.len() <= LINKS
        && let Some(to) = read_link_untouched(last)
    {
        ways.push(resolve_untouched(&last.parent().unwrap_or(last).join(to)));
    }
    ways
}

/// The mount at `path`, or that of the volume with this name if nothing is at such a path.
///
/// # Errors
/// If belay holds none there; if the volume is mounted at several places.
pub fn one(state: &StateDir, path: &Path) -> Result<(Instance, Status)> {
    instances::check_own(&state.path())?;
    let volume = which::named(state, path)?;
    let path = volume.as_deref().unwrap_or(path);
    let meant: Arc<[PathBuf]> = ways_to(path).into();
    let is_meant = |place: &Path| meant.iter().any(|way| way == place);
    let (mut gave_up, mut silent, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (instance, status) in ask(state, Some(Arc::clone(&meant))) {
        match status {
            Ok(Some(status)) if !status.place().is_some_and(|place| is_meant(&place)) => {
                others.extend(status.place().filter(|_| instance.alive));
            }
            // One that lives says more than one that gave up there before.
            Ok(Some(status)) if instance.alive => return Ok((instance, status)),
            Ok(Some(status)) => gave_up.push((instance, status)),
            Ok(None) => {}
            Err(why) => {
                let guessed = instance.config().and_then(|config| config.guessed_mountpoint);
                if guessed.is_some_and(|place| is_meant(Path::new(&place.0))) {
                    return Err(why);
                }
                silent.push(format!("{why:#}"));
            }
        }
    }
    let last = gave_up.into_iter().max_by_key(|(instance, _)| instance.modified());
    last.ok_or_else(|| {
        let told: String = silent.iter().map(|why| format!("; {why}")).collect();
        let place = meant.first().map_or(path, PathBuf::as_path);
        let shown = escaped(place.as_os_str());
        let volume = which::beside(state, path);
        anyhow!(
            "{shown}: belay holds no mount there{volume}: {}{told}",
            why_none(state, place, &others)
        )
    })
}

/// Why belay holds no mount at `place`, and what to do. `others`: where it holds some.
fn why_none(state: &StateDir, place: &Path, others: &[PathBuf]) -> String {
    let dir = state.path();
    let shown = dir.display();
    if state.is_missing() {
        return format!(
            "its state directory {shown} is not there; name the one that `belay run` has (--state-dir or BELAY_STATE_DIR), and \
             see `belay status` there"
        );
    }
    let all = instances::list(&dir);
    let was_there = |instance: &&Instance| {
        let config = instance.config().and_then(|config| config.guessed_mountpoint);
        !instance.alive && config.is_some_and(|other| other.as_path() == place)
    };
    let ended = all.iter().filter(was_there).max_by_key(|instance| instance.modified());
    if let Some(mount) = mounts::at(place) {
        let kind = &mount.kind;
        let quoted = command_line([place.as_os_str()]);
        let is_same =
            |other: &&PathBuf| mounts::at(other).is_some_and(|at| at.device == mount.device);
        if let Some(held) = others.iter().find(is_same) {
            return format!(
                "the file system there is one that it holds, seen at another place; name the place where it was mounted: {}",
                command_line([held.as_os_str()])
            );
        }
        return match mount.is_fuse() {
            true => format!(
                "a {kind} file system is mounted there that is not belay's, or that of another user or state directory (this one \
                 is {shown}; `belay status --state-dir DIR`), or was moved there (`belay status` names such a one by the place \
                 where it was mounted); to have it held, unmount it (`fusermount3 -u {quoted}`) and \
                 start its daemon by `belay run`"
            ),
            false => format!(
                "a {kind} file system is mounted there, which is no FUSE daemon's; see `belay status` for all mounts"
            ),
        };
    }
    if let Some(ended) = ended {
        let config = ended.config();
        let volume = config.as_ref().and_then(which::held);
        let again = volume.map_or("belay run".to_owned(), |(name, place)| {
            format!("belay volume mount {}", command_line([&*name.0, place.as_os_str()]))
        });
        return format!(
            "one that it held there has ended, and what is known of it is in {}; start it again with `{again}`",
            ended.dir.display()
        );
    }
    let none =
        if all.iter().any(|instance| instance.alive) { "" } else { ", and no other mount is held" };
    format!(
        "nothing is mounted there{none} (state directory {shown}); see `belay status` for all mounts"
    )
}

//! How a memory is set up: with what the stores have, and the intent log besides.

use super::{DYING, Surroundings};
use anyhow::{Result, bail, ensure};
use belay_cache::Shared;
use belay_cache::intent::replay;
use belay_channel::{Error as Below, RemoteStore, Transport};
use belay_memory::Memory;
use belay_object::Lower;
use std::time::Duration;

/// How long a mount waits for a disk that cannot read what it takes: until it is known that this
/// lasts.
const FAILING: Duration = Duration::from_secs(90);
/// How often that is tried.
const AGAIN: Duration = Duration::from_secs(1);

/// The last checkpoint of the stores, and up to which transaction it reaches.
///
/// # Errors
/// Why they do not say.
pub fn last_checkpoint<T: Transport>(
    below: &mut RemoteStore<T>,
    surroundings: &mut impl Surroundings,
) -> Result<(u64, u64)> {
    until_it_lives(surroundings, || {
        below.renew()?;
        Ok((below.epoch()?.saturating_sub(1), below.upto()?))
    })
}

/// Asks the stores until they do not die of it, or have died too often.
fn until_it_lives<T>(
    surroundings: &mut impl Surroundings,
    mut ask: impl FnMut() -> std::result::Result<T, Below>,
) -> Result<T> {
    surroundings.renew_patience();
    loop {
        match ask() {
            Err(Below::Lost) if !surroundings.is_patience_over() => {}
            Err(Below::Lost) => bail!("{DYING}"),
            done => return Ok(done?),
        }
    }
}

/// Sets the memory up: with what the stores have, and the intent log besides.
///
/// # Errors
/// Why that cannot be done: the stores die of it, what was synced cannot be read, or it was asked
/// to end.
pub fn begin<M: Memory, T: Transport>(
    shared: &Shared<M>,
    below: &mut RemoteStore<T>,
    surroundings: &mut impl Surroundings,
) -> Result<()> {
    surroundings.renew_patience();
    // Since when the disk has failed in the same way.
    let mut failing: Option<(Duration, String)> = None;
    loop {
        let tried = below.renew().map_err(belay_cache::Error::Lower).and_then(|()| {
            // No other memory counts from here, so what is in this one will never be taken for what
            // is in another.
            let first = replay(below)?.saturating_add(surroundings.jump());
            below.checkpoint(first).map_err(belay_cache::Error::Lower)?;
            let epoch = below.epoch().map_err(belay_cache::Error::Lower)?;
            Ok((first, epoch, below.room().map_err(belay_cache::Error::Lower)?))
        });
        let now = surroundings.now();
        let elapsed = |since: Duration| now.saturating_sub(since);
        match tried {
            Ok((first, epoch, room)) => {
                shared.initialize(epoch.saturating_sub(1), first, &room);
                shared.set_valid();
                return Ok(());
            }
            Err(belay_cache::Error::Lower(Below::Lost)) if !surroundings.is_patience_over() => {}
            Err(belay_cache::Error::Lower(Below::Lost)) => bail!("{DYING}"),
            Err(belay_cache::Error::Lower(Below::Failing(why)))
                if failing
                    .as_ref()
                    .is_none_or(|(since, before)| *before != why || elapsed(*since) < FAILING) =>
            {
                if failing.as_ref().is_none_or(|(_, before)| *before != why) {
                    tracing::warn!("{why}; trying again for a while");
                    failing = Some((now, why));
                }
                ensure!(!surroundings.ends_within(AGAIN)?, "it was asked to end");
            }
            Err(why) => bail!(
                "what was synced before the last end cannot be replayed: {why}; `belay volume check` says what is wrong, and what can \
                 be done"
            ),
        }
    }
}

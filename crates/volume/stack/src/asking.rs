//! What is asked of a mounted volume from outside.

use crate::place::{Place, Role};
use anyhow::{Result, bail};
use belay_channel::client::Waits;
use belay_channel::{CacheAnswer, CacheAsk, Connection};
use std::time::{Duration, Instant};

/// For how long nobody may be there who was asked: whoever dies has a successor soon.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Until(Instant);

impl Waits for Until {
    fn wait(&self, _waits: bool) {}

    fn gives_up(&self) -> bool {
        Instant::now() > self.0
    }
}

/// Has a checkpoint be taken of the volume that is mounted there: all that was written before is on
/// its stores then. Waits for them as long as it takes.
///
/// # Errors
/// If it cannot be taken, or nobody takes it.
pub fn checkpoint(place: &Place) -> Result<()> {
    let asked = || {
        let until = Until(Instant::now() + PATIENCE);
        let mut cache = Connection::new(&place.socket(Role::Cache), Box::new(until));
        cache.open().ok().map(|()| cache.ask(&CacheAsk::Checkpoint))
    };
    while let Some(answer) = asked() {
        match answer {
            Ok(CacheAnswer::Done) => return Ok(()),
            Ok(CacheAnswer::Refused(why)) => bail!("{why}"),
            // Its successor takes it.
            Err(_) => {}
        }
    }
    bail!("its cache does not answer")
}

//! The process of the namespace module: a FUSE daemon, which belay holds (policy `records`).
//!
//! Its next life knows nothing of it but what it has published. The kernel keeps locks (fcntl,
//! flock) by itself, so they outlive it.

use crate::device::{self, Forbids};
use crate::memory::{self, Memory};
use crate::place::{Place, Role};
use crate::pulse::Pulse;
use crate::serving::{self, Shared};
use anyhow::{Context, Result, bail, ensure};
use belay_cache::Publisher;
use belay_channel::{CacheAnswer, CacheAsk, Connection, Error, RemoteStore};
use belay_posix::dispatch::Module;
use belay_posix::fetch::{Fetched, Miss};
use std::path::Path;

/// Bytes that are kept of what was read from the stores.
const KEPT: usize = 64 << 20;

/// Runs it.
///
/// # Errors
/// If the memory cannot be used, or it cannot mount.
pub fn run(
    place: &Place,
    name: &str,
    mount: u64,
    mountpoint: &Path,
    forbids: &[Forbids],
) -> Result<i32> {
    die_of_panics();
    let _role = place.take(Role::Namespace)?;
    let pulse = Pulse::of(place, Role::Namespace)?;
    let memory = mounted(place, mount, &pulse)?;
    let generation = memory.next_generation();
    let publisher = Publisher::attach::<Miss<Error>>(memory.clone(), generation);
    let publisher = publisher.context("cannot use the cache's memory")?.keeping(KEPT);
    let store = RemoteStore::reader(&place.socket(Role::Store), Box::new(pulse.clone()));
    let mut module = Module::new(publisher, Fetched::waiting_for(store));
    let is_first = !memory.is_cleared(mount);
    if is_first {
        remove_orphans(&mut module, place, &pulse)?;
        memory.set_cleared(mount);
    }
    let device = device::open(name, mountpoint, forbids)?;
    serving::serve(place, pulse, memory, module, device, is_first)?;
    Ok(0)
}

/// Removes what was in use without a name at the end of the last mount.
fn remove_orphans(module: &mut Shared, place: &Place, pulse: &Pulse) -> Result<()> {
    const FAILED: &str = "cannot remove files that were removed while open";
    let mut cache = Connection::new(&place.socket(Role::Cache), Box::new(pulse.clone()));
    loop {
        match module.remove_orphans() {
            Ok(failed) => {
                failed.iter().for_each(|why| tracing::error!("{FAILED}: {why}"));
                return Ok(());
            }
            Err(belay_posix::Error::Cache(belay_cache::Error::Full)) => {
                if let CacheAnswer::Refused(why) = cache.ask_until_answered(&CacheAsk::Checkpoint) {
                    bail!("{FAILED}: {why}");
                }
            }
            // The list of them is damaged. Their room stays taken, and all else is there.
            Err(belay_posix::Error::Cache(belay_cache::Error::Lower(Miss::Below(why))))
                if matches!(*why, Error::Damaged(_) | Error::Refused(_)) =>
            {
                tracing::error!("{FAILED}: {why}; `belay volume check` tells what else is damaged");
                return Ok(());
            }
            Err(why) => return Err(why).context(FAILED),
        }
    }
}

/// A thread that panics leaves what it had in its hands in disorder. The next life of the process
/// knows nothing of that.
fn die_of_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |why| {
        tell(why);
        std::process::abort();
    }));
}

/// The cache's memory, when it serves this mount. Only the first life has to wait for the cache to
/// say so.
fn mounted(place: &Place, mount: u64, pulse: &Pulse) -> Result<Memory> {
    let is_ready = |memory: &Memory| memory.is_valid() && memory.is_mounted(mount);
    if let Some(memory) = memory::open(place)?.filter(is_ready) {
        return Ok(memory);
    }
    let mut cache = Connection::new(&place.socket(Role::Cache), Box::new(pulse.clone()));
    match cache.ask_until_answered(&CacheAsk::Ready(mount)) {
        CacheAnswer::Done => {}
        CacheAnswer::Refused(why) => bail!("{why}"),
    }
    let memory = memory::open(place)?.context("the cache's memory is gone")?;
    ensure!(is_ready(&memory), "the cache's memory is of another version of belay");
    Ok(memory)
}

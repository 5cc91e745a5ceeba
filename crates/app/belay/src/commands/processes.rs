//! The processes of a volume.

use crate::cli::{CacheProcess, NamespaceProcess, StoreProcess};
use anyhow::{Context, Result};
use belay_stack::{Place, Role, cache, memory, namespace, store};

fn of<T>(role: Role, name: &str, done: Result<T>) -> Result<T> {
    done.with_context(|| format!("volume {name}, {role}"))
}

/// Runs the one with the stores.
pub fn store(options: StoreProcess) -> Result<i32> {
    let done = Place::at(&options.place).and_then(|place| store::run(&place, options.stores));
    of(Role::Store, &options.name, done)
}

/// Runs that of the cache.
pub fn cache(options: &CacheProcess) -> Result<i32> {
    let capacity = memory::capacity(options.memory);
    let run = |place| cache::run(&place, options.mount, capacity);
    of(Role::Cache, &options.name, Place::at(&options.place).and_then(run))
}

/// Runs that of the namespace module.
pub fn namespace(options: &NamespaceProcess) -> Result<i32> {
    let forbids: Vec<_> = options.forbids.iter().map(|one| one.forbids()).collect();
    let run =
        |place| namespace::run(&place, &options.name, options.mount, &options.mountpoint, &forbids);
    of(Role::Namespace, &options.name, Place::at(&options.place).and_then(run))
}

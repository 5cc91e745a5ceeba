//! `belay volume import`: a volume that has no name here gets one. Its stores say which volume it
//! is, and what belongs to it; nothing on them is changed.

use super::open::checkpoints;
use crate::cli::volume::Import;
use crate::messages::Out;
use anyhow::{Context, Result, bail, ensure};
use belay_disk::FileDisk;
use belay_registry::{Definition, Listed, Registry, Store, Uuid, VolumeName, definition};
use belay_store::root::Identity;
use std::io::Write;
use std::path::PathBuf;

/// Runs it.
pub fn run(options: &Import) -> Result<i32> {
    let registry = Registry::of_user()?;
    registry.check_new(&options.name)?;
    ensure!(
        options.stores.len() <= definition::STORES,
        "a volume has at most {} stores",
        definition::STORES
    );
    let mut found = Vec::new();
    for path in &options.stores {
        let path = path.canonicalize().with_context(|| format!("cannot use {}", path.display()))?;
        let (last, _) = checkpoints(&path, &FileDisk::open_read_only(&path)?)?;
        found.push((last.identity, path));
    }
    let definition = defined(&found)?;
    check_unnamed(&registry, &definition)?;
    let written = registry.add(&options.name, &definition)?;
    let mut out = Out;
    let name = &options.name;
    writeln!(out, "imported volume {name} ({})", definition.id)?;
    for (number, store) in definition.stores.iter().enumerate() {
        writeln!(out, "  store {number}: {}", store.path.display())?;
    }
    writeln!(out, "  defined in {}", written.display())?;
    writeln!(out, "next: `belay volume check {name}`, or `belay volume mount {name} DIRECTORY`")?;
    Ok(0)
}

/// The volume of which these are all the stores, in its own order.
fn defined(found: &[(Identity, PathBuf)]) -> Result<Definition> {
    let Some((first, first_path)) = found.first() else { bail!("name its stores") };
    let id = Uuid::from_bytes(first.volume);
    for (other, path) in found {
        ensure!(
            other.volume == first.volume,
            "{} belongs to volume {id}, and {} to volume {}: import one volume at a time",
            first_path.display(),
            path.display(),
            Uuid::from_bytes(other.volume)
        );
    }
    let store = |member: &[u8; 16]| {
        let mut paths = found.iter().filter(|(one, _)| one.store == *member).map(|(_, path)| path);
        let (path, other) = (paths.next(), paths.next());
        let id = Uuid::from_bytes(*member);
        if let (Some(path), Some(other)) = (path, other) {
            bail!(
                "{} and {} are the same store ({id}): one is a copy, or was named twice; leave it out",
                path.display(),
                other.display()
            );
        }
        let path = path.with_context(|| {
            let count = first.members.len();
            format!("store {id} of the volume is missing: name all of its {count} stores")
        })?;
        Ok(Store { id, path: path.clone() })
    };
    let stores = first.members.iter().map(store).collect::<Result<Vec<_>>>()?;
    if let Some((other, path)) = found.iter().find(|(one, _)| !first.members.contains(&one.store)) {
        let other = Uuid::from_bytes(other.store);
        bail!("{} is store {other}, which volume {id} does not know", path.display());
    }
    Ok(Definition { id, stores })
}

/// Two names of one volume are mostly a mistake: one of them soon has paths that are not true.
fn check_unnamed(registry: &Registry, definition: &Definition) -> Result<()> {
    let is_it = |one: &Listed| one.definition.as_ref().is_ok_and(|it| it.id == definition.id);
    let known: Option<VolumeName> =
        registry.list()?.into_iter().find(is_it).map(|one: Listed| one.name);
    match known {
        Some(name) => bail!(
            "the volume has a name already: {name}; write into its definition where its stores are, or remove the name with \
             `belay volume forget {name}`"
        ),
        None => Ok(()),
    }
}

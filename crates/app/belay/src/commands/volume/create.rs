//! temporary
use anyhow::Result;
use belay_disk::FileDisk;
use belay_logical::Logical;
use belay_registry::{Definition, Registry, Store, Uuid, VolumeName};
use belay_store::Parameters;
use std::path::Path;

pub fn run(name: &VolumeName, store: &str) -> Result<i32> {
    let (path, size) = store.rsplit_once(':').unwrap_or((store, "1G"));
    let bytes = crate::size::parse_size(size).map_err(anyhow::Error::msg)?;
    let disk = FileDisk::create(Path::new(path), bytes)?;
    let (volume, id) = (Uuid::new_v4(), Uuid::new_v4());
    let mut made =
        Logical::format(volume.into_bytes(), vec![(id.into_bytes(), disk)], Parameters::default())?;
    belay_posix::format(&mut made, belay_posix::Caller::default())?;
    let definition =
        Definition { id: volume, stores: vec![Store { id, path: std::path::absolute(path)? }] };
    Registry::of_user()?.add(name, &definition)?;
    Ok(0)
}

//! An image whose daemon is gone: the checker's word, and a look at the tree with another daemon.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use belay_fixtures::process::Process;
use belay_fixtures::{Kind, image_tools, mounts};
use belay_study::{Look, Snapshot};

const LIMIT: Duration = Duration::from_secs(30);

/// What the file system's own checker says against an image, if anything.
pub fn complaint(kind: Kind, image: &Path) -> Option<String> {
    image_tools::check(kind, image).err().map(|error| format!("{error:#}"))
}

/// Looks at a directory of an image that nobody has mounted.
pub fn look_into(kind: Kind, image: &Path, name: &str, look: Look) -> Result<Snapshot> {
    let temp = tempfile::tempdir().context("making a directory to mount on")?;
    let at = temp.path().join("mnt");
    std::fs::create_dir(&at).with_context(|| format!("creating {}", at.display()))?;
    let command = image_tools::reader(kind, image, &at)?;
    let mut daemon = Process::start(command, &temp.path().join("log"))?;
    let snapshot = mounts::wait(&at, true, LIMIT, || daemon.must_run())
        .and_then(|()| Snapshot::read(&at.join(name), look));
    let unmounted = mounts::unmount_clean(&at, LIMIT);
    if unmounted.is_err() {
        mounts::unmount_by_force(&at);
    }
    let ended = daemon.wait(LIMIT)?;
    let snapshot = snapshot.with_context(|| format!("looking into {}", image.display()))?;
    unmounted.and(ended.map_or(Ok(()), |status| {
        // At its end fusefat writes the allocation table, also where it has opened the image for
        // reading.
        let fine = status.success() || kind == Kind::Fusefat;
        ensure!(fine, "the daemon ended with {status}{}", daemon.tail());
        Ok(())
    }))?;
    Ok(snapshot)
}

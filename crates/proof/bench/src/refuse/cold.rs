//! Emptying the kernel's caches of one mount, and of no other.

use anyhow::{Context, Result};
use belay_fixtures::Fixture;
use rustix::mount::{MountFlags, mount_remount};

/// Makes the kernel forget the names, nodes and pages that it has cached of this fixture's mount.
///
/// Remounting does that, by the way, for the one file system: everything that nobody has open is
/// dropped. The switch `/proc/sys/vm/drop_caches` would do it to the whole machine. The daemons'
/// back ends are in memory: there is nothing below that could be cold.
pub fn empty_caches(fixture: &Fixture) -> Result<()> {
    let mountpoint = fixture.mountpoint();
    // FUSE takes no new options; these flags of the mount stay as they are.
    mount_remount(mountpoint, MountFlags::NOSUID | MountFlags::NODEV, "")
        .with_context(|| format!("remount {} to empty its caches", mountpoint.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use belay_fixtures::{FixtureOptions, Kind, Mode};

    use super::*;
    use crate::procmem::io_calls;

    #[test]
    fn what_was_cached_is_asked_for_again() -> Result<()> {
        if !rustix::process::geteuid().is_root() || !std::path::Path::new("/dev/fuse").exists() {
            eprintln!("skipped: needs root and /dev/fuse");
            return Ok(());
        }
        let daemon_opts = ["kernel_cache", "entry_timeout=3600", "attr_timeout=3600"];
        let daemon_opts = daemon_opts.map(str::to_owned).to_vec();
        // bindfs with caches that last.
        let options = FixtureOptions { daemon_opts, ..FixtureOptions::default() };
        let fixture = Fixture::start(Kind::Bindfs, &Mode::Bare, &options)?;
        let path = fixture.root().join("file");
        fs::write(&path, vec![1; 1 << 20])?;
        let pid = fixture.daemon_pid()?;
        let calls = || -> Result<u64> {
            let before = io_calls(pid).context("count the daemon's calls")?;
            assert_eq!(fs::read(&path)?.len(), 1 << 20);
            Ok(io_calls(pid).context("count the daemon's calls")? - before)
        };
        calls()?;
        let warm = calls()?;
        empty_caches(&fixture)?;
        let cold = calls()?;
        // 1 MiB in requests of 128 KiB, each read and answered.
        assert!(cold >= warm + 16, "{warm} calls with warm caches, {cold} with cold ones");
        fixture.stop()
    }
}

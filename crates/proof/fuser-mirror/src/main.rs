//! A daemon for tests: shows a folder, and what is done on the mount is done there. It is written
//! with the crate `fuser`, which speaks to the kernel without a library in C, so that it can be
//! linked statically (`scripts/setup-zoo` does that, with musl).
//!
//! Usage: `belay-fuser-mirror FOLDER MOUNTPOINT`
#![forbid(unsafe_code)]

mod answers;
mod mirror;
mod nodes;

use anyhow::{Context, Result, bail};
use fuser::{Config, MountOption, SessionACL};
use mirror::Mirror;
use nodes::Nodes;
use rustix::fs::Mode;
use std::path::Path;

fn main() -> Result<()> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [folder, mountpoint] = words.as_slice() else {
        bail!("usage: belay-fuser-mirror FOLDER MOUNTPOINT");
    };
    // The kernel has applied the caller's.
    rustix::process::umask(Mode::empty());
    let nodes =
        Nodes::new(Path::new(folder)).with_context(|| format!("opening {}", folder.display()))?;
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("belay-fuser-mirror".into()), MountOption::DefaultPermissions];
    config.n_threads = Some(4);
    if rustix::process::geteuid().is_root() {
        config.acl = SessionACL::All;
    }
    fuser::mount(Mirror::new(nodes), mountpoint, &config).context("serving the mount")
}

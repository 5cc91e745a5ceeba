//! `belay run`: checks, then becomes the keeper.

use crate::cli::Run;
use crate::image::{self, Wishes};
use crate::preflight::{binary, machine, mountpoint, shim};
use crate::profile::{self, Asked, InodeNumbers};
use anyhow::Result;
use belay_supervisor::config::{Config, VERSION};
use belay_supervisor::text::OsText;
use belay_supervisor::{Policy, instances, keeper, process};
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

/// Runs it.
pub fn run(options: &Run) -> Result<i32> {
    let name = options.command.first().map_or(OsStr::new(""), |name| name.as_os_str());
    let program = binary::find(name)?;
    binary::check(&program)?;
    machine::check()?;
    let shim = shim::find()?;
    let state_dir = options.state.path();
    let guessed = mountpoint::guess(&options.command);
    let others = instances::list(&state_dir);
    if let Some(path) = &guessed {
        mountpoint::check(path, &others)?;
    }
    let old_kernel = machine::kernel() < machine::RESEND_SINCE;
    let asked = Asked {
        policy: options.policy.into(),
        inode_numbers: options.inode_numbers.into(),
        flush: options.flush,
        checkpoints: options.checkpoints.clone(),
    };
    let chosen = profile::choose(&asked, &program)?;
    tracing::debug!("policy {}: {}", chosen.policy.effective(), chosen.source);
    let wishes = Wishes {
        epochs: chosen.policy == Policy::Epoch,
        image: options.image.as_deref(),
        journal: options.journal.as_deref(),
    };
    let (image, journal) = image::prepare(&options.command, wishes, &others)?.unzip();
    let hint = guessed.as_deref().unwrap_or(Path::new(name));
    let instance = instances::create(&state_dir, hint)?;
    let dir = instance.dir.clone();
    instances::clean(&state_dir);
    let config = Config {
        version: VERSION,
        program,
        command: options.command.iter().cloned().map(OsText).collect(),
        shim,
        preload: OsText(std::env::var_os("LD_PRELOAD").unwrap_or_default()),
        instance: instance.dir.clone(),
        guessed_mountpoint: guessed.clone().map(OsText::from),
        max_crashes: options.max_crashes,
        poison_after: options.poison_after,
        hang_timeout_ms: options.hang_timeout.map(millis),
        start_timeout_ms: millis(options.start_timeout),
        memory_limit: options.memory_limit,
        policy: chosen.policy,
        checkpoints: chosen.checkpoints,
        image,
        no_resend: options.no_resend || old_kernel,
        volatile_inodes: chosen.inode_numbers == InodeNumbers::Volatile,
        verbose: options.verbose,
        keeper_pid: std::process::id(),
        bystanders: process::children(std::process::id()),
    };
    let descriptors =
        keeper::prepare(&config, instance, journal).inspect_err(|_| instances::retire(&dir))?;
    Ok(keeper::run(&config, descriptors).inspect_err(|_| instances::retire(&dir))?)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

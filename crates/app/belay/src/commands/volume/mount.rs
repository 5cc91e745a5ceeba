//! `belay volume mount`: checks, then holds the namespace module as any other daemon, with cache
//! and stores beside it.

use super::open::Named;
use super::which;
use crate::cli::{Run, VolumeMount};
use crate::commands::run::{Beside, hang_limit, run_with};
use crate::messages::say;
use anyhow::{Context, Result, anyhow, bail, ensure};
use belay_registry::VolumeName;
use belay_stack::{Place, Role, memory, pulse, report};
use belay_store::root::{self, Next};
use belay_supervisor::companions::Companion;
use belay_supervisor::instances::Instance;
use belay_supervisor::text::OsText;
use clap::Parser;
use std::ffi::OsString;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::thread;
use std::time::{Duration, Instant};

/// What comes before the place of a volume in the command lines of its processes.
const PLACE: &str = "--place";
/// The smallest cache: less would be full with one large write.
const LEAST_MEMORY: u64 = 8 << 20;
/// How long processes of an earlier mount may take to end, and how often that is looked at.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// `belay run`, as it is parsed.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Held {
    #[command(flatten)]
    run: Run,
}

/// Runs it.
pub fn run(options: &VolumeMount) -> Result<i32> {
    let name = &options.name;
    let named = Named::find(name)?;
    let definition = &named.definition;
    ensure!(
        options.memory >= LEAST_MEMORY,
        "the cache of volume {name} cannot have {} bytes of memory: give it {} MiB or more",
        options.memory,
        LEAST_MEMORY >> 20
    );
    ensure!(
        options.memory <= memory::MOST,
        "the cache of volume {name} cannot have {} bytes of memory: give it {} GiB or less",
        options.memory,
        memory::MOST >> 30
    );
    let mountpoint = options.mountpoint.canonicalize().with_context(|| {
        format!("cannot mount volume {name} at {}", options.mountpoint.display())
    })?;
    let id = definition.id.into_bytes();
    let known = Place::find(id)?;
    let is_new = known.is_none();
    let place = known.map_or_else(|| Place::of(id), Ok)?;
    // Successors of its processes would find the mount in their way, and wait for themselves.
    let stores = definition.stores.iter().map(|store| &*store.path);
    for path in stores.chain([place.path()]) {
        if path.canonicalize().is_ok_and(|path| path.starts_with(&mountpoint)) {
            if is_new {
                let _ = memory::clear(&place);
            }
            bail!(
                "cannot mount volume {name} at {}: {} is there, and the mount would hide it: choose another directory",
                mountpoint.display(),
                path.display()
            );
        }
    }
    let hold = hold(&place, name)?;
    pulse::make_all(&place)?;
    // What is wrong with the stores is better said here than by a process in the background.
    let refused = || format!("cannot mount volume {name}");
    for (store, disk, last) in named.disks_and_checkpoints().with_context(refused)? {
        let path = store.path.display();
        match root::next(&disk, &last) {
            Next::Nothing => {}
            Next::Broken => say(&format!(
                "belay: {path}: no root of checkpoint {} is whole, as a power failure has cut it off, or it is damaged: going on from \
                 checkpoint {}\n",
                last.epoch + 1,
                last.epoch
            )),
            Next::Lost => {
                let why = root::lost(&last);
                return Err(anyhow!("{path}: {why}; `belay volume cut-log {name}` gives it up"))
                    .with_context(refused);
            }
        }
    }
    report::forget(&place)?;
    // Which mount it is: requests of others have other meanings.
    let mount = RandomState::new().hash_one(std::process::id()).max(1);
    let words = |role: Role, rest: Vec<OsString>| {
        let mut words = vec![format!("volume-{role}").into(), name.as_str().into()];
        words.extend([PLACE.into(), place.path().into()]);
        words.extend(rest);
        words
    };
    let paths = definition.stores.iter();
    let stores = paths.flat_map(|store| ["--store".into(), store.path.clone().into()]).collect();
    let number = || ["--mount".into(), mount.to_string().into()];
    let cache = number()
        .into_iter()
        .chain(["--memory".into(), options.memory.to_string().into()])
        .collect();
    let companion = |role: Role, rest| Companion {
        role: role.name().to_owned(),
        words: words(role, rest).into_iter().map(OsText).collect(),
        lock: OsText::from(place.lock(role)),
        pulse: OsText::from(place.pulse(role)),
        hang_timeout_ms: hang_limit(options.hang_timeout).unwrap_or(0),
        report: Some(OsText::from(place.report(role))),
    };
    let beside = Beside {
        names: Some(name.as_str().into()),
        companions: vec![companion(Role::Store, stores), companion(Role::Cache, cache)],
        pulse: Some(OsText::from(place.pulse(Role::Namespace))),
        standby: true,
        hold: Some(hold.into()),
    };
    let forbids = options.options.iter().flat_map(|one| {
        ["--forbids".to_owned(), one.forbids().name().to_owned()].map(OsString::from)
    });
    let namespace =
        number().into_iter().chain(forbids).chain([mountpoint.into_os_string()]).collect();
    let held = held(options, words(Role::Namespace, namespace))?;
    run_with(&held, beside)
}

/// Where the processes of a volume meet, if that is what somebody holds.
pub fn place_of(instance: &Instance) -> Option<Place> {
    let config = instance.config()?;
    which::held(&config)?;
    let place = config.command.iter().skip_while(|word| word.0 != *PLACE).nth(1)?;
    Place::at(place.as_path()).ok()
}

/// Becomes the one who mounts it; waits for processes of an earlier mount whose keeper and
/// supervisor were killed. These end when the namespace module has, with a checkpoint, unless
/// somebody holds the mount.
fn hold(place: &Place, name: &VolumeName) -> Result<File> {
    let mut end = None;
    loop {
        let Some(hold) = place.hold()? else {
            bail!(
                "volume {name} is mounted already, by this name or as a copy with the same id; see `belay status`"
            )
        };
        let Some((role, pid)) = place.any_holder()? else { return Ok(hold) };
        drop(hold);
        let end = *end.get_or_insert_with(|| {
            say(&format!(
                "belay: waiting for the processes of an earlier mount of volume {name} to end\n"
            ));
            Instant::now() + PATIENCE
        });
        ensure!(
            Instant::now() < end,
            "the {role} process {pid} of an earlier mount of volume {name} lives still, though nobody holds that mount; end it (kill -KILL \
             {pid}) and try again: what it has not stored yet is in memory, and is there then"
        );
        thread::sleep(LOOK);
    }
}

/// How `belay run` is asked to hold the namespace module.
fn held(options: &VolumeMount, module: Vec<OsString>) -> Result<Run> {
    let exe = std::env::current_exe().context("cannot find belay's own program")?;
    let mut words: Vec<OsString> = Vec::new();
    for (option, value) in [
        ("--policy", "records".to_owned()),
        ("--inode-numbers", "stable".to_owned()),
        ("--hang-timeout", humantime::format_duration(options.hang_timeout).to_string()),
        ("--poison-after", options.poison_after.to_string()),
        ("--max-crashes", options.max_crashes.to_string()),
    ] {
        words.extend([option.into(), value.into()]);
    }
    words.extend(["--state-dir".into(), options.state.path().into()]);
    words.extend(options.background.then(|| "--background".into()));
    if let Some(file) = &options.log_file {
        words.extend(["--log-file".into(), file.into()]);
    }
    words.extend(std::iter::repeat_n("-v".into(), usize::from(options.verbose)));
    words.extend(["--".into(), exe.into()]);
    words.extend(module);
    Ok(Held::try_parse_from(words)?.run)
}

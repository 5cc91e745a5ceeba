//! `belay run`: checks, then becomes the keeper.

use super::background::Background;
use crate::cli::Run;
use crate::image_preparation::{self, Wishes};
use crate::preflight::binary::{self, Holding};
use crate::preflight::{doubt, machine, mount_command, mountpoint, place, script, shim};
use crate::profile::{self, Asked, Chosen, InodeNumbers};
use anyhow::Result;
use belay_supervisor::background::LOG;
use belay_supervisor::companions::Companion;
use belay_supervisor::config::{Config, Medium, VERSION};
use belay_supervisor::image::ImageFds;
use belay_supervisor::text::OsText;
use belay_supervisor::turn::Turn;
use belay_supervisor::{Policy, instances, keeper, process, signals};
use rustix::fd::OwnedFd;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

/// Runs it.
pub fn run(options: &Run) -> Result<i32> {
    run_with(options, Beside::default())
}

/// What a daemon needs beside it.
#[derive(Debug, Default)]
pub struct Beside {
    /// Processes.
    pub companions: Vec<Companion>,
    /// What the mount is called, if not by its mountpoint.
    pub names: Option<OsString>,
    /// By which it shows that it waits for one of them.
    pub pulse: Option<OsText>,
    /// Its next process may be started before it is needed.
    pub standby: bool,
    /// What is held from the start of the mount to its end.
    pub hold: Option<OwnedFd>,
}

/// Runs it with processes that the daemon needs beside it.
pub fn run_with(options: &Run, beside: Beside) -> Result<i32> {
    machine::check_descriptors(beside.companions.len())?;
    let name = options.command.first().map_or(OsStr::new(""), |name| name.as_os_str());
    mount_command::check(&options.command)?;
    let named = binary::find(name)?;
    let (program, words) = script::resolve(named.clone(), &options.command)?;
    let holding = binary::check(&program)?;
    doubt::check_wrapper(&program, &options.command, "run")?;
    machine::check()?;
    let shim = shim::find()?;
    let state_dir = options.state.path();
    let guessed = mountpoint::guess(&options.command);
    let old_kernel = machine::kernel() < machine::RESEND_SINCE;
    let asked = Asked {
        policy: options.policy.into(),
        inode_numbers: options.inode_numbers.into(),
        flush: options.flush,
        checkpoints: options.checkpoints.clone(),
        until: options.buffer_until.map(Into::into),
        unseen: match holding {
            Holding::Library => None,
            Holding::Relay(why) => Some(why),
        },
    };
    let look = || Seen::look(&asked, &named, options);
    let (Seen { chosen, medium, doubt }, turn) = match guessed.as_deref() {
        Some(path) => take(&state_dir, path, look)?,
        None => (look()?, None),
    };
    let others = instances::list(&state_dir);
    tracing::debug!("policy {}: {}", chosen.policy.effective(), chosen.reason);
    if let Some(replacing) = &chosen.replacing {
        tracing::info!("{replacing}");
    }
    if let Some(loses) = &chosen.loses {
        tracing::info!("{}; {}", loses.what, loses.remedy);
    }
    let wishes = Wishes {
        epochs: chosen.policy == Policy::Epoch,
        image: options.image.as_deref().or(chosen.image.as_deref()),
        journal: options.journal.as_deref(),
    };
    let (image, image_fds) = image_preparation::prepare(&options.command, wishes, &others)?.unzip();
    let (image_as, image) = image.unzip();
    let stores = match chosen.policy {
        Policy::Buffer => image_preparation::stores(&options.command),
        _ => Vec::new(),
    };
    let hint = guessed.as_deref().unwrap_or(Path::new(name));
    // First, since it may be what makes room.
    instances::clean(&state_dir);
    let instance = instances::create(&state_dir, hint)?;
    let dir = instance.folder.path().to_owned();
    let blocked_signals = signals::unblock()?;
    let holds = beside.names.unwrap_or_else(|| hint.as_os_str().to_owned());
    let background = match options.background {
        true => Some(
            Background::start(options, &holds, &instance.folder).inspect_err(|_| retire(&dir))?,
        ),
        false => None,
    };
    let config = Config {
        version: VERSION,
        program,
        command: words.into_iter().map(OsText).collect(),
        shim,
        relay: matches!(holding, Holding::Relay(_)),
        preload: OsText(std::env::var_os("LD_PRELOAD").unwrap_or_default()),
        instance: dir.clone(),
        guessed_mountpoint: guessed.clone().map(OsText::from),
        max_crashes: options.max_crashes,
        poison_after: options.poison_after,
        retry_for_ms: millis(options.retry_for),
        ends_itself: options.ends_itself,
        hang_timeout_ms: options.hang_timeout.and_then(hang_limit),
        start_timeout_ms: millis(options.start_timeout),
        memory_limit: options.memory_limit,
        recorder_limit: options.recorder_limit,
        policy: chosen.policy,
        policy_reason: chosen.reason,
        unproven: chosen.unproven,
        watched: chosen.watched,
        loses_unconnected: chosen.loses.is_some_and(|loses| !loses.buffered),
        ends_unconnected: chosen.ends_unconnected,
        checkpoints: chosen.checkpoints,
        until: chosen.until,
        stores,
        image,
        image_as,
        no_resend: options.no_resend || old_kernel,
        volatile_inodes: chosen.inode_numbers == InodeNumbers::Volatile,
        medium,
        doubt,
        verbose: options.verbose,
        log: background.as_ref().map(|it| it.log().path().into()),
        log_begin: background.as_ref().map_or(0, |it| it.log().begin()),
        keeper_pid: background.as_ref().map_or_else(std::process::id, Background::pid),
        bystanders: match &background {
            Some(_) => Vec::new(),
            None => process::children(std::process::id()),
        },
        companions: beside.companions,
        pulse: beside.pulse,
        standby: beside.standby,
        holds: Some(OsText(holds)),
        blocked_signals,
    };
    let image_fds = match beside.hold {
        None => image_fds,
        hold => Some(ImageFds { hold, ..image_fds.unwrap_or_default() }),
    };
    let descriptors = match keeper::prepare(&config, instance, image_fds) {
        Ok(descriptors) => descriptors,
        Err(error) => {
            if let Some(background) = background {
                background.cancel();
            }
            retire(&dir);
            return Err(error.into());
        }
    };
    // Whoever comes next finds this place in the configuration.
    drop(turn);
    match background {
        Some(background) => background.wait(descriptors, &dir).inspect_err(|_| retire(&dir)),
        None => Ok(keeper::run(&config, descriptors).inspect_err(|_| retire(&dir))?),
    }
}

/// What is seen of the daemon and of what it works on before it starts. Whoever serves that may not
/// answer.
struct Seen {
    chosen: Chosen,
    medium: Option<Medium>,
    doubt: Option<String>,
}

impl Seen {
    fn look(asked: &Asked, named: &Path, options: &Run) -> Result<Self> {
        let chosen = profile::choose(asked, named, &options.command, options.image.as_deref())?;
        let medium = chosen.medium.as_deref().and_then(|path| Medium::look(path).ok());
        let doubt = doubt::of(&options.command).map(|doubt| doubt.told());
        // What is done with images and journals has to be done in the turn. Whoever serves them is
        // asked here for the first time, and if nobody answers, it is here that this start waits.
        let _ = image_preparation::named(&options.command);
        for path in [&options.image, &options.journal].into_iter().flatten() {
            let _ = path.metadata();
        }
        Ok(Self { chosen, medium, doubt })
    }
}

/// Takes the turn at `path`, after a look: who waits for an answer keeps nobody from the place. If
/// the turn was waited for, whoever had the place may have changed what was seen, so it is looked
/// at anew, again without the turn.
fn take(
    state_dir: &Path,
    path: &Path,
    look: impl Fn() -> Result<Seen>,
) -> Result<(Seen, Option<Turn>)> {
    loop {
        let seen = look()?;
        let (turn, waited) = place::take(state_dir, path)?;
        if !waited {
            return Ok((seen, Some(turn)));
        }
    }
}

/// Removes what a start that has failed leaves behind.
fn retire(dir: &Path) {
    let _ = std::fs::remove_file(dir.join(LOG));
    instances::retire(dir);
}

/// A hang timeout in milliseconds; `None` if it is 0, which means never.
pub(super) fn hang_limit(timeout: Duration) -> Option<u64> {
    (!timeout.is_zero()).then(|| millis(timeout).max(1))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

//! `belay qualify`: crashes a daemon at every point of every operation, under each policy, and says
//! which it needs.
//!
//! | module | answers |
//! | --- | --- |
//! | [`options`] | what can be asked for |
//! | [`image_argument`] | which argument is a disk image, and how is it copied |
//! | [`probe`] | who can use the mount, what do its inode numbers tell |
//! | [`daemon`], [`mount`] | how is the daemon started and taken away |
//! | [`study`] | which experiments are made, by `belay-study` |
//! | [`model`] | what was found, and what follows from it |
//! | [`table`], [`replay`] | how is it told |
//! | [`profile`] | what is written for `--policy auto` |

mod daemon;
mod image_argument;
mod model;
mod mount;
pub mod options;
mod probe;
mod profile;
mod replay;
mod study;
mod table;

use crate::messages::{Out, say};
use crate::preflight::binary::{self, Holding};
use crate::preflight::{doubt, machine, mountpoint, script, shim};
use crate::profile::{Buffer, InodeNumbers, Profile};
use anyhow::{Context, Result, bail, ensure};
use belay_study::{OPERATIONS, Operation, User};
use belay_supervisor::config::Until;
use belay_supervisor::instances;
use belay_supervisor::text::{command_line, count};
use daemon::Target;
use image_argument::Wishes;
use model::{Qualification, SCHEMA_VERSION};
use options::{Options, Tried};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;
use tempfile::TempDir;

/// Runs it; the exit code is 0 if the daemon is certified (or the one experiment went well).
///
/// # Errors
/// If the study cannot be made.
pub fn run(options: &Options) -> Result<i32> {
    let name = options.command.first().map_or(OsStr::new(""), |name| name.as_os_str());
    let program = binary::find(name)?;
    let started = script::resolve(program.clone(), &options.command)?.0;
    if let Holding::Relay(why) = binary::check(&started)? {
        bail!(
            "{} {why}, so a relay holds it, and the policy is reconcile: there is nothing to find out",
            started.display()
        );
    }
    doubt::check_wrapper(&started, &options.command, "qualify")?;
    machine::check()?;
    shim::find()?;
    let short = program.file_name().unwrap_or(name).to_string_lossy().into_owned();
    let profile_path = profile::path(options, &short)?;
    if let Some(path) = &options.json {
        // What cannot be written is better known before the study than after it.
        let file = File::options().write(true).create(true).truncate(false).open(path);
        file.with_context(|| format!("cannot write {}", path.display()))?;
    }
    let scratch = scratch()?;
    let mut target = target(options, &short, &scratch)?;
    let mut all = blank(options, &short, &target);
    let interrupted = interrupts()?;
    no_core_dumps();
    target.family = mount::Family::found()?;
    let mut target = Rc::new(target);
    let studied = examine(options, &mut target, interrupted, &mut all);
    // Whatever came of it, nothing is to be left behind.
    if let Err(error) = probe::clear(&target) {
        let left = target.work.display();
        say(&format!("belay: warning: {left} (when mounted) could not be removed: {error:#}\n"));
    }
    studied?;
    conclude(options, profile_path.as_deref(), &short, &mut all)
}

/// Learns what must be known of the daemon, and makes the experiments.
fn examine(
    options: &Options,
    target: &mut Rc<Target>,
    interrupted: Arc<AtomicBool>,
    all: &mut Qualification,
) -> Result<()> {
    let found = probe::probe(target, options.as_user)?;
    if let Some(target) = Rc::get_mut(target) {
        (target.user, target.links) = (found.user, found.links);
    }
    all.user = match found.user {
        User::Other(id) => Some(id),
        User::Own => None,
    };
    let mut lab = study::Lab::new(options, Rc::clone(target), interrupted, all);
    lab.run(&operations(options), &policies(options, target.has_file_system()))?;
    if target.volatile.get() {
        all.inode_numbers = Some(InodeNumbers::Volatile);
    }
    Ok(())
}

/// Judges, writes and tells.
fn conclude(
    options: &Options,
    profile_path: Option<&Path>,
    program: &str,
    all: &mut Qualification,
) -> Result<i32> {
    let well = if options.only.is_some() {
        all.judge_one()
    } else {
        all.choose();
        all.certified.is_some()
    };
    if let (Some(path), Some(policy)) = (profile_path, all.certified) {
        let experiments: usize = all.policies.iter().map(|column| column.experiments).sum();
        let made = count(experiments as u64, "experiment");
        let mut text = format!("{program} {} {made}, belay {}", all.date, all.belay);
        if !options.ops.is_empty() {
            let names: Vec<_> = options.ops.iter().map(|op| op.name).collect();
            text += &format!(", only {}", names.join(", "));
        }
        let mut profile = Profile::new(program, policy.into(), text)?;
        // This one comes before whatever else knows the daemon.
        let known = crate::profile::find(Path::new(program))?.map(|found| found.profile);
        let numbers = all.inode_numbers.or(known.as_ref().map(|known| known.inode_numbers));
        profile.inode_numbers = numbers.unwrap_or_default();
        if policy == Tried::Buffer {
            // As it was tried.
            let until = until(all.image.is_some(), known.as_ref());
            profile.buffer = Some(Buffer { until, forgets: None });
        }
        if policy == Tried::Epoch {
            profile.flush = options.flush.or(known.as_ref().and_then(|known| known.flush));
            profile.checkpoint = known.map(|known| known.checkpoint).unwrap_or_default();
        }
        profile::write(path, options.force, &profile)?;
        all.profile = Some(path.display().to_string());
    }
    write!(Out, "{}", table::text(all))?;
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&all)? + "\n";
        std::fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
    }
    if let Some(path) = &all.profile {
        writeln!(Out, "profile: {path}")?;
        if options.profile.is_none()
            && let Some((name, policy)) = crate::profile::built_in(Path::new(program))
        {
            writeln!(
                Out,
                "`belay run` goes by it instead of the built-in profile {name} (policy {policy}); remove it to undo that"
            )?;
        }
        if options.profile.is_none()
            && let Some(found) = crate::profile::find(Path::new(program))?
            && found.source != *path
        {
            writeln!(Out, "but `belay run` goes by {}, which comes before it", found.source)?;
        }
    }
    Ok(i32::from(!well))
}

/// A directory of our own, for nobody else's eyes.
fn scratch() -> Result<TempDir> {
    let dir = tempfile::Builder::new().prefix("belay-qualify-").tempdir();
    dir.with_context(|| format!("making a directory in {}", std::env::temp_dir().display()))
}

/// Until when a daemon holds what it has acknowledged, under the policy `buffer`: with an archive
/// until its end, else as a profile says that knows it, else until a file is flushed.
fn until(archive: bool, known: Option<&Profile>) -> Until {
    match known.and_then(|known| known.buffer.as_ref()) {
        _ if archive => Until::End,
        Some(buffer) => buffer.until,
        None => Until::Flush,
    }
}

fn target(options: &Options, program: &str, scratch: &TempDir) -> Result<Target> {
    let command = options.command.clone();
    let wishes = Wishes {
        image: options.image.as_deref(),
        none: options.no_image,
        device: options.use_device,
    };
    let image = image_argument::detect(&command, wishes)?;
    ensure!(
        options.check.is_none() || image.is_some(),
        "--check is for disk images, of which the daemon's command line names none"
    );
    let mountpoint = mountpoint_of(options)?;
    mountpoint::check(&mountpoint, &instances::list(&instances::default_state_dir()))?;
    let scratch = scratch.path().canonicalize().context("resolving the temporary directory")?;
    let known = crate::profile::find(Path::new(program))?.map(|found| found.profile);
    let until = until(image.is_some(), known.as_ref());
    let below = options.dir.as_deref().map(inside).transpose()?.unwrap_or_default();
    // As random as the temporary directory's.
    let mut name = std::ffi::OsString::from(".");
    name.push(scratch.file_name().context("a temporary directory has a name")?);
    let below = below.join(name);
    let behind = match &options.behind {
        Some(dir) => Some(there(dir, "--behind")?),
        None => None,
    };
    Ok(Target {
        command,
        work: mountpoint.join(&below),
        behind: behind.map(|dir| dir.join(&below)),
        mountpoint,
        image,
        check: options.check.clone(),
        scratch,
        user: User::Own,
        links: false,
        limit: options.op_timeout,
        flush: options.flush,
        until,
        volatile: Cell::new(false),
        family: mount::Family::default(),
        made: Cell::new(false),
    })
}

/// The mountpoint: what was named, else what it is most probably.
fn mountpoint_of(options: &Options) -> Result<PathBuf> {
    if let Some(path) = &options.mountpoint {
        return there(path, "--mountpoint");
    }
    if let Some(path) = mountpoint::guess(&options.command) {
        return Ok(path);
    }
    match mountpoint::missing(&options.command) {
        Some(path) => bail!(
            "{} is not there: if it is the mountpoint, make it (`mkdir -p {}`); if another argument is, name that by --mountpoint",
            path.display(),
            command_line([path.as_os_str()])
        ),
        None => {
            bail!("no argument of the daemon is a directory: name the mountpoint by --mountpoint")
        }
    }
}

/// A directory that an option names.
fn there(path: &Path, option: &str) -> Result<PathBuf> {
    let shown = path.display();
    match path.canonicalize() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "{option} {shown}: there is no such directory; make it (`mkdir -p {}`), or check its name",
            command_line([path.as_os_str()])
        ),
        found => found.with_context(|| format!("{option} {shown}: cannot find it")),
    }
}

/// A directory of the mount, which a leading slash means as well.
fn inside(dir: &Path) -> Result<PathBuf> {
    let mut path = PathBuf::new();
    for part in dir.components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::RootDir | Component::CurDir => {}
            _ => bail!("--dir {}: it must lie below the mountpoint", dir.display()),
        }
    }
    Ok(path)
}

fn operations(options: &Options) -> Vec<&'static Operation> {
    match &options.only {
        Some(only) => vec![only.operation],
        None if options.ops.is_empty() => OPERATIONS.iter().collect(),
        // In the order of the tables, each once.
        None => {
            let wanted = |op: &&Operation| options.ops.iter().any(|other| other.name == op.name);
            OPERATIONS.iter().filter(wanted).collect()
        }
    }
}

fn policies(options: &Options, file_system: bool) -> Vec<Tried> {
    let mut policies = options.policies.clone();
    if policies.is_empty() {
        policies = vec![Tried::Reconcile, Tried::Journal];
        policies.extend_from_slice(if file_system {
            &[Tried::Transaction, Tried::Epoch]
        } else {
            &[Tried::Buffer]
        });
    }
    policies.sort_unstable();
    policies.dedup();
    policies
}

fn blank(options: &Options, program: &str, target: &Target) -> Qualification {
    let words = options.command.iter().map(|word| word.to_string_lossy().into_owned());
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    Qualification {
        schema_version: SCHEMA_VERSION,
        belay: env!("CARGO_PKG_VERSION").to_owned(),
        date,
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        command: words.collect(),
        program: program.to_owned(),
        user: None,
        inode_numbers: None,
        image: target.image.as_ref().map(|image| image.word.to_string_lossy().into_owned()),
        operations: Vec::new(),
        policies: Vec::new(),
        dry_runs: Vec::new(),
        experiments: Vec::new(),
        troubles: Vec::new(),
        certified: None,
        verdict: String::new(),
        profile: None,
    }
}

/// The first Ctrl-C asks for an orderly end, the second ends at once.
fn interrupts() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal finds the flag unset and sets it, the second finds it
        // set.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .context("registering a signal handler")?;
    }
    Ok(flag)
}

/// Hundreds of crashes need not leave hundreds of dumps.
fn no_core_dumps() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Core).maximum;
    // Dumps cost time and room, no more.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a daemon of its kind does not store yet is only right if it is held for as long as its
    /// profile says.
    #[test]
    fn buffers_are_tried_as_their_profile_says() {
        let of = |program: &str| crate::profile::find(Path::new(program)).unwrap().unwrap().profile;
        assert_eq!(until(false, Some(&of("mount.davfs"))), Until::Release);
        assert_eq!(until(true, Some(&of("mount.davfs"))), Until::End, "an archive is one file");
        assert_eq!(until(false, Some(&of("bindfs"))), Until::Flush, "a profile without a buffer");
        assert_eq!(until(false, None), Until::Flush);
        assert_eq!(until(true, None), Until::End);
    }

    #[test]
    fn directories_of_the_mount_stay_in_it() {
        assert_eq!(inside(Path::new("/a/./b")).unwrap(), Path::new("a/b"));
        assert_eq!(inside(Path::new("")).unwrap(), Path::new(""));
        assert!(inside(Path::new("a/../../b")).is_err());
    }
}

//! The checks.

use super::{Finding, Level};

use crate::preflight::binary::{self, Holding};
use crate::preflight::doubt::{self, Doubt};
use crate::preflight::{machine, mount_command, mountpoint, script, shim};
use crate::profile;
use belay_supervisor::text::span;
use belay_supervisor::{Error, allow_other, instances};
use rustix::process::{Resource, getrlimit};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// All checks, those of a daemon if a command is given.
pub fn all(state_dir: &Path, command: &[OsString]) -> Vec<Finding> {
    let mut findings = vec![kernel(), device()];
    findings.extend(super::user::all());
    findings.extend([
        library(),
        state_directory(state_dir),
        control_files(),
        request_timeout(),
        open_files(),
    ]);
    match command {
        [] => findings.extend(profile::broken().into_iter().map(broken_profile)),
        command => findings.extend(daemon(state_dir, command)),
    }
    findings
}

pub(super) fn finding(
    name: &'static str,
    level: Level,
    found: impl Into<String>,
    remedy: &str,
) -> Finding {
    Finding { name, level, found: found.into(), remedy: remedy.to_owned() }
}

/// The parts of a refusal: why, and the remedy.
pub(super) fn refusal(name: &'static str, error: &Error) -> Finding {
    match error {
        Error::System { action, object, why, remedy } => {
            finding(name, Level::Missing, format!("cannot {action} {object}: {why}"), remedy)
        }
        Error::Refused { what, why, remedy } => {
            finding(name, Level::Missing, format!("{what}: {why}"), remedy)
        }
    }
}

fn state_directory(dir: &Path) -> Finding {
    match instances::check_private(dir) {
        Ok(()) => finding("state directory", Level::Ok, dir.display().to_string(), ""),
        Err(error) => refusal("state directory", &error),
    }
}

fn kernel() -> Finding {
    let (major, minor) = machine::kernel();
    if (major, minor) >= machine::RESEND_SINCE {
        let found = format!("Linux {major}.{minor}, which resends requests after a crash");
        return finding("kernel", Level::Ok, found, "");
    }
    finding(
        "kernel",
        Level::Note,
        format!("Linux {major}.{minor} cannot resend requests, so belay keeps copies of them"),
        "Linux 6.9 or later saves these copies",
    )
}

fn device() -> Finding {
    match machine::check_device(Path::new("/dev/fuse")) {
        Ok(()) => finding("/dev/fuse", Level::Ok, "can be opened", ""),
        Err(error) => refusal("/dev/fuse", &error),
    }
}

fn library() -> Finding {
    let path = match shim::find() {
        Ok(path) => path,
        Err(error) => return refusal("shim library", &error),
    };
    // Loaded into a program that does nothing: without its variables the shim stays asleep.
    let output = Command::new("true").env("LD_PRELOAD", &path).env_remove("BELAY_SHIM").output();
    let complaint = match output {
        Ok(output) if output.status.success() && output.stderr.is_empty() => String::new(),
        Ok(output) => {
            format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())
        }
        Err(error) => error.to_string(),
    };
    let shown = path.display();
    if complaint.is_empty() {
        return finding("shim library", Level::Ok, format!("{shown} can be loaded"), "");
    }
    finding(
        "shim library",
        Level::Missing,
        format!("{shown} cannot be loaded: {complaint}"),
        "build it on this machine: cargo build --release",
    )
}

fn control_files() -> Finding {
    let place = "/sys/fs/fuse/connections";
    let mounted = belay_supervisor::mounts::at(Path::new(place)).is_some();
    if mounted {
        return finding("FUSE control files", Level::Ok, place, "");
    }
    finding(
        "FUSE control files",
        Level::Note,
        format!("{place} is not mounted; belay closes the device instead where it gives up"),
        "mount -t fusectl fusectl /sys/fs/fuse/connections",
    )
}

fn request_timeout() -> Finding {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/fs/fuse/{name}")).unwrap_or_default();
        text.trim().parse::<u64>().unwrap_or(0)
    };
    let limits = [read("default_request_timeout"), read("max_request_timeout")];
    match limits.into_iter().filter(|limit| *limit > 0).min() {
        None => finding("request timeout", Level::Ok, "the kernel sets none", ""),
        Some(seconds) => finding(
            "request timeout",
            Level::Note,
            format!(
                "the kernel aborts a mount when a request takes {}, crashes included",
                span(Duration::from_secs(seconds))
            ),
            "sysctl fs.fuse.default_request_timeout=0 fs.fuse.max_request_timeout=0",
        ),
    }
}

fn open_files() -> Finding {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if limit >= 256 {
        return finding("open files", Level::Ok, format!("up to {limit}"), "");
    }
    finding(
        "open files",
        Level::Note,
        format!("only up to {limit}: restored handles may not all fit"),
        "ulimit -n 20000",
    )
}

/// A profile that cannot be read.
fn broken_profile(why: String) -> Finding {
    finding("profile", Level::Missing, why, "see docs/policies.md for what a profile may say")
}

/// What a profile says that this daemon may lose, and does not store; or what keeps belay from
/// finding it.
fn losing(name: &OsStr, command: &[OsString]) -> Vec<Finding> {
    let found = match profile::find(Path::new(name)) {
        Ok(Some(found)) => found,
        Ok(None) => return Vec::new(),
        Err(why) => return vec![broken_profile(format!("{why:#}"))],
    };
    let loses = profile::losing(&found.profile, command);
    let loses = loses.map(|loses| finding("policy", Level::Note, loses.what, &loses.remedy));
    let told = |forgets| {
        finding(
            "policy",
            Level::Note,
            forgets,
            "that is so without belay as well (SEMANTICS.md, L47, L52)",
        )
    };
    loses.into_iter().chain(profile::forgetting(&found.profile).map(told)).collect()
}

fn daemon(state_dir: &Path, command: &[OsString]) -> Vec<Finding> {
    let name = command.first().map(|name| name.as_os_str()).unwrap_or_default();
    let checked = mount_command::check(command)
        .and_then(|()| binary::find(name))
        .and_then(|path| script::resolve(path, command))
        .and_then(|(path, _)| binary::check(&path).map(|how| (path, how)))
        .and_then(|found| doubt::check_wrapper(&found.0, command, "run").map(|()| found));
    let doubt = doubt::of(command);
    let mut may_lose = Vec::new();
    let mut findings = vec![match checked {
        Ok((path, _))
            if doubt.as_ref().is_some_and(|doubt| doubt.kind == doubt::Kind::NoDaemon) =>
        {
            let (found, remedy) = doubt::NO_DAEMON;
            finding(super::DAEMON, Level::Note, format!("{} {found}", path.display()), remedy)
        }
        Ok((path, how)) => {
            may_lose = losing(name, command);
            let how = match how {
                Holding::Library => "is linked dynamically and can be held".to_owned(),
                Holding::Relay(why) => {
                    format!("{why}, and is held by a relay between it and the kernel")
                }
            };
            let found = format!("{} {how}", path.display());
            finding(super::DAEMON, Level::Ok, found, "")
        }
        Err(error) => refusal(super::DAEMON, &error),
    }];
    findings.extend(may_lose);
    // Whose arguments are its own.
    let doubted = doubt.is_some();
    if let Some(Doubt { kind: doubt::Kind::Starter, found, remedy }) = &doubt {
        findings.push(finding(super::WRAPPER, Level::Note, found, remedy));
    }
    let asks = || allow_other::is_asked_for(command) && !allow_other::is_allowed();
    if !machine::may_mount() && asks() {
        let (found, remedy) = (allow_other::MISSING, allow_other::REMEDY);
        findings.push(finding("other users", Level::Missing, found, remedy));
    }
    if let Some(word) = mountpoint::missing(command).filter(|_| !doubted) {
        findings.push(finding(
            "mountpoint",
            Level::Missing,
            format!("{} is not there", word.display()),
            "make the directory (mkdir), or check its name",
        ));
    } else if command.len() > 1 {
        findings.push(match mountpoint::guess(command) {
            None => finding(
                "mountpoint",
                Level::Note,
                "no argument of the daemon is a directory",
                "check that the mountpoint exists",
            ),
            Some(path) => {
                let instances = instances::list(state_dir);
                match mountpoint::check(&path, &instances) {
                    Ok(()) => {
                        let found = format!("{} is free", path.display());
                        finding("mountpoint", Level::Ok, found, "")
                    }
                    Err(error) => refusal("mountpoint", &error),
                }
            }
        });
    }
    findings
}

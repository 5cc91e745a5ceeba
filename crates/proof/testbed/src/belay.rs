//! belay as its users see it: the program and its command line.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::run_ok;

const LIMIT: Duration = Duration::from_secs(30);

/// The belay program, found but not started.
#[derive(Clone, Debug)]
pub struct Belay {
    binary: PathBuf,
}

impl Belay {
    /// Finds the program: `$BELAY_BIN`, else beside this program (or above it, for test programs).
    ///
    /// # Errors
    /// When it is in none of these places.
    pub fn find() -> Result<Self> {
        if let Some(path) = std::env::var_os("BELAY_BIN") {
            let binary = PathBuf::from(path);
            if !binary.is_file() {
                bail!("BELAY_BIN is {}, which is no file", binary.display());
            }
            return Ok(Self { binary });
        }
        let exe = std::env::current_exe().context("finding this program's own path")?;
        let places = exe.ancestors().skip(1).take(2).map(|dir| dir.join("belay"));
        let binary = places.into_iter().find(|path| path.is_file());
        let binary = binary.with_context(|| {
            format!(
                "no belay beside {}: build it (`cargo build -p belay`) or set BELAY_BIN",
                exe.display()
            )
        })?;
        Ok(Self { binary })
    }

    /// A command that runs it, to which arguments are added.
    #[must_use]
    pub fn command(&self) -> Command {
        Command::new(&self.binary)
    }

    /// `belay status --json MOUNT`.
    ///
    /// # Errors
    /// When the command fails or says no JSON.
    pub fn status(&self, mountpoint: &Path) -> Result<Value> {
        let mut command = self.command();
        command.args(["status", "--json"]).arg(mountpoint);
        let output = run_ok(command, LIMIT)?;
        let value: Value = serde_json::from_slice(&output.stdout).with_context(|| {
            format!(
                "`belay status --json` said no JSON: {}",
                String::from_utf8_lossy(&output.stdout)
            )
        })?;
        Ok(of_mount(value, mountpoint))
    }

    /// `belay crash MOUNT --signal NAME`.
    ///
    /// # Errors
    /// When the command fails.
    pub fn crash(&self, mountpoint: &Path, signal: &str) -> Result<()> {
        let mut command = self.command();
        command.arg("crash").arg(mountpoint).args(["--signal", signal]);
        run_ok(command, LIMIT).map(drop)
    }

    /// `belay stop --force MOUNT`: other tests' processes may have, between fork and exec, copies of this one's descriptors.
    ///
    /// # Errors
    /// When the command fails.
    pub fn stop(&self, mountpoint: &Path) -> Result<()> {
        let mut command = self.command();
        command.args(["stop", "--force"]).arg(mountpoint);
        run_ok(command, LIMIT).map(drop)
    }
}

/// The part of a status that is about one mount, where the status is a list of mounts or holds one.
fn of_mount(value: Value, mountpoint: &Path) -> Value {
    let list = value.as_array().or_else(|| value.get("mounts").and_then(Value::as_array));
    let Some(list) = list else { return value };
    let ours =
        |v: &&Value| v.get("mountpoint").and_then(Value::as_str).map(Path::new) == Some(mountpoint);
    list.iter().find(ours).or_else(|| list.first()).cloned().unwrap_or(value)
}

/// The daemon's process id in a status: `daemon.pid` or `daemon_pid`.
pub(crate) fn daemon_pid(status: &Value) -> Option<u32> {
    let value = status.pointer("/daemon/pid").or_else(|| status.get("daemon_pid"))?;
    value.as_u64().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0)
}

/// The ids of belay's own processes in a status: all members `pid` and `..._pid`, wherever they are.
pub(crate) fn all_pids(status: &Value) -> Vec<u32> {
    let mut pids = Vec::new();
    match status {
        Value::Object(members) => {
            for (key, value) in members {
                match value.as_u64().and_then(|n| u32::try_from(n).ok()) {
                    Some(pid) if pid > 1 && (key == "pid" || key.ends_with("_pid")) => {
                        pids.push(pid)
                    }
                    _ => pids.extend(all_pids(value)),
                }
            }
        }
        Value::Array(items) => pids.extend(items.iter().flat_map(all_pids)),
        _ => {}
    }
    pids
}

/// Looks for a number in a status. `path` is a list of member names; each is looked for at any depth below the one
/// before, as written or with a unit appended (`p99` finds `p99_us`).
#[must_use]
pub fn find_number(status: &Value, path: &[&str]) -> Option<f64> {
    let Some((first, rest)) = path.split_first() else {
        return status.as_f64();
    };
    match status {
        Value::Object(members) => {
            let fits = |key: &str| {
                key == *first || key.strip_prefix(first).is_some_and(|unit| unit == "_us")
            };
            let direct =
                members.iter().filter(|(key, _)| fits(key)).find_map(|(_, v)| find_number(v, rest));
            direct.or_else(|| members.values().find_map(|v| find_number(v, path)))
        }
        Value::Array(items) => items.iter().find_map(|v| find_number(v, path)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn statuses_are_read() {
        let status = json!({"version": 1, "crashes": 3, "daemon": {"pid": 42, "generation": 2}, "keeper_pid": 7,
            "blackout_us": {"median": 900, "p99": 2000, "max": 2500.5}});
        assert_eq!(daemon_pid(&status), Some(42));
        assert_eq!(daemon_pid(&json!({"daemon_pid": 9})), Some(9));
        assert_eq!(daemon_pid(&json!({"daemon": {"pid": null}})), None);
        let mut pids = all_pids(&status);
        pids.sort_unstable();
        assert_eq!(pids, [7, 42]);
        assert_eq!(find_number(&status, &["blackout", "max"]), Some(2500.5));
        assert_eq!(find_number(&status, &["generation"]), Some(2.0));
        assert_eq!(find_number(&status, &["nothing"]), None);
    }

    #[test]
    fn the_right_mount_is_taken() {
        let list = json!({"mounts": [{"mountpoint": "/a"}, {"mountpoint": "/b", "crashes": 1}]});
        assert_eq!(of_mount(list, Path::new("/b"))["crashes"], 1);
        assert_eq!(of_mount(json!({"crashes": 2}), Path::new("/b"))["crashes"], 2);
    }
}

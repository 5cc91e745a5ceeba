//! The checks of what this user may do.

use super::checks::{finding, refusal};
use super::{Finding, Level};
use crate::preflight::{binary, helper, machine};
use belay_supervisor::allow_other;
use std::fs;

/// All of them.
pub fn all() -> Vec<Finding> {
    if machine::may_mount() {
        return vec![rights(), ending(), fusermount(), namespaces()];
    }
    vec![mounting(), others(), tracing()]
}

fn rights() -> Finding {
    finding("right to mount", Level::Ok, "this process has CAP_SYS_ADMIN", "")
}

/// A daemon that gives up root is another user's process.
fn ending() -> Finding {
    let name = "right to end daemons";
    if machine::may_lose_daemon() {
        return finding(name, Level::Note, machine::NO_KILL, machine::NO_KILL_REMEDY);
    }
    finding(name, Level::Ok, "no daemon can get out of reach", "")
}

fn mounting() -> Finding {
    match helper::check() {
        Ok(path) => {
            let found = format!("{} mounts for this user", path.display());
            finding("right to mount", Level::Ok, found, "")
        }
        Err(error) => refusal("right to mount", &error),
    }
}

fn fusermount() -> Finding {
    match binary::find("fusermount3".as_ref()) {
        Ok(path) => finding("fusermount3", Level::Ok, path.display().to_string(), ""),
        Err(_) if std::env::var_os("PATH").is_none_or(|path| path.is_empty()) => finding(
            "fusermount3",
            Level::Note,
            format!("not found, as {}; root can do without", binary::NO_PATH),
            "set PATH",
        ),
        Err(_) => finding(
            "fusermount3",
            Level::Note,
            "not found; root can do without",
            "install the package fuse3",
        ),
    }
}

fn others() -> Finding {
    if allow_other::is_allowed() {
        return finding("other users", Level::Ok, "/etc/fuse.conf allows -o allow_other", "");
    }
    finding(
        "other users",
        Level::Note,
        "/etc/fuse.conf does not allow -o allow_other (bindfs asks for it by itself; it has \
         --no-allow-other)",
        "as root, add a line user_allow_other to /etc/fuse.conf",
    )
}

/// What is needed to hold a daemon's connections beyond its death: pidfd_getfd(2), which asks for
/// the right to trace. The supervisor is the parent of each daemon, or as a subreaper becomes it.
fn tracing() -> Finding {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let name = "connections";
    match scope.trim() {
        "" | "0" => finding(name, Level::Ok, "a daemon's can be held beyond its death", ""),
        "1" => finding(
            name,
            Level::Ok,
            "a daemon's can be held beyond its death (Yama allows it for descendants), but not those \
             of a daemon whose supervisor died",
            "",
        ),
        scope => finding(
            name,
            Level::Note,
            format!(
                "Yama forbids holding a daemon's (ptrace_scope {scope}): what sshfs acknowledged and \
                 the server has not done when it crashes may be lost; and a successor that is \
                 linked statically, or written in Go, waits for itself if it looks at its mountpoint"
            ),
            "sysctl kernel.yama.ptrace_scope=1 (from 3 it takes a reboot)",
        ),
    }
}

fn namespaces() -> Finding {
    let none = |name: &str| {
        fs::read_to_string(format!("/proc/sys/user/{name}")).is_ok_and(|text| text.trim() == "0")
    };
    if none("max_mnt_namespaces") {
        return finding(
            "mount namespaces",
            Level::Missing,
            "the limit is 0, so a successor cannot be isolated from its own mount",
            "sysctl user.max_mnt_namespaces=1000",
        );
    }
    finding("mount namespaces", Level::Ok, "allowed", "")
}

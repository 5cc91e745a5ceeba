//! The command line of each daemon, such that its mount behaves like a common file system.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result};

use crate::examples::example;
use crate::kind::Kind;
use crate::sshd::Sshd;
use crate::zoo::Place;

/// What a daemon's command line is made of.
pub(crate) struct Parts<'a> {
    pub(crate) kind: Kind,
    pub(crate) backing: &'a Path,
    pub(crate) mountpoint: &'a Path,
    pub(crate) sshd: Option<&'a Sshd>,
    pub(crate) place: Option<&'a Place>,
    pub(crate) extra: &'a [String],
    pub(crate) repeatable: bool,
}

/// Time-outs of the kernel's caches set to nothing, in the words of libfuse 2 and 3.
const NO_TIMEOUTS: [&str; 3] = ["attr_timeout=0", "entry_timeout=0", "negative_timeout=0"];

/// The daemon's command line, program first. It stays in the foreground.
pub(crate) fn daemon(parts: &Parts<'_>) -> Result<Vec<OsString>> {
    let Parts { kind, backing, mountpoint, .. } = *parts;
    if let Some(place) = parts.place {
        return Ok(place.command(parts.extra));
    }
    let mut words: Vec<OsString> = Vec::new();
    let mut options: Vec<String> = Vec::new();
    let option = |options: &mut Vec<String>, list: &[&str]| {
        options.extend(list.iter().map(ToString::to_string))
    };
    let source = backing.display();
    match kind {
        Kind::PassthroughLl => {
            words.extend([example("passthrough_ll")?.into(), "-f".into()]);
            option(&mut options, &["allow_other", "default_permissions", "flock", "xattr"]);
            options.push(format!("source={source}"));
        }
        Kind::PassthroughHl => {
            // It sets all time-outs to 0 itself.
            words.extend([example("passthrough")?.into(), "-f".into()]);
            option(&mut options, &["allow_other", "default_permissions"]);
        }
        Kind::Bindfs => {
            words.extend(["bindfs".into(), "-f".into()]);
            option(&mut options, &["allow_other", "default_permissions"]);
            if parts.repeatable {
                option(&mut options, &NO_TIMEOUTS);
            }
        }
        Kind::Sshfs => {
            let sshd = parts.sshd.context("sshfs needs an sshd")?;
            words.extend(["sshfs".into(), "-f".into(), "-F".into(), "/dev/null".into()]);
            words.extend(["-p".into(), sshd.port.to_string().into()]);
            option(
                &mut options,
                &["allow_other", "default_permissions", "BatchMode=yes", "IdentitiesOnly=yes"],
            );
            option(
                &mut options,
                &["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"],
            );
            options.push(format!("IdentityFile={}", sshd.identity.display()));
            if parts.repeatable {
                option(&mut options, &["dir_cache=no"]);
                option(&mut options, &NO_TIMEOUTS);
            }
        }
        Kind::Ntfs3g => {
            words.push("ntfs-3g".into());
            option(
                &mut options,
                &["no_detach", "allow_other", "permissions", "noatime", "user_xattr"],
            );
        }
        Kind::Avfs => {
            words.extend(["avfsd".into(), "-f".into()]);
            option(&mut options, &["allow_other", "default_permissions"]);
            if parts.repeatable {
                option(&mut options, &NO_TIMEOUTS);
            }
        }
        Kind::Mergerfs => {
            words.extend(["mergerfs".into(), "-f".into()]);
            option(
                &mut options,
                &["allow_other", "default_permissions", "use_ino", "minfreespace=0"],
            );
            if parts.repeatable {
                option(&mut options, &["cache.attr=0", "cache.entry=0"]);
            }
        }
        Kind::Fuse2fsExt2 | Kind::Fuse2fsExt3 | Kind::Fuse2fsExt4 => {
            words.extend(["fuse2fs".into(), "-f".into()]);
            // The kernel checks permissions; the daemon's own checks know nothing of supplementary groups.
            option(&mut options, &["allow_other", "default_permissions", "fakeroot"]);
            if parts.repeatable {
                option(&mut options, &NO_TIMEOUTS);
            }
        }
        Kind::Fusefat => {
            // With several threads the READs of one file may come to it in another order than they were made, and what
            // it reads backwards within a cluster is wrong.
            words.extend(["fusefat".into(), "-f".into(), "-s".into()]);
            // Without `rw+` it writes nothing. A file comes to it in few requests: whoever has opened one with something in
            // it cannot append to it.
            option(&mut options, &["rw+", "allow_other", "default_permissions", "big_writes"]);
            if parts.repeatable {
                option(&mut options, &NO_TIMEOUTS);
            }
        }
        Kind::Dir => anyhow::bail!("a plain directory has no daemon"),
        Kind::Zoo(_) => anyhow::bail!("nothing is prepared for {kind}"),
    }
    let (flags, extra): (Vec<_>, Vec<_>) =
        parts.extra.iter().cloned().partition(|o| o.starts_with('-'));
    words.extend(flags.into_iter().map(OsString::from));
    options.extend(extra);
    words.extend(["-o".into(), options.join(",").into()]);
    match kind {
        Kind::Sshfs => words.push(format!("root@127.0.0.1:{source}").into()),
        Kind::PassthroughLl | Kind::PassthroughHl | Kind::Avfs | Kind::Dir | Kind::Zoo(_) => {}
        _ => words.push(backing.into()),
    }
    words.push(mountpoint.into());
    Ok(words)
}

//! mount(8) and mount.fuse(8), which start the daemon of a file system: belay is to be given that
//! daemon itself.

use belay_supervisor::text::command_line;
use belay_supervisor::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Options that are for mount(8) and fstab(5) alone.
const NOT_FOR_DAEMONS: [&[u8]; 8] =
    [b"_netdev", b"auto", b"defaults", b"noauto", b"nofail", b"nouser", b"user", b"users"];

/// Refuses a command that mounts by a daemon that it starts: that one would not be held.
///
/// # Errors
/// Which command to hold instead.
pub fn check(command: &[OsString]) -> Result<()> {
    let Some((program, words)) = command.split_first() else { return Ok(()) };
    let name = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or_default();
    let helper = matches!(name, "mount.fuse" | "mount.fuse3");
    if !helper && name != "mount" {
        return Ok(());
    }
    let remedy = match daemon(words, helper) {
        Some(words) => format!(
            "hold the daemon: `belay run -- {}`",
            command_line(words.iter().map(OsString::as_os_str))
        ),
        None => {
            "name the daemon, with its arguments: `belay run -- sshfs -f HOST: /mnt`".to_owned()
        }
    };
    let why = "it starts a daemon and is none itself, so that the mount would not be held";
    Err(Error::refused(program.to_string_lossy(), why, remedy))
}

/// The daemon's own command line, in the foreground.
fn daemon(words: &[OsString], helper: bool) -> Option<Vec<OsString>> {
    let (mut kind, mut options, mut places) = (None, Vec::new(), Vec::new());
    let mut words = words.iter().map(|word| word.as_bytes());
    while let Some(word) = words.next() {
        match word {
            b"-t" | b"--types" => kind = words.next(),
            b"-o" | b"--options" => options.extend(words.next()?.split(|byte| *byte == b',')),
            b"-r" | b"--read-only" => options.push(b"ro"),
            b"--" => {}
            word if word.starts_with(b"-t") => kind = word.get(2..),
            word if word.starts_with(b"-o") => options.extend(word.get(2..)?.split(|b| *b == b',')),
            word if word.starts_with(b"-") => {}
            word => places.push(word),
        }
    }
    let &[source, target] = places.as_slice() else { return None };
    let subtype = kind.and_then(|kind| {
        [&b"fuse3."[..], b"fuse.", b"fuseblk."].iter().find_map(|start| kind.strip_prefix(*start))
    });
    let of_fuse = helper || matches!(kind, Some(b"fuse" | b"fuse3" | b"fuseblk"));
    let (daemon, source) = match subtype {
        Some(daemon) => (daemon, source),
        // DAEMON#SOURCE
        None if of_fuse => {
            let at = source.iter().position(|byte| *byte == b'#')?;
            (source.get(..at)?, source.get(at + 1..)?)
        }
        None => return None,
    };
    options.retain(|option| {
        !option.is_empty() && !NOT_FOR_DAEMONS.contains(option) && !option.starts_with(b"x-")
    });
    let mut out: Vec<&[u8]> = vec![daemon, b"-f"];
    let options = options.join(&b","[..]);
    if !options.is_empty() {
        out.extend([&b"-o"[..], &options]);
    }
    if !source.is_empty() && source != b"none" {
        out.push(source);
    }
    out.push(target);
    Some(out.into_iter().map(|word| OsString::from_vec(word.to_vec())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        check(&words).map_or_else(|error| error.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn the_daemon_behind_a_mount_command_is_named() {
        let cases = [
            (
                "mount -t fuse.sshfs h:/a /mnt -o ro,noauto,x-systemd.automount",
                "sshfs -f -o ro h:/a /mnt",
            ),
            ("/bin/mount -t fuse sshfs#h: /mnt", "sshfs -f h: /mnt"),
            ("mount.fuse bindfs#/a /mnt -o allow_other", "bindfs -f -o allow_other /a /mnt"),
            ("/sbin/mount.fuse3 /a /mnt -t fuse.bindfs", "bindfs -f /a /mnt"),
            ("mount -tfuse3.x -oa -o b none /mnt", "x -f -o a,b /mnt"),
        ];
        for (line, command) in cases {
            let said = remedy(line);
            assert!(said.ends_with(&format!("`belay run -- {command}`")), "{line}: {said}");
        }
        for line in ["mount /mnt", "mount -t ext4 /dev/x /mnt", "mount.fuse /a /mnt", "mount"] {
            assert!(remedy(line).contains("name the daemon, with its arguments"), "{line}");
        }
        assert_eq!(remedy("/usr/bin/bindfs /a /mnt"), "fine");
    }
}

//! The mount that belay holds: how it is known again in the mount table, and found there first.

use super::device::{connection, is_disconnected, was_mounted};
use super::table::{Mount, table, upper};
use super::way::{unique, unique_of};
use crate::text::OsText;
use rustix::fd::BorrowedFd;
use serde::{Deserialize, Serialize};
use std::io;

/// The mount that belay holds: what must agree before anything is done to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountFact {
    /// Where it is mounted.
    pub mountpoint: OsText,
    /// `major:minor` of the file system.
    pub device: String,
    /// The kernel's number of the mount: it stays when a folder on the way to it gets another name.
    #[serde(default)]
    pub id: u32,
    /// A number that no other mount ever gets, of kernels that have such (Linux 6.8). All others
    /// are given anew as soon as a mount is gone.
    #[serde(default)]
    pub unique: Option<u64>,
    /// Whether it is known that this is the mount of the held device, and not only said by a
    /// daemon: else it is not touched.
    #[serde(default)]
    pub proven: bool,
}

impl MountFact {
    /// That of `mount`.
    pub fn of(mount: &Mount) -> Self {
        Self {
            mountpoint: OsText::from_bytes(&mount.mountpoint),
            device: mount.device.clone(),
            id: mount.id,
            unique: unique_of(mount),
            proven: true,
        }
    }

    /// Whether what `there` is on is the held mount still. It has the same numbers; but these are
    /// another's when it is gone. `device`: the held one.
    pub(super) fn is_still(
        &self,
        there: BorrowedFd<'_>,
        mount: &Mount,
        device: Option<BorrowedFd<'_>>,
    ) -> bool {
        match (self.unique, unique(there)) {
            (Some(known), Some(found)) => known == found,
            // As long as the connection lives, nobody else can have its number.
            _ => {
                device.is_some_and(|device| !is_disconnected(device))
                    || self.mountpoint == OsText::from_bytes(&mount.mountpoint)
            }
        }
    }

    /// Whether belay may take it away. Says so if not.
    pub(super) fn may_be_taken(&self) -> bool {
        if !self.proven {
            tracing::warn!("{}: {}", self.mountpoint.show(), self.unproven());
        }
        self.proven
    }

    /// Why it may not, if it is not proven.
    pub(super) fn unproven(&self) -> String {
        "it is left as it is: this kernel does not say whether that is what the daemon has mounted, and other FUSE file systems \
         came at the same time. Unmount it with `umount` or `fusermount3 -u`"
            .to_owned()
    }

    /// Whether `mount` is the held one.
    pub fn is(&self, mount: &Mount) -> bool {
        mount.is_fuse() && mount.device == self.device && mount.id == self.id
    }
}

/// The held mount where it is now, if nothing is mounted on it.
///
/// # Errors
/// Those of [`table`].
pub fn uncovered(fact: &MountFact) -> io::Result<Option<Mount>> {
    let table = table()?;
    let found = table.iter().find(|mount| fact.is(mount));
    Ok(found.filter(|mount| upper(&table, mount).is_none()).cloned())
}

/// Whether a mount is there, and can be seen.
pub(super) enum Visibility {
    /// Not in the table.
    Gone,
    /// Below another one, which hides all of it.
    Below(Mount),
    /// There.
    Here,
    /// Nobody can tell now.
    Unknown(io::Error),
}

pub(super) fn visibility(fact: &MountFact) -> Visibility {
    let table = match table() {
        Ok(table) => table,
        Err(error) => return Visibility::Unknown(error),
    };
    match table.iter().find(|mount| fact.is(mount)) {
        None => Visibility::Gone,
        Some(mount) => {
            upper(&table, mount).map_or(Visibility::Here, |upper| Visibility::Below(upper.clone()))
        }
    }
}

/// Why the held mount cannot be taken off without another one: `None` if nothing hides it.
pub fn covered(fact: &MountFact) -> Option<String> {
    match visibility(fact) {
        Visibility::Below(upper) => Some(in_the_way(&upper)),
        Visibility::Unknown(error) => Some(unreadable(&error)),
        Visibility::Gone | Visibility::Here => None,
    }
}

pub(super) fn unreadable(error: &io::Error) -> String {
    format!("the mount table cannot be read: {error}; try again")
}

pub(super) fn in_the_way(upper: &Mount) -> String {
    format!("another file system ({}) is mounted on top of it; unmount that first", upper.kind)
}

/// Whether the held mount is in the table, covered or not, and surely that one where the kernel can
/// tell. What cannot be told now is there: nobody forgets it then.
pub fn is_there(fact: &MountFact) -> bool {
    let Ok(table) = table() else { return true };
    let Some(mount) = table.iter().find(|mount| fact.is(mount)) else { return false };
    let found = unique_of(mount);
    fact.unique.is_none() || found.is_none() || found == fact.unique
}

/// Finds the mount of the connection that `device` serves. `told` is where the daemon said that it
/// mounted: only a hint, used on kernels that do not name the connection of a descriptor.
///
/// `before`: the FUSE file systems that were there before the daemon's start (see
/// [`super::fuse_devices`]).
pub fn find(device: BorrowedFd<'_>, told: &[u8], before: &[String]) -> Option<MountFact> {
    let table = table().ok()?;
    let fact = MountFact::of;
    if let Some(number) = connection(device) {
        let of_connection = |mount: &&Mount| mount.device == number && mount.is_fuse();
        // The same file system may be bound elsewhere: what the daemon said decides then.
        let all = || table.iter().filter(of_connection);
        return all().find(|m| m.mountpoint == told).or_else(|| all().next()).map(fact);
    }
    // The device of a kernel that names connections has none yet: that of the mount is still on its
    // way here.
    if !was_mounted(device) {
        return None;
    }
    guess(&table, told, before).map(|(mount, proven)| MountFact { proven, ..fact(mount) })
}

/// The mount at the place that the daemon named, and whether it must be that of the held device.
/// The daemon may have given up its privileges since, and name any mount. But the held one is in
/// the table, and was not before: if no other FUSE file system has come since, it is that.
fn guess<'t>(table: &'t [Mount], told: &[u8], before: &[String]) -> Option<(&'t Mount, bool)> {
    let found = table.iter().rev().find(|mount| mount.is_fuse() && mount.mountpoint == told)?;
    let mut new = table.iter().filter(|mount| mount.is_fuse() && !before.contains(&mount.device));
    let is_new = !before.contains(&found.device);
    Some((found, is_new && new.all(|mount| mount.device == found.device)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::table::parse_table;

    /// On kernels that do not name the connection of a descriptor.
    #[test]
    fn what_a_daemon_says_of_its_mount_is_believed_only_where_it_must_be_so() {
        let text = b"42 27 0:39 / /old rw - fuse.x x rw\n43 27 0:40 / /mnt rw - fuse x rw\n\
            44 27 0:40 / /bound rw - fuse x rw\n45 27 0:41 / /tmp rw - tmpfs x rw\n";
        let before = ["0:39".to_owned()];
        let guessed = |text: &[u8], told: &[u8]| {
            let table = parse_table(text);
            guess(&table, told, &before).map(|(mount, proven)| (mount.id, proven))
        };
        assert_eq!(guessed(text, b"/mnt"), Some((43, true)));
        assert_eq!(guessed(text, b"/bound"), Some((44, true)));
        assert_eq!(guessed(text, b"/old"), Some((42, false)), "it was there before");
        assert_eq!(guessed(text, b"/tmp"), None, "it is no FUSE mount");
        let more = [&text[..], b"46 27 0:42 / /other rw - fuse.y y rw\n"].concat();
        for told in [&b"/mnt"[..], b"/other"] {
            assert_eq!(guessed(&more, told).map(|(_, proven)| proven), Some(false));
        }
    }
}

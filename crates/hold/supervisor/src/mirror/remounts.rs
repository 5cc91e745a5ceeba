//! What the host forbids on a mount that is there (`mount -o remount,bind,ro`), or allows again.
//!
//! That belongs to the mount and not to its file system, and no propagation carries it to a copy.
//! So the host's table is compared with what it was, and what has changed of a mount is changed of
//! its copies, and nothing else: what a successor has forbidden or allowed itself is its own
//! affair.
//!
//! A copy that is open for writing cannot become read-only: that degrades the mount. The way to one
//! may lead over a file system that somebody serves; whether the daemon has anything to do with
//! that one nobody knows, so it is only said. Both are tried again for as long as it is so.
//!
//! Invariant: a mount is reached through a descriptor of its root, which is known to be that one's.

use super::{LOOK, LOOKS, is_free};
use crate::mounts::way::root_of;
use crate::mounts::{Mount, parse_table};
use crate::text::OsText;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::time::Duration;

/// How often a copy that cannot follow is tried again.
const LATE: Duration = Duration::from_secs(2);
/// Looks in a row at which a copy cannot follow, until that is told: most have a file open for a
/// moment only.
const TOLD: u32 = 2;
/// Mounts that are told by name.
const NAMED: usize = 3;

/// What a mount may forbid, as flags of mount_setattr(2).
type Bans = u64;

/// The flags, with what the mount table says where they are set, and what is said where they are
/// not.
const BANS: [(Bans, &str, &str); 5] = [
    (READ_ONLY, "ro", "rw"),
    (0x2, "nosuid", "suid"),
    (0x4, "nodev", "dev"),
    (0x8, "noexec", "exec"),
    (0x20_0000, "nosymfollow", "symfollow"),
];
const READ_ONLY: Bans = 0x1;
const ALL: Bans = 0x20_000f;

/// A mount table, with what its mounts forbid.
#[derive(Debug, Default)]
pub struct Table {
    mounts: Vec<Mount>,
    bans: HashMap<u32, Bans>,
}

impl Table {
    /// That of a mountinfo file.
    pub fn parse(text: &[u8]) -> Self {
        let lines = text.split(|byte| *byte == b'\n');
        Self { mounts: parse_table(text), bans: lines.filter_map(parse_bans).collect() }
    }

    fn bans(&self, mount: &Mount) -> Bans {
        self.bans.get(&mount.id).copied().unwrap_or_default()
    }
}

fn parse_bans(line: &[u8]) -> Option<(u32, Bans)> {
    let mut words = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let flag = |word: &[u8]| BANS.iter().find(|(_, set, _)| set.as_bytes() == word);
    let options = words.nth(4)?.split(|byte| *byte == b',');
    Some((id, options.filter_map(flag).fold(0, |bans, (flag, ..)| bans | flag)))
}

/// A mount of the host whose copies may not be as it is.
#[derive(Debug, Default)]
struct Late {
    /// What may differ.
    mask: Bans,
    /// How many looks at the copies are left.
    looks: u32,
    /// At how many looks in a row a copy could not follow.
    missed: u32,
    last: Option<Missed>,
}

/// A copy that could not follow.
#[derive(Clone, Copy, Debug)]
pub struct Missed {
    /// The number of the host's mount.
    id: u32,
    change: Bans,
    why: Errno,
}

impl Missed {
    /// Whether it is in use, so that the daemon does what the host forbids.
    fn writes(&self) -> bool {
        self.why == Errno::BUSY
    }
}

/// What has changed of the host's mounts, and has to be changed of their copies.
#[derive(Debug, Default)]
pub struct Remounts {
    /// As it was seen last.
    host: Option<Table>,
    /// What was seen last was seen by an earlier supervisor, which may have died before it had
    /// changed all copies.
    inherited: bool,
    late: HashMap<u32, Late>,
}

impl Remounts {
    /// Begins with what an earlier supervisor has seen, if there was one.
    pub fn recall(&mut self, earlier: &[u8]) {
        if !earlier.is_empty() {
            self.host = Some(Table::parse(earlier));
            self.inherited = true;
        }
    }

    /// Takes note of what has changed on the host.
    pub fn see(&mut self, now: Table) {
        let Some(before) = self.host.take() else {
            self.host = Some(now);
            return;
        };
        let inherited = std::mem::take(&mut self.inherited);
        let known: HashMap<u32, &Mount> = before.mounts.iter().map(|m| (m.id, m)).collect();
        for mount in &now.mounts {
            let bans = now.bans(mount);
            // A new mount may have been copied in its first instant: mount(8) forbids later. Or its
            // copy is that of one which was mounted there before.
            let same = known.get(&mount.id).filter(|known| known.is_same(mount));
            let mut mask = same.map_or(ALL, |known| before.bans(known) ^ bans);
            if inherited {
                mask |= bans;
            }
            if mask != 0 {
                let late = self.late.entry(mount.id).or_default();
                late.mask |= mask;
                late.looks = LOOKS;
            }
        }
        self.late.retain(|id, _| now.bans.contains_key(id));
        self.host = Some(now);
    }

    /// When to look at the copies again, if at all.
    pub fn pause(&self) -> Option<Duration> {
        let fresh = self.late.values().any(|late| late.looks > 0);
        let any = !self.late.is_empty();
        any.then_some(if fresh { LOOK } else { LATE })
    }

    /// Changes the copies in this thread's namespace; which could not follow goes to `missed`.
    ///
    /// # Errors
    /// Those of reading the mount table.
    pub fn carry(&self, missed: &mut Vec<Missed>) -> io::Result<()> {
        if self.late.is_empty() {
            return Ok(());
        }
        let here = Table::parse(&super::own_table()?);
        for (original, copy) in self.copies(&here) {
            let (Some(late), Some(host)) = (self.late.get(&original.id), &self.host) else {
                continue;
            };
            let bans = host.bans(original);
            let change = (bans ^ here.bans(copy)) & late.mask;
            if change == 0 {
                continue;
            }
            let mut miss = |change, why| missed.push(Missed { id: original.id, change, why });
            let root = match root_of(copy, is_free(&here.mounts, copy.id)) {
                Ok(root) => root,
                Err(why) => {
                    miss(change, why);
                    continue;
                }
            };
            // Who uses it stands in the way of that one alone.
            let parts = [change & !READ_ONLY, change & READ_ONLY];
            for part in parts.into_iter().filter(|part| *part != 0) {
                let done = belay_sys::change_mount(root.as_fd(), part & bans, part & !bans);
                tracing::debug!("a copy of {}: {done:?}", show(original));
                if let Err(error) = done {
                    miss(part, Errno::from_io_error(&error).unwrap_or(Errno::IO));
                }
            }
        }
        Ok(())
    }

    /// The host's mounts that may have changed, with their copies: where the same is mounted
    /// several times at a place, the first is the copy of the first.
    fn copies<'t>(&'t self, here: &'t Table) -> impl Iterator<Item = (&'t Mount, &'t Mount)> {
        let mut at = HashMap::<_, Vec<&Mount>>::new();
        for copy in &here.mounts {
            at.entry(place(copy)).or_default().push(copy);
        }
        let mut ranks = HashMap::<_, usize>::new();
        let originals = self.host.iter().flat_map(|host| &host.mounts);
        originals.filter_map(move |original| {
            let rank = ranks.entry(place(original)).or_default();
            let copy = at.get(&place(original)).and_then(|copies| copies.get(*rank)).copied();
            *rank += 1;
            copy.filter(|_| self.late.contains_key(&original.id)).map(|copy| (original, copy))
        })
    }

    /// All namespaces have been looked at.
    pub fn note(&mut self, missed: &[Missed]) {
        for (id, late) in &mut self.late {
            let those = || missed.iter().filter(|missed| missed.id == *id);
            late.last = those().find(|missed| missed.writes()).or(those().next()).copied();
            late.missed = if late.last.is_some() { late.missed.saturating_add(1) } else { 0 };
            late.looks = late.looks.saturating_sub(1);
        }
        for (mount, late, missed) in self.staying() {
            if late.missed == TOLD && !missed.writes() {
                let bans = self.host.as_ref().map(|host| host.bans(mount)).unwrap_or_default();
                let (words, why) = (words(missed.change, bans), reason(missed.why));
                let place = show(mount);
                tracing::warn!(
                    "the mount {place} ({words}) is still for the daemon what it was before: {why}; `belay restart` mends that"
                );
            }
        }
        self.late.retain(|_, late| late.looks > 0 || late.last.is_some());
    }

    /// The host's mounts with copies that could not follow at several looks.
    fn staying(&self) -> impl Iterator<Item = (&Mount, &Late, Missed)> {
        let mounts = self.host.iter().flat_map(|host| &host.mounts);
        mounts.filter_map(|mount| {
            let late = self.late.get(&mount.id).filter(|late| late.missed >= TOLD)?;
            Some((mount, late, late.last?))
        })
    }

    /// Where the daemon writes on though the host forbids it, if it does.
    pub fn told(&self) -> Option<String> {
        let writes = self.staying().filter(|(.., missed)| missed.writes());
        let mut places: Vec<String> = writes.map(|(mount, ..)| show(mount)).collect();
        if places.is_empty() {
            return None;
        }
        let more = match places.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        places.truncate(NAMED);
        Some(format!(
            "the daemon has files open for writing on what the host has made read-only since, and writes on; `belay \
             restart` ends that: {}{more}",
            places.join(", ")
        ))
    }
}

/// What is the same of a mount and its copies, as [`Mount::is_same`] has it.
fn place(mount: &Mount) -> (&str, &[u8], &[u8]) {
    (&mount.device, &mount.root, &mount.mountpoint)
}

fn show(mount: &Mount) -> String {
    OsText::from_bytes(&mount.mountpoint).show()
}

fn words(change: Bans, now: Bans) -> String {
    let changed = BANS.iter().filter(|(flag, ..)| change & flag != 0);
    let word = changed.map(|(flag, set, not)| if now & flag != 0 { *set } else { *not });
    word.collect::<Vec<_>>().join(",")
}

fn reason(why: Errno) -> String {
    match why {
        Errno::AGAIN => "the way there leads over what others serve".to_owned(),
        Errno::NOSYS => "that needs Linux 5.12".to_owned(),
        Errno::XDEV => "something is mounted over it".to_owned(),
        why => why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "20 1 8:1 / / rw,relatime - ext4 x rw\n";
    const DISK: &str = "30 20 8:2 / /disk rw,nodev - ext4 x rw\n";

    fn table(lines: &[&str]) -> Table {
        Table::parse(lines.concat().as_bytes())
    }

    fn seen(tables: &[&[&str]]) -> Remounts {
        let mut remounts = Remounts::default();
        for lines in tables {
            remounts.see(table(lines));
        }
        remounts
    }

    fn masks(remounts: &Remounts) -> Vec<(u32, Bans)> {
        let mut masks: Vec<_> = remounts.late.iter().map(|(id, late)| (*id, late.mask)).collect();
        masks.sort_unstable();
        masks
    }

    #[test]
    fn what_mounts_forbid_is_read_from_their_own_options() {
        let words = ["ro,nosuid,nodev,noexec,nosymfollow,relatime", "rw", "noatime", "ro,ro"];
        let line = |words: &str| format!("7 1 8:1 / / {words} shared:1 - ext4 x ro,noexec\n");
        let bans = words.map(|words| Table::parse(line(words).as_bytes()).bans.get(&7).copied());
        assert_eq!(bans, [Some(ALL), Some(0), Some(0), Some(1)]);
        for odd in ["", "7", "7 1 8:1 / /", "x 1 8:1 / / ro - e x ro"] {
            assert!(Table::parse(odd.as_bytes()).bans.is_empty(), "{odd}");
        }
    }

    #[test]
    fn only_what_has_changed_is_changed() {
        let forbids = DISK.replace("rw,nodev", "ro,nodev");
        assert_eq!(masks(&seen(&[&[ROOT, DISK]])), [], "nothing was there before");
        assert_eq!(masks(&seen(&[&[ROOT, DISK], &[ROOT, DISK]])), []);
        assert_eq!(masks(&seen(&[&[ROOT, DISK], &[ROOT, &forbids]])), [(30, 1)]);
        let back: &[&[&str]] = &[&[ROOT, DISK], &[ROOT, &forbids], &[ROOT, DISK]];
        assert_eq!(masks(&seen(back)), [(30, 1)], "its copies may be read-only by now");
        assert_eq!(masks(&seen(&[&[ROOT], &[ROOT, DISK]])), [(30, ALL)], "a new one");
        assert_eq!(masks(&seen(&[&[ROOT], &[ROOT, DISK], &[ROOT]])), [], "one that is gone");
        let again = DISK.replace("30 ", "31 ");
        assert_eq!(masks(&seen(&[&[ROOT, DISK], &[ROOT, &again]])), [(31, ALL)]);
        let other = DISK.replace("/disk", "/else");
        assert_eq!(masks(&seen(&[&[ROOT, DISK], &[ROOT, &other]])), [(30, ALL)], "a number again");
    }

    #[test]
    fn what_a_dead_supervisor_has_left_undone_is_forbidden_again() {
        let mut remounts = Remounts::default();
        remounts.recall([ROOT, DISK].concat().as_bytes());
        remounts.see(table(&[ROOT, DISK]));
        assert_eq!(masks(&remounts), [(30, 4)], "and nothing is allowed that a successor forbids");
        let mut remounts = Remounts::default();
        remounts.recall(b"");
        remounts.see(table(&[ROOT, DISK]));
        assert_eq!(masks(&remounts), []);
    }

    #[test]
    fn of_several_at_a_place_each_has_its_own_copy() {
        let upper = DISK.replace("30 20", "31 30");
        let forbids = upper.replace("rw", "ro");
        let remounts = seen(&[&[ROOT, DISK, &upper], &[ROOT, DISK, &forbids]]);
        let copy = |line: &str| line.replace("30 ", "130 ").replace("31 ", "131 ");
        let ids = |lines: &[&str]| {
            let here = table(lines);
            let found = remounts.copies(&here).map(|(original, copy)| (original.id, copy.id));
            found.collect::<Vec<_>>()
        };
        assert_eq!(ids(&[ROOT, &copy(DISK), &copy(&upper)]), [(31, 131)]);
        assert_eq!(ids(&[ROOT, &copy(DISK)]), [], "it was mounted later, and has no copy");
        assert_eq!(ids(&[ROOT]), []);
    }

    #[test]
    fn a_copy_that_cannot_follow_is_tried_again_and_told() {
        let forbids = DISK.replace("rw,nodev", "ro,nodev");
        let mut remounts = seen(&[&[ROOT, DISK], &[ROOT, &forbids]]);
        let missed = [Missed { id: 30, change: 1, why: Errno::BUSY }];
        remounts.note(&missed);
        assert_eq!(remounts.told(), None, "perhaps it is a moment only");
        for _ in 0..2 * LOOKS {
            remounts.note(&missed);
        }
        assert!(remounts.told().is_some_and(|told| told.ends_with(": /disk")), "{remounts:?}");
        assert_eq!(remounts.pause(), Some(LATE));
        remounts.note(&[]);
        assert_eq!((remounts.told(), remounts.pause()), (None, None));
        remounts.see(table(&[ROOT, DISK]));
        assert_eq!(remounts.pause(), Some(LOOK));
        for _ in 0..LOOKS {
            remounts.note(&[]);
        }
        assert_eq!(remounts.pause(), None);
    }

    #[test]
    fn many_are_counted() {
        let line = |id: u32, word: &str| format!("{id} 1 0:{id} / /m{id} {word} - t x rw\n");
        let lines = |word: &str| (0..9).map(|id| line(id, word)).collect::<String>();
        let mut remounts = Remounts::default();
        for word in ["rw", "noexec,ro"] {
            remounts.see(Table::parse(lines(word).as_bytes()));
        }
        let missed = |why| (0..9).map(|id| Missed { id, change: 1, why }).collect::<Vec<_>>();
        for _ in 0..TOLD {
            remounts.note(&missed(Errno::BUSY));
        }
        let told = remounts.told().expect("told");
        assert!(told.ends_with(": /m0, /m1, /m2, and 6 more"), "{told}");
        remounts.note(&missed(Errno::AGAIN));
        assert_eq!(remounts.told(), None, "nobody knows whether the daemon has to do with them");
        assert!(remounts.pause().is_some());
    }

    #[test]
    fn what_has_changed_is_named() {
        assert_eq!(words(ALL, 0x9), "ro,suid,dev,noexec,symfollow");
        assert_eq!(words(0, ALL), "");
    }
}

//! Which inode number each name had when it was last seen, to notice one that changes while the
//! object lives.
//!
//! A daemon without numbers of its own gives a new one once the kernel has forgotten the object,
//! which it does when it needs memory or is told to (`drop_caches`). There, a number is only
//! expected to last while the kernel's counters say that nothing was reclaimed: that time is an
//! era.

use std::collections::BTreeMap;
use std::time::Duration;

/// What the kernel counts when it reclaims inodes and names, in /proc/vmstat.
const RECLAIMED: [&str; 4] = ["slabs_scanned", "drop_slab", "pginodesteal", "kswapd_inodesteal"];
/// The kernel counts when it has reclaimed a lot of them: how often to look again before a number
/// is said to have changed within an era, and how long between.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// A number, and the era in which it was seen.
type Noted = (u64, u64);

/// Names and inode numbers. Only what this worker has done itself is followed, so names that others
/// change must be forgotten in between.
#[derive(Debug)]
pub struct Inodes {
    known: BTreeMap<String, Noted>,
    era: fn() -> u64,
    fade: bool,
}

impl Inodes {
    /// Numbers that last as long as their objects.
    pub fn lasting() -> Self {
        Self { known: BTreeMap::new(), era: || 0, fade: false }
    }

    /// Numbers that last as long as the kernel knows their objects, and of each link another one.
    pub fn fading() -> Self {
        Self { known: BTreeMap::new(), era: reclaimed, fade: true }
    }

    /// The present era: to be asked for before a number.
    pub fn era(&self) -> u64 {
        (self.era)()
    }

    /// Notes the number seen under a name, not before `era` began. `Some(false)` if the same object
    /// had another one before, `None` if that may be because the kernel has forgotten it.
    pub fn see(&mut self, path: &str, ino: u64, era: u64) -> Option<bool> {
        let noted = self.known.entry(path.to_owned()).or_insert((ino, era));
        if noted.0 == ino {
            noted.1 = era;
            return Some(true);
        }
        if self.fade && another(noted.1, self.era) {
            *noted = (ino, era);
            return None;
        }
        Some(false)
    }

    /// The name is gone, or a name of another object.
    pub fn forget(&mut self, path: &str) {
        self.take(path);
    }

    /// The object at `from`, and all below it, is now at `to`.
    pub fn rename(&mut self, from: &str, to: &str) {
        // Renaming a name over another name of the same inode does nothing at all.
        let number = |name| self.known.get(name).map(|(ino, _)| *ino);
        if from == to || number(from).is_some() && number(from) == number(to) {
            return;
        }
        let moved = self.take(from);
        self.forget(to);
        self.put(moved, from, to);
    }

    /// The two objects have changed places.
    pub fn exchange(&mut self, one: &str, other: &str) {
        let (first, second) = (self.take(one), self.take(other));
        self.put(first, one, other);
        self.put(second, other, one);
    }

    /// `to` is a further name of the object at `from`.
    pub fn link(&mut self, from: &str, to: &str) {
        self.forget(to);
        if !self.fade
            && let Some(noted) = self.known.get(from)
        {
            self.known.insert(to.to_owned(), *noted);
        }
    }

    fn take(&mut self, path: &str) -> Vec<(String, Noted)> {
        let below = format!("{path}/");
        let names: Vec<String> = self
            .known
            .keys()
            .filter(|name| *name == path || name.starts_with(&below))
            .cloned()
            .collect();
        names.into_iter().filter_map(|name| self.known.remove_entry(&name)).collect()
    }

    fn put(&mut self, entries: Vec<(String, Noted)>, from: &str, to: &str) {
        self.known.extend(
            entries
                .into_iter()
                .map(|(name, noted)| (format!("{to}{}", &name[from.len()..]), noted)),
        );
    }
}

/// Whether `old` is over. The counters may lag behind what they count.
fn another(old: u64, era: fn() -> u64) -> bool {
    (0..LOOKS).any(|look| {
        if look > 0 {
            std::thread::sleep(PAUSE);
        }
        era() != old
    })
}

/// How much the kernel has reclaimed since it was started. It never shrinks; 0 where the kernel
/// does not tell.
fn reclaimed() -> u64 {
    count(&std::fs::read_to_string("/proc/vmstat").unwrap_or_default())
}

fn count(vmstat: &str) -> u64 {
    let counters = vmstat.lines().filter_map(|line| line.split_once(' '));
    let counted = counters.filter(|(name, _)| RECLAIMED.contains(name));
    counted.filter_map(|(_, value)| value.trim().parse().ok()).fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn sees(inodes: &mut Inodes, path: &str, ino: u64) -> bool {
        inodes.see(path, ino, inodes.era()) == Some(true)
    }

    #[test]
    fn numbers_follow_their_objects() {
        let inodes = &mut Inodes::lasting();
        assert!(sees(inodes, "d/f", 1) && sees(inodes, "d", 2) && sees(inodes, "dd", 3));
        inodes.rename("d", "e");
        assert!(sees(inodes, "e/f", 1) && !sees(inodes, "e", 9) && sees(inodes, "dd", 3));
        assert!(sees(inodes, "d", 7), "the old name is free");
        inodes.exchange("e", "dd");
        assert!(sees(inodes, "dd/f", 1) && sees(inodes, "e", 3));
        inodes.link("dd/f", "g");
        assert!(!sees(inodes, "g", 5));
        inodes.rename("g", "dd/f");
        assert!(sees(inodes, "g", 1), "both names stay");
        inodes.forget("dd");
        assert!(sees(inodes, "dd/f", 8));
    }

    #[test]
    fn numbers_fade_with_the_era() {
        thread_local! { static ERA: Cell<u64> = const { Cell::new(7) }; }
        let inodes = &mut Inodes { era: || ERA.get(), ..Inodes::fading() };
        assert_eq!(inodes.see("f", 1, 7), Some(true));
        assert_eq!(inodes.see("f", 2, 7), Some(false), "nothing was reclaimed");
        ERA.set(8);
        assert_eq!(inodes.see("f", 1, 8), Some(true));
        assert_eq!(inodes.see("f", 2, 8), Some(false), "seen in the new era already");
        inodes.rename("f", "g");
        ERA.set(9);
        // Reclaimed while the number was asked for: it may not have lasted that long.
        assert_eq!(inodes.see("g", 2, 8), None);
        assert_eq!(inodes.see("g", 3, 9), None);
        assert_eq!(inodes.see("g", 3, 9), Some(true));
        assert_eq!(inodes.see("g", 2, 9), Some(false), "the new number is expected to last");
    }

    #[test]
    fn lasting_numbers_know_no_era() {
        let inodes = &mut Inodes::lasting();
        assert_eq!(inodes.see("f", 1, 0), Some(true));
        assert_eq!(inodes.see("f", 2, 5), Some(false));
    }

    #[test]
    fn what_the_kernel_has_reclaimed() {
        let before = "nr_free_pages 4\nslabs_scanned 30\ndrop_pagecache 1\ndrop_slab 5\n";
        assert_eq!(count(before), 35);
        assert_eq!(count(&before.replace("nr_free_pages 4", "nr_free_pages 9")), 35);
        assert_eq!(count(&before.replace("drop_slab 5", "drop_slab 6")), 36);
        let text = std::fs::read_to_string("/proc/vmstat").unwrap();
        assert!(text.contains("\nslabs_scanned "), "the kernel does not count");
    }
}

//! Clients that work on names: lookups, opens, creations, removals, renames, listings.
//!
//! All of them address names relative to an open directory, so that one call makes the daemon
//! resolve one name and not the whole path.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::Op;
use crate::clients::Worker;

/// Files that the operations on existing names rotate over.
const POOL: usize = 64;

/// A worker for `op`, one of those on names in its own directory `dir`.
pub fn worker(op: Op, dir: &Path) -> Result<Box<dyn Worker>> {
    let dir = open_dir(dir)?;
    Ok(match op {
        Op::NegativeLookup => Box::new(Absent { names: names("absent", 1024), dir }),
        Op::Stat => Box::new(Present { names: pool(&dir)?, dir, open: false }),
        Op::OpenClose => Box::new(Present { names: pool(&dir)?, dir, open: true }),
        Op::Create => Box::new(Change { dir, names: Vec::new(), action: Action::Create }),
        Op::Unlink => Box::new(Change { dir, names: Vec::new(), action: Action::Unlink }),
        Op::Mkdir => Box::new(Change { dir, names: Vec::new(), action: Action::Mkdir }),
        Op::Rename => {
            Box::new(Rename { there: pool(&dir)?.into(), free: names("renamed", POOL).into(), dir })
        }
        Op::Readdir | Op::Data(_) => {
            bail!("{op} is no operation on the names of a directory of one's own")
        }
    })
}

/// Opens a directory for use with `*at` calls.
pub fn open_dir(dir: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty())
        .with_context(|| format!("open directory {}", dir.display()))
}

fn names(stem: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{stem}-{i:05}")).collect()
}

/// Creates a file and closes it.
fn create(dir: &OwnedFd, name: &str) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::from(0o644))
        .with_context(|| format!("create {name}"))?;
    Ok(())
}

fn unlink(dir: &OwnedFd, name: &str, flags: AtFlags) -> Result<()> {
    rustix::fs::unlinkat(dir, name, flags).with_context(|| format!("remove {name}"))
}

fn pool(dir: &OwnedFd) -> Result<Vec<String>> {
    let names = names("file", POOL);
    for name in &names {
        // Another number of threads may have used this directory before.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        rustix::fs::openat(dir, name, flags, Mode::from(0o644))
            .with_context(|| format!("create {name}"))?;
    }
    Ok(names)
}

fn cycle(names: &[String], count: u64) -> impl Iterator<Item = &String> {
    names.iter().cycle().take(usize::try_from(count).unwrap_or(usize::MAX))
}

struct Absent {
    dir: OwnedFd,
    names: Vec<String>,
}

impl Worker for Absent {
    fn run(&mut self, count: u64) -> Result<()> {
        for name in cycle(&self.names, count) {
            match rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                Ok(_) => bail!("{name} is there and should not be"),
                Err(error) => return Err(error).with_context(|| format!("stat {name}")),
            }
        }
        Ok(())
    }
}

struct Present {
    dir: OwnedFd,
    names: Vec<String>,
    open: bool,
}

impl Worker for Present {
    fn run(&mut self, count: u64) -> Result<()> {
        for name in cycle(&self.names, count) {
            if self.open {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                rustix::fs::openat(&self.dir, name, flags, Mode::empty())
                    .with_context(|| format!("open {name}"))?;
            } else {
                rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW)
                    .with_context(|| format!("stat {name}"))?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Create,
    Unlink,
    Mkdir,
}

/// Makes or removes as many names as the batch is long, and puts things back between batches.
struct Change {
    dir: OwnedFd,
    names: Vec<String>,
    action: Action,
}

impl Worker for Change {
    fn prepare(&mut self, count: u64) -> Result<()> {
        self.names = names("new", usize::try_from(count)?);
        if self.action == Action::Unlink {
            self.names.iter().try_for_each(|name| create(&self.dir, name))?;
        }
        Ok(())
    }

    fn run(&mut self, count: u64) -> Result<()> {
        for name in cycle(&self.names, count) {
            match self.action {
                Action::Create => create(&self.dir, name)?,
                Action::Unlink => unlink(&self.dir, name, AtFlags::empty())?,
                Action::Mkdir => rustix::fs::mkdirat(&self.dir, name, Mode::from(0o755))
                    .with_context(|| format!("mkdir {name}"))?,
            }
        }
        Ok(())
    }

    fn finish(&mut self, _count: u64) -> Result<()> {
        match self.action {
            Action::Create => {
                self.names.iter().try_for_each(|name| unlink(&self.dir, name, AtFlags::empty()))
            }
            Action::Mkdir => {
                self.names.iter().try_for_each(|name| unlink(&self.dir, name, AtFlags::REMOVEDIR))
            }
            Action::Unlink => Ok(()),
        }
    }
}

/// Renames the files of the pool in turn, each to a name that is free.
struct Rename {
    dir: OwnedFd,
    there: VecDeque<String>,
    free: VecDeque<String>,
}

impl Worker for Rename {
    fn run(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            let old = self.there.pop_front().context("the pool is empty")?;
            let new = self.free.pop_front().context("the pool is empty")?;
            rustix::fs::renameat(&self.dir, &old, &self.dir, &new)
                .with_context(|| format!("rename {old} to {new}"))?;
            self.there.push_back(new);
            self.free.push_back(old);
        }
        Ok(())
    }
}

/// Lists one directory, which the clients of a batch share.
pub struct Listing {
    dir: OwnedFd,
    entries: usize,
}

impl Listing {
    /// A client that lists `dir`, which is filled up to `entries` names.
    pub fn new(dir: &Path, entries: usize) -> Result<Self> {
        let listing = Self { dir: open_dir(dir)?, entries };
        match listing.list()? {
            0 => names("entry", entries).iter().try_for_each(|name| create(&listing.dir, name))?,
            found => ensure!(
                found == entries,
                "{} lists {found} entries instead of {entries}",
                dir.display()
            ),
        }
        Ok(listing)
    }

    fn list(&self) -> Result<usize> {
        let mut dir = Dir::read_from(&self.dir).context("open the directory again to list it")?;
        let mut count = 0;
        while let Some(entry) = dir.read() {
            let name = entry.context("list the directory")?;
            let name = name.file_name().to_bytes();
            count += usize::from(name != b"." && name != b"..");
        }
        Ok(count)
    }
}

impl Worker for Listing {
    fn run(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            let found = self.list()?;
            ensure!(
                found == self.entries,
                "{found} entries were listed instead of {}",
                self.entries
            );
        }
        Ok(())
    }
}

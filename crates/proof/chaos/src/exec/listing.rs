//! Listing directories, at once and in pieces, and what needs listing.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat};
use rustix::io::Errno;

use super::{Done, Executor, Fault, hash, number};
use crate::ops::{Slot, Value};

/// Names that daemons give to files that are open and no longer have a name.
const HIDDEN: [&str; 2] = [".fuse_hidden", ".ghost-ntfs-3g-"];

/// Lists of at most so many names are given in full.
const SHORT: usize = 40;

/// A listing under way.
pub struct Stream {
    dir: Dir,
    seen: Vec<String>,
}

impl Stream {
    /// The next name, without dots and hidden files.
    fn next(&mut self) -> Option<Result<String, Errno>> {
        loop {
            match self.dir.next()? {
                Ok(entry) => {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    if name != "." && name != ".." && !is_hidden(&name) {
                        return Some(Ok(name));
                    }
                }
                Err(errno) => return Some(Err(errno)),
            }
        }
    }
}

/// Whether a daemon made this name for a file that is open and unlinked.
pub(crate) fn is_hidden(name: &str) -> bool {
    HIDDEN.iter().any(|prefix| name.starts_with(prefix))
}

/// Names as an outcome: sorted, duplicates kept.
fn summary(mut names: Vec<String>) -> Value {
    names.sort_unstable();
    if names.len() <= SHORT {
        return Value::Names(names);
    }
    let mut seen = HashSet::new();
    let repeated = names.iter().filter(|name| !seen.insert(name.as_str())).cloned().collect();
    Value::ManyNames {
        count: names.len() as u64,
        repeated,
        hash: hash(names.join("\n").as_bytes()),
    }
}

impl Executor {
    pub(super) fn stream(&self, path: &str) -> Result<Stream, Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(&self.root_fd, path, flags, Mode::empty())?;
        Ok(Stream { dir: Dir::new(fd)?, seen: Vec::new() })
    }

    pub(super) fn list_dir(&self, path: &str) -> Done {
        let mut stream = self.stream(path)?;
        let mut names = Vec::new();
        while let Some(name) = stream.next() {
            names.push(name?);
        }
        Ok(summary(names))
    }

    pub(super) fn dir_open(&mut self, slot: Slot, path: &str) -> Done {
        self.streams.remove(&slot);
        let stream = self.stream(path)?;
        self.streams.insert(slot, stream);
        Ok(Value::Unit)
    }

    pub(super) fn dir_next(&mut self, slot: Slot, count: u32) -> Done {
        let stream = self.streams.get_mut(&slot).ok_or(Fault::EmptySlot)?;
        let mut got = 0;
        while got < count {
            let Some(name) = stream.next() else { break };
            stream.seen.push(name?);
            got += 1;
        }
        Ok(number(got as usize))
    }

    pub(super) fn dir_rest(&mut self, slot: Slot) -> Done {
        let mut stream = self.streams.remove(&slot).ok_or(Fault::EmptySlot)?;
        while let Some(name) = stream.next() {
            stream.seen.push(name?);
        }
        Ok(summary(stream.seen))
    }

    /// Names of changing length, so that pages of entries end at changing places.
    fn filler(index: u32) -> String {
        format!("{index:04}{}", "x".repeat((index as usize * 7) % 60))
    }

    pub(super) fn fill(&mut self, path: &str, count: u32) -> Done {
        rustix::fs::mkdirat(&self.root_fd, path, Mode::from_raw_mode(0o755))?;
        self.inodes.forget(path);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut done = 0;
        let mut errno = 0;
        for index in 0..count {
            let name = format!("{path}/{}", Self::filler(index));
            match openat(&self.root_fd, name, flags, Mode::from_raw_mode(0o600)) {
                Ok(_) => done += 1,
                Err(error) => errno = error.raw_os_error(),
            }
        }
        Ok(Value::Sequence { done, errno, names: Box::new(Value::Unit) })
    }

    pub(super) fn purge(&mut self, path: &str) -> Done {
        let mut stream = self.stream(path)?;
        let mut names = Vec::new();
        let mut done = 0;
        let mut errno = 0;
        while let Some(name) = stream.next() {
            let name = name?;
            match rustix::fs::unlinkat(&self.root_fd, format!("{path}/{name}"), AtFlags::empty()) {
                Ok(()) => done += 1,
                Err(error) => errno = error.raw_os_error(),
            }
            names.push(name);
        }
        drop(stream);
        if let Err(Fault::Errno(error)) = self.rmdir(path) {
            errno = error.raw_os_error();
        }
        Ok(Value::Sequence { done, errno, names: Box::new(summary(names)) })
    }

    /// Waits until no hidden file is left in a directory that holds nothing else. The kernel
    /// releases a closed file some time after close(2) has returned, so a hidden file may outlive
    /// its last user for a moment.
    pub(super) fn await_release(&self, path: &str, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let Ok(mut stream) = self.stream(path) else {
                return false;
            };
            if stream.next().is_some() {
                return false;
            }
            let hidden = self.stream(path).is_ok_and(|mut stream| {
                stream
                    .dir
                    .any(|entry| entry.is_ok_and(|e| is_hidden(&e.file_name().to_string_lossy())))
            });
            if !hidden {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

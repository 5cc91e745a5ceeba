//! Stops at functions of a library: at their entries, and where they return to.
//!
//! The first byte of each is replaced by the instruction that traps. A thread that has run into it
//! is put back, does the one instruction that was there, alone, and the trap is set again. Another
//! thread may pass there meanwhile and is not seen: an experiment that misses its point is made
//! again, and a return that was missed is known by the thread's next call.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use nix::sys::ptrace;
use nix::unistd::Pid;
use object::{Object, ObjectSymbol};

use crate::registers::{Call, functions};

/// The functions, and the system calls that they stand for.
const FUNCTIONS: &[(&str, i64)] = &[
    ("read", libc::SYS_read),
    ("readv", libc::SYS_readv),
    ("pread", libc::SYS_pread64),
    ("pread64", libc::SYS_pread64),
    ("write", libc::SYS_write),
    ("writev", libc::SYS_writev),
    ("pwrite", libc::SYS_pwrite64),
    ("pwrite64", libc::SYS_pwrite64),
    ("pwritev", libc::SYS_pwritev),
    ("pwritev64", libc::SYS_pwritev),
    ("ftruncate", libc::SYS_ftruncate),
    ("ftruncate64", libc::SYS_ftruncate),
    ("fallocate", libc::SYS_fallocate),
    ("fallocate64", libc::SYS_fallocate),
];

/// Where a thread has stopped.
pub(crate) enum Stop {
    /// At none of the traps.
    Elsewhere,
    /// It has done its one instruction.
    Stepped,
    /// At the entry of a function, which it is to pass by [`Breakpoints::pass`].
    Entry(u64, Call),
    /// A function has returned to there; likewise.
    Return(u64),
    /// Somebody else's function has returned to there.
    Passing(u64),
}

/// A function that a thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inside {
    /// Where it begins.
    entry: u64,
    /// Where it returns to.
    to: u64,
    /// With which stack.
    stack: u64,
}

/// The traps in a process.
#[derive(Debug)]
pub(crate) struct Breakpoints {
    memory: File,
    trap: u8,
    /// Where the library is.
    library: Range<u64>,
    entries: HashMap<u64, i64>,
    /// What was there.
    bytes: HashMap<u64, u8>,
    /// Who is just passing which of them.
    passing: HashMap<Pid, u64>,
    /// The functions that threads are in.
    inside: HashMap<Pid, Inside>,
    removed: bool,
}

impl Inside {
    /// Whether this has jumped to another function's begin, which returns in its place. (The same
    /// function again is another call.)
    fn becomes(&self, other: &Self) -> bool {
        (self.to, self.stack) == (other.to, other.stack) && self.entry != other.entry
    }
}

impl Breakpoints {
    /// Sets traps at the functions of the library with this file name.
    pub(crate) fn set(process: Pid, library: &str) -> Result<Self> {
        let trap =
            functions::BREAK.context("threads cannot be stopped at functions on this machine")?;
        let (path, base, library) = loaded(process, library)?;
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let file =
            object::File::parse(&*bytes).with_context(|| format!("reading {}", path.display()))?;
        let mut entries = HashMap::new();
        for symbol in file.dynamic_symbols().filter(|symbol| symbol.is_definition()) {
            let wanted = FUNCTIONS.iter().find(|(name, _)| symbol.name() == Ok(name));
            if let Some((_, number)) = wanted {
                entries.insert(base.wrapping_add(symbol.address()), *number);
            }
        }
        ensure!(!entries.is_empty(), "{} has none of the functions", path.display());
        let memory = format!("/proc/{process}/mem");
        let memory = File::options()
            .read(true)
            .write(true)
            .open(&memory)
            .with_context(|| format!("opening {memory}"))?;
        let mut this = Self {
            memory,
            trap,
            library,
            entries: HashMap::new(),
            bytes: HashMap::new(),
            passing: HashMap::new(),
            inside: HashMap::new(),
            removed: false,
        };
        for at in entries.keys() {
            this.trap_at(*at).context("setting a breakpoint")?;
        }
        this.entries = entries;
        Ok(this)
    }

    fn trap_at(&mut self, at: u64) -> std::io::Result<()> {
        if !self.bytes.contains_key(&at) {
            let mut byte = [0];
            self.memory.read_exact_at(&mut byte, at)?;
            self.bytes.insert(at, byte[0]);
            self.memory.write_all_at(&[self.trap], at)?;
        }
        Ok(())
    }

    /// What a thread that has got SIGTRAP has run into.
    pub(crate) fn stopped(&mut self, thread: Pid) -> nix::Result<Stop> {
        if self.passed(thread) {
            return Ok(Stop::Stepped);
        }
        let Some(at) = functions::back_up(thread, |at| self.bytes.contains_key(&at))? else {
            return Ok(Stop::Elsewhere);
        };
        if let Some(number) = self.entries.get(&at) {
            let (call, to, stack) = functions::entered(thread, *number)?;
            // A function that calls another of them, or goes on as another, is one call. Who is in
            // one and calls from elsewhere has left it unseen.
            if let Some(inside) = self.inside.remove(&thread)
                && (self.library.contains(&to) || inside.becomes(&Inside { entry: at, to, stack }))
            {
                self.inside.insert(thread, inside);
                return Ok(Stop::Passing(at));
            }
            return Ok(Stop::Entry(at, call));
        }
        let stack = functions::stack(thread)?;
        if self.inside.get(&thread).is_some_and(|inside| (inside.to, inside.stack) == (at, stack)) {
            self.inside.remove(&thread);
            return Ok(Stop::Return(at));
        }
        Ok(Stop::Passing(at))
    }

    /// The function at whose entry a thread is stopped matters: its return is to be seen.
    pub(crate) fn expect_return(&mut self, thread: Pid, entry: u64) -> nix::Result<()> {
        let (_, to, stack) = functions::entered(thread, 0)?;
        if self.trap_at(to).is_ok() {
            self.inside.insert(thread, Inside { entry, to, stack });
        }
        Ok(())
    }

    /// Has a thread do the instruction at a trap, alone.
    pub(crate) fn pass(&mut self, thread: Pid, at: u64) -> nix::Result<()> {
        if let Some(byte) = self.bytes.get(&at) {
            // If that cannot be written, nothing can.
            let _ = self.memory.write_all_at(&[*byte], at);
        }
        self.passing.insert(thread, at);
        ptrace::step(thread, None)
    }

    /// Whether a thread is just passing a trap.
    pub(crate) fn is_passing(&self, thread: Pid) -> bool {
        self.passing.contains_key(&thread)
    }

    /// A thread has passed, if it was about to: the trap is set again, unless others are at it.
    fn passed(&mut self, thread: Pid) -> bool {
        let Some(at) = self.passing.remove(&thread) else { return false };
        if !self.removed && !self.passing.values().any(|other| *other == at) {
            let _ = self.memory.write_all_at(&[self.trap], at);
        }
        true
    }

    /// A thread has ended.
    pub(crate) fn ended(&mut self, thread: Pid) {
        self.passed(thread);
        self.inside.remove(&thread);
    }

    /// Takes all traps away. Threads that have run into one and were not seen yet still have to be
    /// put back.
    pub(crate) fn remove(&mut self) {
        if !self.removed {
            self.removed = true;
            for (at, byte) in &self.bytes {
                let _ = self.memory.write_all_at(&[*byte], *at);
            }
        }
    }

    /// A thread that sleeps in a read of the device is in a function already, and its return would
    /// not be seen. So it is made to return and come again.
    pub(crate) fn send_round(process: Pid, thread: Pid) -> nix::Result<()> {
        functions::interrupt(thread, |call: &Call| {
            matches!(call.number, libc::SYS_read | libc::SYS_readv)
                && crate::calls::is_device(process, call.args[0])
        })
    }
}

impl Drop for Breakpoints {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Where a library is, where its first byte is mapped, and all that is mapped of it.
fn loaded(process: Pid, library: &str) -> Result<(PathBuf, u64, Range<u64>)> {
    let path = format!("/proc/{process}/maps");
    let maps = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // A memory file has no path; what a process has mapped can be read all the same.
    let its = |file: &str| {
        let name = file.strip_prefix("/memfd:").or_else(|| file.rsplit('/').next());
        name.is_some_and(|name| name == library)
    };
    let mut parts = maps.lines().filter_map(mapped).filter(|(file, ..)| its(file));
    let (file, base, first) =
        parts.next().with_context(|| format!("process {process} has not loaded {library}"))?;
    let end = parts.map(|(.., part)| part.end).fold(first.end, u64::max);
    let path = match file.starts_with("/memfd:") {
        true => {
            format!("/proc/{process}/map_files/{:x}-{:x}", first.start, first.end)
        }
        false => file.to_owned(),
    };
    Ok((PathBuf::from(path), base, first.start..end))
}

/// The file of a line of a process's maps, where its first byte would be, and what the line is of.
fn mapped(line: &str) -> Option<(&str, u64, Range<u64>)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let offset = words.nth(1)?;
    let file = words.nth(2)?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    Some((file, start.checked_sub(number(offset)?)?, start..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_goes_on_as_another_is_one_call() {
        let first = Inside { entry: 100, to: 9000, stack: 64 };
        assert!(first.becomes(&Inside { entry: 200, ..first }));
        // The next call from the same place.
        assert!(!first.becomes(&first));
        assert!(!first.becomes(&Inside { entry: 200, stack: 48, ..first }));
    }

    #[test]
    fn maps_are_read() {
        let line = "7f2900028000-7f290019d000 r-xp 00028000 fe:00 1234     /lib/libc.so.6";
        let whole = 0x7f29_0002_8000..0x7f29_0019_d000;
        assert_eq!(mapped(line), Some(("/lib/libc.so.6", 0x7f29_0000_0000, whole)));
        assert_eq!(mapped("7f2900028000-7f290019d000 rw-p 00000000 00:00 0"), None);
        let this = nix::unistd::Pid::this();
        let (path, base, all) = loaded(this, "libc.so.6").unwrap();
        assert!(path.is_file() && base != 0);
        assert!(all.contains(&(libc::getpid as *const () as u64)));
        assert!(loaded(this, "libbelay_shim.so").is_err());
    }
}

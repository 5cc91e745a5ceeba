//! Standard error: the daemon's, passed on and remembered, and belay's own, which must never
//! make the supervisor wait for whoever reads it.

use crate::outgoing;
use rustix::fd::BorrowedFd;
use rustix::io::read;
use std::io;

/// Lines remembered.
const LINES: usize = 50;
/// Bytes of a line remembered.
const LINE: usize = 1000;
/// Bytes remembered, at most twice as many.
const KEPT: usize = LINES * LINE;
/// Bytes taken at once.
const CHUNK: usize = 4096;

/// A writer to standard error that never waits (see [`outgoing`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Polite;

impl io::Write for Polite {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        outgoing::push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What was there to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Nothing.
    Nothing,
    /// Something, and all of it was taken.
    All,
    /// There may be more.
    More,
}

/// The daemon's last lines. They are made of what it wrote when somebody asks for them, for most
/// daemons never: one that tells of each request would keep the supervisor busy with it.
#[derive(Debug, Default)]
pub struct Tail {
    recent: Vec<u8>,
}

impl Tail {
    /// Takes what is there now from the daemon's standard error, passes it on and remembers it.
    pub fn drain(&mut self, pipe: BorrowedFd<'_>) -> Drained {
        let mut buffer = [0; CHUNK];
        // Bounded: a daemon that floods its standard error must not keep the supervisor busy.
        for chunk in 0..16 {
            let n = read(pipe, &mut buffer).unwrap_or(0);
            let Some(bytes) = buffer.get(..n).filter(|bytes| !bytes.is_empty()) else {
                return if chunk == 0 { Drained::Nothing } else { Drained::All };
            };
            let _ = io::Write::write(&mut Polite, bytes);
            self.push(bytes);
        }
        Drained::More
    }

    fn push(&mut self, bytes: &[u8]) {
        self.recent.extend_from_slice(bytes);
        if self.recent.len() > 2 * KEPT {
            self.recent.drain(..self.recent.len() - KEPT);
        }
    }

    /// The lines since the last call, an unfinished one included.
    pub fn take(&mut self) -> Vec<String> {
        let lines = self.lines();
        self.recent = Vec::new();
        lines
    }

    /// The same lines, which stay.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<&[u8]> = self.recent.split(|byte| *byte == b'\n').collect();
        // What is behind the last end of a line is one if there is something.
        lines.pop_if(|last| last.is_empty());
        let excess = lines.len().saturating_sub(LINES);
        lines.iter().skip(excess).map(|line| printable(line)).collect()
    }
}

/// Reports are shown on terminals: no control characters.
fn printable(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line.get(..LINE).unwrap_or(line));
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_short_and_printable() {
        let mut tail = Tail::default();
        for i in 0..60 {
            tail.push(format!("line {i}\n").as_bytes());
        }
        tail.push(&[b'x'; 5000]);
        tail.push(b"\n\x1b[31mred");
        let lines = tail.take();
        assert_eq!(lines.len(), 50);
        assert_eq!(lines.first().map(String::as_str), Some("line 12"));
        assert_eq!(lines.get(48).map(String::len), Some(LINE));
        assert_eq!(lines.last().map(String::as_str), Some(" [31mred"));
        assert!(tail.take().is_empty() && tail.lines().is_empty());
    }

    #[test]
    fn of_much_the_end_is_kept() {
        let mut tail = Tail::default();
        for i in 0..100_000 {
            tail.push(format!("line {i}\n").as_bytes());
            assert!(tail.recent.len() <= 2 * KEPT);
        }
        let expected: Vec<_> = (99_950..100_000).map(|i| format!("line {i}")).collect();
        assert_eq!(tail.take(), expected);
    }
}
